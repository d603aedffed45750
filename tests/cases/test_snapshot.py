"""Field reports of the area update.snapshot, and C193: each by its id, with real databases."""

from __future__ import annotations

import os
import socket
import sqlite3
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from contextlib import aclosing, closing, contextmanager
from pathlib import Path

import pytest

from nedura.update.events import Progress, SnapshotTaken
from nedura.update.events_snapshot import SnapshotFailed
from nedura.update.ledger import receipt as receipts
from nedura.update.state.backup import ZIP_NOTE, write_backup
from nedura.update.state.nets import run_nets
from nedura.update.state.place import ASIDE_KEEP
from nedura.update.state.snapshot import PROGRESS_EVERY, SnapshotEvent, take_snapshots
from nedura.update.state.snapshot_manifest import list_snapshots, read_manifest
from nedura.update.state.snapshot_set import FILE_CAP
from nedura.update.state.snapshot_take import take_snapshot
from nedura.update.state.sqlite import check_copy
from nedura.wire import to_wire
from tests.integration.snapshot.homes import make_database, rows, snap


async def snapshots(homes: list[tuple[str, Path]], **options: object) -> list[SnapshotEvent]:
    async with aclosing(take_snapshots(homes, **options)) as events:  # type: ignore[arg-type]
        return [event async for event in events]


@contextmanager
def busy_writer(path: Path) -> Iterator[None]:
    """Another process commits every few milliseconds."""
    code = (
        "import sqlite3, sys, time\n"
        "db = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=5); print('go', flush=True)\n"
        "while True:\n"
        "    db.execute('BEGIN IMMEDIATE'); db.execute('INSERT INTO t(body) VALUES(?)', ('x' * 300,)); db.execute('COMMIT')\n"
        "    time.sleep(0.003)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    try:
        yield
    finally:
        child.kill()
        child.communicate()


def test_c009_a_copy_beside_a_writer_that_never_rests_ends(tmp_path: Path) -> None:
    """Stepped copying of this database restarts on each foreign commit; one step takes a moment."""
    home = tmp_path / "h"
    make_database(home / "state.db", 60_000)
    with busy_writer(home / "state.db"), closing(sqlite3.connect(home / "state.db", timeout=5)) as blocker:
        stop = threading.Event()

        def hold() -> None:
            with closing(sqlite3.connect(home / "state.db", isolation_level=None, timeout=5)) as db:
                while not stop.is_set():
                    db.execute("BEGIN IMMEDIATE")
                    time.sleep(0.1)
                    db.execute("ROLLBACK")

        holder = threading.Thread(target=hold)
        holder.start()
        started = time.monotonic()
        taken = take_snapshot("default", home, label="pre-update", keep=1, now=time.time())
        elapsed = time.monotonic() - started
        stop.set()
        holder.join()
        blocker.execute("SELECT 1")
    assert taken is not None
    assert taken.manifest.complete
    assert elapsed < 10
    check_copy(taken.folder / "state.db")


def test_c009_a_database_that_stays_locked_is_skipped_with_its_reason_in_time(tmp_path: Path) -> None:
    home = tmp_path / "h"
    make_database(home / "state.db", wal=False)
    (home / "config.yaml").write_text("a: 1\n")
    with closing(sqlite3.connect(home / "state.db", isolation_level=None)) as db:
        db.execute("BEGIN EXCLUSIVE")
        started = time.monotonic()
        taken = take_snapshot("default", home, label="pre-update", keep=1, now=time.time(), busy_limit=0.5)
    assert taken is not None
    assert time.monotonic() - started < 4
    assert "locked" in taken.manifest.failed["state.db"]


def test_c010_one_locked_foreign_database_does_not_stop_the_backup(tmp_path: Path) -> None:
    home = tmp_path / "h"
    make_database(home / "state.db")
    make_database(home / "browser/Default/History", wal=False)
    (home / "files").mkdir()
    for number in range(500):
        (home / f"files/{number}.txt").write_text(str(number))
    with closing(sqlite3.connect(home / "browser/Default/History", isolation_level=None)) as browser:
        browser.execute("BEGIN EXCLUSIVE")
        started = time.monotonic()
        taken = write_backup(home, now=time.time(), foreign_busy=0.5)
    assert time.monotonic() - started < 20
    assert "locked" in taken.skipped["browser/Default/History"]
    with zipfile.ZipFile(taken.path) as archive:
        assert set(archive.namelist()) == {"state.db", ZIP_NOTE, *(f"files/{n}.txt" for n in range(500))}


def test_c011_files_are_judged_by_their_header_not_their_name(tmp_path: Path) -> None:
    home = tmp_path / "h"
    make_database(home / "state.db")
    cache = home / "cache/documents"
    cache.mkdir(parents=True)
    noise = os.urandom(4096)
    (cache / "index.db").write_bytes(noise)
    (cache / "empty.db").write_bytes(b"")
    (cache / "folder.db").mkdir()
    os.mkfifo(cache / "pipe.db")
    with socket.socket(socket.AF_UNIX) as sock:
        here = os.open(".", os.O_RDONLY)
        os.chdir(cache)
        sock.bind("sock.db")
        os.fchdir(here)
        os.close(here)
        started = time.monotonic()
        taken = write_backup(home, now=time.time())
    assert time.monotonic() - started < 10
    assert set(taken.skipped) == {"cache/documents/pipe.db", "cache/documents/sock.db"}
    with zipfile.ZipFile(taken.path) as archive:
        assert archive.read("cache/documents/index.db") == noise
        assert archive.read("cache/documents/empty.db") == b""


async def test_c013_snapshots_do_not_pile_up_and_are_no_input_of_a_backup(tmp_path: Path) -> None:
    home = tmp_path / "h"
    make_database(home / "state.db")
    for number in range(20):
        old = home / "state-snapshots" / f"20200101-0000{number:02d}-other"
        old.mkdir(parents=True)
        (old / "state.db").write_bytes(b"x" * 1000)
        snap(home, 1_000_000_000 + number)
    assert len([m for m in list_snapshots(home)[0] if m.label == "pre-update"]) == 1
    taken = write_backup(home, now=time.time())
    with zipfile.ZipFile(taken.path) as archive:
        assert set(archive.namelist()) == {"state.db", ZIP_NOTE}
    again = write_backup(home, now=time.time() + 5)
    assert again.files == 1


async def test_c013_a_repair_loop_cannot_fill_the_disk(tmp_path: Path) -> None:
    home = tmp_path / "h"
    make_database(home / "state.db")
    name = snap(home)
    for number in range(12):
        (home / "state.db").write_bytes(bytes([number + 1]) * 20_000)
        clock = _At(1_000_000_000 + number)
        async with aclosing(run_nets([("default", home)], {"default": name}, clock=clock)) as events:
            assert [event.ok async for event in events] == [True]
    assert len(list(home.glob("state.db.corrupt-*"))) == ASIDE_KEEP


class _At:
    def __init__(self, now: float) -> None:
        self.now = now

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        return None


def test_c014_the_last_rows_are_in_the_copy_and_it_is_checked(tmp_path: Path) -> None:
    home = tmp_path / "h"
    make_database(home / "state.db", 10)
    with closing(sqlite3.connect(home / "state.db", isolation_level=None)) as writer:
        writer.execute("PRAGMA wal_autocheckpoint=0")
        writer.execute("BEGIN")
        writer.executemany("INSERT INTO t(body) VALUES(?)", [("late",)] * 1000)
        writer.execute("COMMIT")
        (tmp_path / "raw.db").write_bytes((home / "state.db").read_bytes())
        assert rows(tmp_path / "raw.db") == 10, "the trap: a raw copy has none of them, and looks whole"
        taken = take_snapshot("default", home, label="pre-update", keep=1, now=time.time())
    assert taken is not None
    (tmp_path / "copy.db").write_bytes((taken.folder / "state.db").read_bytes())
    assert rows(tmp_path / "copy.db") == 1010


async def test_c016_every_profile_has_a_snapshot_with_the_same_set(tmp_path: Path) -> None:
    homes = [(name, tmp_path / name) for name in ("a", "default", "b", "c")]
    for name, home in homes:
        if name == "b":
            (home / "state.db").mkdir(parents=True)
        else:
            make_database(home / "state.db")
        (home / "config.yaml").write_text("x: 1\n")
    found = {e.profile: e for e in await snapshots(homes) if isinstance(e, SnapshotTaken)}
    assert set(found) == {"a", "default", "b", "c"}
    assert found["b"].incomplete == ("state.db",)
    sets = {
        name: set(read_manifest(home / "state-snapshots" / found[name].snapshot_id).files)
        for name, home in homes
    }
    assert sets["a"] == sets["default"] == sets["c"] == {"state.db", "config.yaml"}
    assert sets["b"] == {"config.yaml"}


async def test_c016_a_profile_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    homes = [(name, tmp_path / name) for name in ("default", "a")]
    for _, home in homes:
        make_database(home / "state.db")
    (tmp_path / "a/state-snapshots").write_text("a file is in its place")
    events = await snapshots(homes)
    assert [e.profile for e in events if isinstance(e, SnapshotFailed)] == ["a"]
    assert [e.profile for e in events if isinstance(e, SnapshotTaken)] == ["default"]


async def test_c019_a_zeroed_database_is_loud_and_costs_no_good_copy(tmp_path: Path) -> None:
    home = tmp_path / "h"
    make_database(home / "state.db", 33)
    (home / "config.yaml").write_text("x: 1\n")
    good = snap(home)
    zeroes = bytes(2_000_000)
    (home / "state.db").write_bytes(zeroes)
    (event,) = [e for e in await snapshots([("default", home)]) if isinstance(e, SnapshotTaken)]
    assert event.incomplete == ("state.db",)
    assert "state.db" in event.copy_terminal
    assert receipts.apply(receipts.opened(), to_wire(event))["snapshots_missing"] == {"default": ["state.db"]}
    manifest = read_manifest(home / "state-snapshots" / event.snapshot_id)
    assert manifest.failed_dbs == ("state.db",)
    assert good in [one.id for one in list_snapshots(home)[0]]
    async with aclosing(run_nets([("default", home)], {"default": event.snapshot_id})) as events:
        (told,) = [net async for net in events]
    assert told.ok
    assert good in told.detail
    assert rows(home / "state.db") == 33
    (aside,) = home.glob("state.db.corrupt-*")
    assert aside.read_bytes() == zeroes
    assert aside.name in told.detail


async def test_c193_a_huge_database_is_judged_by_its_size_alone(tmp_path: Path) -> None:
    home = tmp_path / "h"
    make_database(home / "state.db")
    with open(home / "state.db", "r+b") as file:
        file.truncate(24 * 1024**3)
    (home / "config.yaml").write_text("x: 1\n")
    started = time.monotonic()
    events = await snapshots([("default", home)])
    assert time.monotonic() - started < 2
    (event,) = [e for e in events if isinstance(e, SnapshotTaken)]
    assert event.incomplete == ("state.db",)
    manifest = read_manifest(home / "state-snapshots" / event.snapshot_id)
    assert manifest.oversized_skipped == ("state.db",)
    assert FILE_CAP == 1073741824


async def test_c193_progress_comes_within_two_seconds(tmp_path: Path) -> None:
    home = tmp_path / "h"
    make_database(home / "state.db", wal=False)
    with open(home / "state.db", "ab") as file:
        file.truncate(30 * 1024 * 1024)
    with closing(sqlite3.connect(home / "state.db", isolation_level=None)) as db:
        db.execute("BEGIN EXCLUSIVE")
        started = time.monotonic()
        async with aclosing(take_snapshots([("default", home)], busy_limit=8.0)) as events:
            async for event in events:
                if isinstance(event, Progress):
                    break
            else:
                pytest.fail("no progress was told")
    assert PROGRESS_EVERY <= 1.0, "the report's two seconds, with one to spare"
    assert time.monotonic() - started < 5, "a loaded machine's allowance"
