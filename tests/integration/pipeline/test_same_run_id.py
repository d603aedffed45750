"""`--run-id`: the same id reports what that run did. A run that only met a held lock did nothing and answers for nobody."""

from __future__ import annotations

from pathlib import Path

import pytest

from nedura.update import ReceiptStore, UpdateOptions
from nedura.update.ledger.receipt import opened
from tests.kits.pipeline import Toy

NIGHTLY = UpdateOptions(run_id="nightly-7")
REFUSED = {
    "outcome": "refused",
    "exit_code": 2,
    "stop_class": "lock_held",
    "finished_at": "2027-01-01T00:00:01Z",
}


@pytest.fixture
def toy(tmp_path: Path) -> Toy:
    return Toy(tmp_path / "home")


def refused_for_the_lock(toy: Toy) -> None:
    """What the same id left when it was started once more while the run was going on, or while another was."""
    theirs = {**opened(), "update_id": "nightly-7", "started_at": "2027-01-01T00:00:00Z", "pid": 4_000_000}
    ReceiptStore(toy.home).write({**theirs, **REFUSED}, latest=False)


async def test_a_second_start_during_the_run_does_not_speak_for_it(toy: Toy) -> None:
    await toy.run(NIGHTLY)
    refused_for_the_lock(toy)
    finished, events = await toy.run(NIGHTLY)
    assert (finished.outcome, finished.exit_code) == ("success", 0)
    assert [event.kind for event in events] == ["already_reported", "update_finished"]
    found = ReceiptStore(toy.home).find("nightly-7")
    assert found is not None
    assert found["outcome"] == "success"


async def test_what_a_held_lock_kept_from_running_runs_at_the_next_try(toy: Toy) -> None:
    refused_for_the_lock(toy)
    finished, _ = await toy.run(NIGHTLY)
    assert (finished.outcome, finished.exit_code) == ("success", 0)
    assert toy.current == "000002"


async def test_it_names_the_code_that_the_run_moved_to(toy: Toy) -> None:
    first, _ = await toy.run(NIGHTLY)
    again, _ = await toy.run(NIGHTLY)
    assert again.copy_terminal == first.copy_terminal
    assert again.now.code_sha == first.now.code_sha
    assert first.now.short() in again.copy_terminal


async def test_a_way_back_is_not_reported_as_an_update(toy: Toy) -> None:
    behind = {"went_behind": "f" * 32, "restored": "", "post_update": {"sha": "b" * 40, "version": "0.1.0"}}
    times = {"committed_at": "2027-01-01T00:00:01Z", "finished_at": "2027-01-01T00:00:02Z"}
    done = {"outcome": "success", "exit_code": 0, **times}
    ReceiptStore(toy.home).write(
        {**opened(), "update_id": "nightly-7", "started_at": "2027-01-01T00:00:00Z", **behind, **done}
    )
    again, _ = await toy.run(NIGHTLY)
    assert again.copy_terminal.startswith("✓ Went back to 0.1.0 (bbbbbbbb), the code before run ffffffff")


async def test_a_run_that_failed_behind_its_preparation_moved_nothing(toy: Toy) -> None:
    failed = {"outcome": "failed", "exit_code": 1, "changed": True, "finished_at": "2027-01-01T00:00:01Z"}
    ReceiptStore(toy.home).write(
        {**opened(), "update_id": "nightly-7", "started_at": "2027-01-01T00:00:00Z", **failed}
    )
    again, _ = await toy.run(NIGHTLY)
    assert (again.exit_code, again.changed) == (1, False)
