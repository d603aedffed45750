"""The old half has the last word: what it owes or left to the user is in the receipt and in the exit code, whatever the child says."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from nedura.update import Run, UpdateOptions
from nedura.update.events import FollowUp, UserAction
from nedura.wire import Event
from tests.kits.pipeline import GOOD_CHILD, Toy

FORGETS = GOOD_CHILD + "close(followups=[], user_action=None)\n"
FORGETS_AND_DIES = (
    GOOD_CHILD
    + """
receipt = close(followups=[], user_action=None)
json.dump(receipt, open(request["receipt_path"], "w"))
os.remove(result_path)
"""
)
LIES = (
    GOOD_CHILD
    + """
tell(kind="user_action", step="local_changes", reason="a.py")
close(user_action={"step": "local_changes", "reason": "a.py"})
"""
)


async def run(tmp_path: Path, child: str, *said: Event, strict: bool = False) -> tuple[Toy, int]:
    toy = Toy(tmp_path / "home", child=child)

    async def commit(one: Run) -> AsyncGenerator[Event, None]:
        async for event in toy.commit(one):
            yield event
        for event in said:
            yield event

    finished, _ = await toy.run(UpdateOptions(strict=strict), commit=commit)
    latest = toy.latest()
    assert latest["outcome"] == finished.outcome
    return toy, finished.exit_code


@pytest.mark.parametrize("child", [FORGETS, FORGETS_AND_DIES])
async def test_a_follow_up_of_the_old_half_is_never_dropped(tmp_path: Path, child: str) -> None:
    toy, code = await run(tmp_path, child, FollowUp(step="build", reason="no compiler"), strict=True)
    assert [row["step"] for row in toy.latest()["followups"]] == ["build"]
    assert code == 3


@pytest.mark.parametrize("child", [FORGETS, FORGETS_AND_DIES])
async def test_what_waits_for_the_user_is_never_dropped(tmp_path: Path, child: str) -> None:
    toy, code = await run(tmp_path, child, UserAction(step="local_changes", reason="a.py"))
    assert toy.latest()["user_action"]["step"] == "local_changes"
    assert (toy.latest()["outcome"], toy.latest()["exit_code"], code) == ("partial", 1, 1)


async def test_a_child_that_calls_parked_edits_a_success_is_not_believed_in_that(tmp_path: Path) -> None:
    toy, code = await run(tmp_path, LIES)
    assert (toy.latest()["outcome"], code) == ("partial", 1)


async def test_strict_holds_for_a_run_that_is_only_reported_again(tmp_path: Path) -> None:
    toy = Toy(tmp_path / "home", child="raise SystemExit(1)\n")
    first, _ = await toy.run(UpdateOptions(run_id="nightly"))
    again, _ = await toy.run(UpdateOptions(run_id="nightly", strict=True))
    assert (first.exit_code, again.exit_code) == (0, 3)
