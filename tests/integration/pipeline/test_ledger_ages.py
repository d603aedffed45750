"""Records that time makes wrong: a log that only grows, receipts of a clock that ran ahead, a question whose asker was killed."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nedura.clock import SystemClock
from nedura.update import answer_prompt, pending_prompt
from nedura.update.events import Notice
from nedura.update.ledger.journal import LOG_BYTES, Journal
from nedura.update.ledger.receipt import opened
from nedura.update.ledger.receipts import KEEP, ReceiptStore
from nedura.update.prompt import PATIENCE, PROMPT, RESPONSE, ask_by_file, forget_old_prompt

NOW = 1_800_000_000.0
CLOSED = {"outcome": "success", "exit_code": 0, "finished_at": "2026-01-01T00:00:00Z"}


def test_the_log_has_two_parts_and_no_line_is_lost(tmp_path: Path) -> None:
    """Two processes of a run write it, and whoever is refused beside them."""
    journals = [Journal(tmp_path, SystemClock()) for _ in range(2)]
    log = tmp_path / "logs/update.log"
    journals[0].note("first")
    with log.open("a") as file:
        file.write("x" * (LOG_BYTES - log.stat().st_size - 1) + "\n")
    for number, journal in enumerate(journals * 3):
        journal.take(Notice(text=f"line {number}"))
    before = log.with_name("update.log.1")
    assert "first" in before.read_text()
    assert [line.rsplit(" ", 1)[1] for line in log.read_text().splitlines()] == list("012345")
    assert log.stat().st_mode & 0o777 == 0o600
    with log.open("a") as file:
        file.write("y" * LOG_BYTES)
    journals[0].note("last")
    assert sorted(os.listdir(log.parent)) == ["update.log", "update.log.1"]
    assert "line 5" in before.read_text()


def test_a_log_that_cannot_be_moved_is_written_on(tmp_path: Path) -> None:
    journal = Journal(tmp_path, SystemClock())
    journal.note("first")
    log = tmp_path / "logs/update.log"
    with log.open("a") as file:
        file.write("x" * LOG_BYTES)
    log.with_name("update.log.1").mkdir()
    journal.note("second")
    assert log.read_text().endswith("second\n")


def receipt(store: ReceiptStore, name: str, started: str, written: float, **more: object) -> Path:
    place = store.write({**opened(), "update_id": name, "started_at": started, "pid": 1, **CLOSED, **more})
    os.utime(place, (written, written))
    return place


@pytest.fixture
def store(tmp_path: Path) -> ReceiptStore:
    return ReceiptStore(tmp_path, lambda: NOW)  # 2027-01-15T08:00:00Z


def test_a_receipt_from_the_future_does_not_lead(store: ReceiptStore) -> None:
    """The clock ran ahead for one run, or for all of that day's files."""
    receipt(store, "old", "2026-12-01T00:00:00Z", NOW - 45 * 86400)
    receipt(store, "ahead", "2031-01-01T00:00:00Z", NOW - 30 * 86400)
    receipt(store, "lost", "2031-01-01T00:00:01Z", NOW + 4 * 365 * 86400)
    receipt(store, "new", "2027-01-15T07:00:00Z", NOW - 3600)
    assert [r["update_id"] for r in store.recent()] == ["new", "ahead", "old", "lost"]
    assert [r["update_id"] for r in store.recent(1)] == ["new"]
    store.latest.unlink()
    newest = store.newest()
    assert newest is not None
    assert newest["update_id"] == "new"


def test_a_clock_that_is_a_little_behind_calls_nothing_wrong(store: ReceiptStore) -> None:
    receipt(store, "first", "2027-01-15T08:20:00Z", NOW)
    receipt(store, "second", "2027-01-15T08:30:00Z", NOW - 5)
    assert [r["update_id"] for r in store.recent()] == ["second", "first"]


def test_receipts_from_the_future_do_not_keep_their_places_for_ever(store: ReceiptStore) -> None:
    for number in range(KEEP):
        receipt(store, f"ahead{number:02}", f"2031-01-01T00:00:{number:02}Z", NOW + 1e8)
    place = receipt(store, "new", "2027-01-15T07:00:00Z", NOW - 3600)
    store.prune()
    assert place.exists()
    assert len(store.names()) == KEEP


ASKER = (
    "import asyncio, sys\nfrom pathlib import Path\nfrom nedura.clock import SystemClock\n"
    "from nedura.update.prompt import ask_by_file\n"
    "asyncio.run(ask_by_file(Path(sys.argv[1]), 'Bring them back?', 'no', SystemClock()))\n"
)


def test_a_question_ends_with_the_updater_that_asked_it(tmp_path: Path) -> None:
    """Chats showed it, and took an answer that nobody would read, until the next question."""
    asker = subprocess.Popen([sys.executable, "-c", ASKER, str(tmp_path)])
    try:
        while (waiting := pending_prompt(tmp_path)) is None:
            assert asker.poll() is None
            time.sleep(0.02)
        forget_old_prompt(tmp_path)
        assert pending_prompt(tmp_path) == waiting, "somebody waits for it"
    finally:
        asker.kill()
        asker.wait()
    assert (tmp_path / PROMPT).exists()
    assert pending_prompt(tmp_path) is None
    assert not answer_prompt(tmp_path, waiting.id, "yes")
    assert not (tmp_path / RESPONSE).exists()
    (tmp_path / RESPONSE).write_text("yes")
    forget_old_prompt(tmp_path)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("table", ["", "pid:[1]"])
async def test_another_container_is_judged_by_time_alone(tmp_path: Path, table: str) -> None:
    """Its pids are none of ours, and an older updater states none."""
    asking = asyncio.ensure_future(ask_by_file(tmp_path, "?", "no", SystemClock()))
    while (waiting := pending_prompt(tmp_path)) is None:
        await asyncio.sleep(0.01)
    record = json.loads((tmp_path / PROMPT).read_text())
    record = (
        {**record, "pid": 2**22 - 3, "pid_table": table}
        if table
        else {"id": record["id"], "prompt": "?", "default": "no"}
    )
    (tmp_path / PROMPT).write_text(json.dumps(record))
    assert pending_prompt(tmp_path) == waiting
    assert pending_prompt(tmp_path, now=time.time() + PATIENCE + 1) is None
    assert answer_prompt(tmp_path, waiting.id, "yes")
    assert await asking == "yes"
