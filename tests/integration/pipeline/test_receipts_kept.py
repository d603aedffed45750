"""Twenty receipts are kept, never fewer for a run that still goes on; and what the bootstrap writes is whole or not there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from nedura.product import NEDURA
from nedura.update.ledger.lock import UpdateLock
from nedura.update.ledger.owner import myself
from nedura.update.ledger.receipt import opened
from nedura.update.ledger.receipts import KEEP, ReceiptStore
from tests.kits.pipeline import ROOT, Toy


def older(store: ReceiptStore, number: int, **more: object) -> Path:
    """A receipt of an earlier run, the lower its number the older."""
    closed = {"outcome": "success", "exit_code": 0, "finished_at": "2026-01-01T00:00:00Z"}
    place = store.write(
        {
            **opened(),
            "update_id": f"run{number:04}",
            "started_at": f"2026-01-01T00:{number:02}:00Z",
            "pid": 2**31 - 2,
            **closed,
            **more,
        }
    )
    os.utime(place, (1000.0 + number, 1000.0 + number))
    return place


async def test_twenty_are_kept_and_the_newest_is_this_run(tmp_path: Path) -> None:
    toy = Toy(tmp_path / "home")
    store = ReceiptStore(toy.home)
    places = [older(store, number) for number in range(KEEP + 5)]
    finished, _ = await toy.run()
    left = store.names()
    assert len(left) == KEEP
    assert [place.exists() for place in places] == [False] * 6 + [True] * (KEEP - 1)
    assert str(left[0]) == finished.receipt
    assert toy.latest()["update_id"] == finished.run_id


def test_a_run_that_goes_on_keeps_its_receipt_behind_twenty_newer_ones(tmp_path: Path) -> None:
    store = ReceiptStore(tmp_path)
    me = myself()
    running = {"outcome": "running", "exit_code": None, "finished_at": None}
    mine = older(store, 0, pid=me.pid, pid_create_time=me.create_time, **running)
    dead = older(store, 1, **running)
    for number in range(2, KEEP + 4):
        older(store, number)
    store.prune()
    assert mine.exists()
    assert not dead.exists()
    assert len(store.names()) == KEEP + 1


async def test_refused_runs_keep_to_twenty_too(tmp_path: Path) -> None:
    """A timer that runs into a held lock for hours would else fill the folder; the holder's own receipt and `latest.json` stay."""
    toy = Toy(tmp_path / "home")
    store = ReceiptStore(toy.home)
    me = myself()
    running = {"outcome": "running", "exit_code": None, "finished_at": None}
    mine = older(store, 0, pid=me.pid, pid_create_time=me.create_time, **running)
    for number in range(1, KEEP + 5):
        older(store, number)
    newest = store.latest.read_bytes()
    lock = UpdateLock(tmp_path / "other", toy.paths.folder / ".nedura-update.lock", NEDURA, {})
    lock.acquire(1.0)
    try:
        finished, _ = await toy.run()
    finally:
        lock.release()
    assert (finished.outcome, finished.stop_class) == ("refused", "lock_held")
    assert Path(finished.receipt).exists()
    assert mine.exists()
    assert len(store.names()) == KEEP + 1
    assert store.latest.read_bytes() == newest


def test_what_the_bootstrap_writes_is_whole_or_not_there(tmp_path: Path) -> None:
    """A limit on file sizes makes a real short write: the first call takes a part, only the next one fails."""
    place = tmp_path / "request.json"
    place.write_text('{"old": 1}')
    script = (
        "import importlib.util, resource, sys\n"
        "spec = importlib.util.spec_from_file_location('b', sys.argv[1])\n"
        "b = importlib.util.module_from_spec(spec)\n"
        "spec.loader.exec_module(b)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "try:\n    b.write_json(sys.argv[2], {'text': 'x' * 5000})\n"
        "except OSError:\n    sys.exit(7)\n"
    )
    bootstrap = ROOT / "nedura/update/bootstrap.py"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", script, bootstrap, place], check=False)
    assert done.returncode == 7
    assert json.loads(place.read_text()) == {"old": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["request.json"]
