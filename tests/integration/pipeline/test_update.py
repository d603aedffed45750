"""`update()` with scripted stages, real files, real child processes."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import psutil
import pytest

from nedura.errors import UpdateError
from nedura.product import NEDURA
from nedura.update import UpdateFinished, UpdateOptions
from nedura.update.ledger.lock import UpdateLock
from nedura.update.parts import Refusal
from tests.kits.pipeline import GOOD_CHILD, Toy, gateway


@pytest.fixture
def toy(tmp_path: Path) -> Toy:
    return Toy(tmp_path / "home")


async def test_a_run_commits_and_closes_its_receipt(toy: Toy) -> None:
    finished, _events = await toy.run()
    assert (finished.outcome, finished.exit_code, finished.changed) == ("success", 0, True)
    assert toy.calls == ["plan", "snapshot", "prepare", "validate", "commit"]
    assert toy.current == "000002"
    (receipt,) = toy.receipts()
    assert receipt == toy.latest()
    assert (receipt["outcome"], receipt["exit_code"]) == ("success", 0)
    assert [stage["name"] for stage in receipt["stages"]] == [
        "plan",
        "snapshot",
        "prepare",
        "validate",
        "commit",
    ]
    assert receipt["pre_update"]["generation"] == "000001"
    assert receipt["post_update"]["generation"] == "000002"
    assert str(toy.home) in finished.receipt
    assert not list(toy.home.glob(".nedura-update-in-progress"))


async def test_already_current_runs_no_child_and_moves_nothing(tmp_path: Path) -> None:
    toy = Toy(tmp_path / "home", changed=False, child="raise SystemExit('must not run')\n")
    finished, _events = await toy.run()
    assert (finished.outcome, finished.exit_code, finished.changed) == ("success", 0, False)
    assert toy.calls == ["plan", "snapshot", "prepare"]
    assert "Already up to date" in finished.copy
    assert not toy.tail_armed
    assert toy.latest()["outcome"] == "success"


async def test_already_current_finishes_what_an_earlier_run_owes(tmp_path: Path) -> None:
    toy = Toy(tmp_path / "home", changed=False, child=GOOD_CHILD + "tell(kind='step', name='ran')\nclose()\n")
    (toy.paths.folder / "source-completion-pending").write_bytes(b"The update's completion is pending.\n")
    finished, events = await toy.run()
    assert finished.exit_code == 0
    assert any(event.kind == "step" for event in events)


@pytest.mark.parametrize("stage", ["plan", "snapshot", "prepare", "validate", "commit"])
async def test_a_stage_that_fails_before_the_move_is_exit_1_and_owes_nothing(toy: Toy, stage: str) -> None:
    toy.errors[stage] = UpdateError("It broke.", stop_class="fetch_failed")
    finished, _events = await toy.run()
    assert (finished.outcome, finished.exit_code, finished.stop_class) == ("failed", 1, "fetch_failed")
    assert toy.current == "000001"
    assert not toy.tail_armed
    assert not toy.debt_armed
    assert not (toy.paths.folder / "moving.json").exists()
    (receipt,) = toy.receipts()
    assert receipt["stages"][-1] == {
        **receipt["stages"][-1],
        "name": stage,
        "outcome": "failed",
        "reason": "It broke.",
    }


async def test_an_unexpected_error_closes_the_receipt_too(toy: Toy) -> None:
    toy.errors["prepare"] = ZeroDivisionError("token=ghp_0123456789abcdef")
    finished, _ = await toy.run()
    assert (finished.outcome, finished.exit_code, finished.stop_class) == ("failed", 1, "internal")
    assert "ghp_0123456789abcdef" not in json.dumps(toy.latest())
    assert "ZeroDivisionError" in finished.stop_reason


async def test_a_refusal_is_exit_2_and_names_its_command(toy: Toy) -> None:
    toy.refusal = Refusal(code="docker", message="This install is an image.", command="docker pull x")
    finished, _ = await toy.run()
    assert (finished.outcome, finished.exit_code, finished.stop_class) == ("refused", 2, "docker")
    assert toy.calls == []
    (receipt,) = toy.receipts()
    assert receipt["steps"][0]["name"] == "admission"
    assert receipt["steps"][0]["ok"] is False
    assert "docker pull x" in receipt["steps"][0]["detail"]


async def test_an_externally_owned_checkout_is_left_alone_with_exit_0(toy: Toy) -> None:
    toy.refusal = Refusal(code="external", message="Somebody else updates this checkout.", exit_code=0)
    finished, _ = await toy.run()
    assert (finished.outcome, finished.exit_code) == ("refused", 0)


async def test_a_held_lock_is_exit_2_and_leaves_latest_alone(toy: Toy) -> None:
    await toy.run()
    before = (toy.home / "logs/update_receipts/latest.json").read_bytes()
    holder = subprocess.Popen(["sleep", "60"])
    try:
        created = psutil.Process(holder.pid).create_time()
        (toy.home / ".nedura-update-in-progress").write_text(
            f"{holder.pid}\n{created:.0f}\nct:{created:.3f}\n"
        )
        other = Toy(toy.home)
        finished, _ = await other.run()
    finally:
        holder.kill()
        holder.wait()
    assert (finished.outcome, finished.exit_code, finished.stop_class) == ("refused", 2, "lock_held")
    assert f"process {holder.pid}" in finished.stop_reason
    assert other.calls == []
    assert (toy.home / "logs/update_receipts/latest.json").read_bytes() == before
    assert sorted(receipt["outcome"] for receipt in toy.receipts()) == ["refused", "success"]
    again, _ = await Toy(toy.home, changed=False).run()  # the dead holder is reclaimed
    assert again.exit_code == 0


async def test_the_same_run_id_reports_instead_of_repeating(toy: Toy) -> None:
    first, _ = await toy.run(UpdateOptions(run_id="nightly-1"))
    calls = list(toy.calls)
    again, events = await toy.run(UpdateOptions(run_id="nightly-1"))
    assert toy.calls == calls
    assert again.outcome == first.outcome == "success"
    assert events[0].kind == "already_reported"
    assert len(toy.receipts()) == 1


async def test_an_abandoned_run_is_closed_as_interrupted_and_named(toy: Toy) -> None:
    await toy.run()
    (path,) = (toy.home / "logs/update_receipts").glob("update_*.json")
    record = json.loads(path.read_text())
    record.update(outcome="running", finished_at=None, stage="prepare", pid=2**22 - 7, pid_create_time=1.0)
    record.pop("writer_pid", None)
    path.write_text(json.dumps(record))
    finished, events = await Toy(toy.home, changed=False).run()
    assert finished.exit_code == 0
    found = [event for event in events if event.kind == "interrupted_found"]
    assert len(found) == 1
    assert "prepare" in found[0].copy_terminal
    closed = json.loads(path.read_text())
    assert closed["outcome"] == "interrupted"
    assert "prepare" in closed["stop_reason"]
    assert closed["interrupted_detected_at"]


async def test_closing_the_stream_closes_the_receipt_and_frees_the_lock(toy: Toy) -> None:
    stream = toy.stream()
    async for event in stream:
        if event.kind == "snapshot_taken":
            break
    await stream.aclose()
    receipt = toy.latest()
    assert (receipt["outcome"], receipt["exit_code"]) == ("interrupted", 130)
    assert "nothing was changed" in receipt["stop_reason"]
    lock = UpdateLock(toy.home, toy.paths.folder / ".nedura-update.lock", NEDURA, os.environ)
    lock.acquire(0.0)
    lock.release()


async def test_strict_makes_owed_work_exit_3(toy: Toy) -> None:
    toy.child = GOOD_CHILD + (
        "tell(kind='follow_up', step='build', reason='no compiler')\n"
        "close(followups=[{'step': 'build', 'reason': 'no compiler', 'at': ''}])\n"
    )
    finished, _ = await toy.run(UpdateOptions(strict=True))
    assert (finished.outcome, finished.exit_code, finished.followups) == ("success", 3, ("build",))
    assert toy.latest()["exit_code"] == 3


async def test_owed_work_alone_is_exit_0(toy: Toy) -> None:
    toy.child = GOOD_CHILD + "close(followups=[{'step': 'build', 'reason': 'no compiler', 'at': ''}])\n"
    finished, _ = await toy.run()
    assert (finished.outcome, finished.exit_code, finished.followups) == ("success", 0, ("build",))


async def test_the_first_member_that_fails_takes_the_pointer_back(toy: Toy) -> None:
    toy.fleet.runtimes = (gateway("default", toy.home, 11),)
    toy.child = GOOD_CHILD + (
        "json.dump({'schema': 1, 'update_id': request['update_id'], 'nonce': request['nonce'], 'exit_code': 1,\n"
        "           'receipt': None, 'first_member': 'version', 'member': {'profile': 'default'}}, open(result_path, 'w'))\n"
        "sys.exit(1)\n"
    )
    from tests.kits.pipeline import NEW

    toy.fleet.runtimes = (gateway("default", toy.home, 12, NEW),)
    finished, events = await toy.run()
    assert (finished.outcome, finished.exit_code) == ("failed", 1)
    assert finished.stop_reason == "first_member:version"
    assert toy.current == "000001"
    assert toy.fleet.restarted == ["default"]
    assert toy.failed == ["version"]
    assert not toy.tail_armed
    assert not toy.debt_armed
    assert [event.kind for event in events][-2:] == ["taken_back", "update_finished"]
    assert toy.latest()["post_update"]["generation"] == "000001"


async def test_a_receipt_that_could_not_be_written_is_not_named(toy: Toy) -> None:
    (toy.home / "logs").mkdir()
    (toy.home / "logs/update_receipts").write_text("no folder")
    finished, _ = await toy.run()
    assert (finished.outcome, finished.exit_code, finished.receipt) == ("failed", 1, "")
    assert toy.current == "000001"


@pytest.mark.parametrize(
    ("reason", "changed", "line"),
    [
        (
            "interrupted before the commit point; nothing was changed",
            False,
            "✗ Interrupted before the commit point; nothing was changed.",
        ),
        (
            "interrupted after the commit point",
            True,
            "✗ Interrupted after the commit point. The next update finishes what is owed.",
        ),
        ("", False, "✗ Interrupted. The next update finishes what is owed."),
    ],
)
def test_an_interruption_is_told_in_one_sentence(reason: str, changed: bool, line: str) -> None:
    event = UpdateFinished(
        run_id="r", outcome="interrupted", exit_code=130, stop_reason=reason, changed=changed
    )
    assert event.copy_terminal == line
