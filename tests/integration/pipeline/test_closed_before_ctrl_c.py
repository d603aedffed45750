"""What a stopped run says at its end is what its receipt says: a Ctrl-C may come when the run is closed and only not shown yet."""

from __future__ import annotations

from pathlib import Path

import pytest

from nedura.update.ledger.interrupted import interruption
from nedura.update.ledger.owner import Owner, myself
from nedura.update.ledger.receipt import opened
from nedura.update.ledger.receipts import ReceiptStore


def stored(home: Path, owner: Owner, outcome: str, exit_code: int) -> ReceiptStore:
    store = ReceiptStore(home)
    store.write(
        {
            **opened(),
            "update_id": "run1",
            "started_at": "2026-01-01T00:00:00Z",
            "pid": owner.pid,
            "pid_create_time": owner.create_time,
            "outcome": outcome,
            "exit_code": exit_code,
            "finished_at": "2026-01-01T00:01:00Z",
        }
    )
    return store


@pytest.mark.parametrize(
    ("outcome", "code"), [("success", 0), ("partial", 1), ("failed", 1), ("interrupted", 130)]
)
def test_a_run_that_was_closed_already_is_told_as_it_ended(tmp_path: Path, outcome: str, code: int) -> None:
    told = interruption(stored(tmp_path, myself(), outcome, code))
    assert (told.run_id, told.outcome, told.exit_code) == ("run1", outcome, code)
    assert told.stop_class == ""


@pytest.mark.parametrize(
    "owner",
    [Owner(myself().pid + 1, myself().create_time), Owner(myself().pid, myself().create_time - 3600)],
    ids=["another process", "the same pid, an hour ago"],
)
def test_another_run_is_not_told_as_this_one(tmp_path: Path, owner: Owner) -> None:
    told = interruption(stored(tmp_path, owner, "success", 0))
    assert (told.run_id, told.outcome, told.exit_code) == ("", "interrupted", 130)
    assert told.stop_class == "interrupted"
