"""The whole run's deadline: a stage that hangs, in whatever way, ends the run at most five seconds later with the truth (decision 35)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from nedura.errors import UsageError
from nedura.update import Run, UpdateOptions
from nedura.update.events import UpdateFinished
from nedura.wire import Event
from tests.kits.pipeline import GOOD_CHILD, NEW, Toy, gone

LIMIT = 1.0
LATE = 5.0


async def hang(run: Run) -> None:
    await asyncio.sleep(600)


async def hang_stubbornly(run: Run) -> None:
    """Ignores its cancellation for longer than anybody waits."""
    end = time.monotonic() + 9
    while time.monotonic() < end:
        try:
            await asyncio.sleep(end - time.monotonic())
        except asyncio.CancelledError:
            continue


async def timed(toy: Toy, **more: Any) -> tuple[UpdateFinished, float]:
    began = time.monotonic()
    finished, _ = await toy.run(UpdateOptions(deadline=LIMIT), **more)
    return finished, time.monotonic() - began


@pytest.fixture
def toy(tmp_path: Path) -> Toy:
    return Toy(tmp_path / "home")


@pytest.mark.parametrize("stage", ["plan", "snapshot", "prepare", "validate", "commit"])
async def test_a_hanging_stage_ends_the_run_before_anything_moved(toy: Toy, stage: str) -> None:
    toy.hooks[stage] = hang
    finished, took = await timed(toy)
    assert LIMIT <= took < LIMIT + LATE
    assert (finished.outcome, finished.exit_code, finished.stop_class) == ("failed", 1, "deadline")
    assert f"deadline of 1 s passed in {stage}" in finished.stop_reason
    assert (toy.current, toy.tail_armed, toy.debt_armed) == ("000001", False, False)
    receipt = toy.latest()
    assert (receipt["outcome"], receipt["stages"][-1]["name"]) == ("failed", stage)


async def test_a_stage_that_ignores_its_cancellation_is_left_behind(toy: Toy) -> None:
    toy.hooks["prepare"] = hang_stubbornly
    finished, took = await timed(toy)
    assert LIMIT <= took < LIMIT + LATE
    assert (finished.outcome, finished.stop_class, toy.current) == ("failed", "deadline", "000001")
    again, _ = await Toy(toy.home).run()
    assert again.outcome == "success", "its lock is free"


async def test_a_move_that_was_whole_is_committed_and_its_completion_owed(toy: Toy) -> None:
    async def commit(run: Run) -> AsyncGenerator[Event, None]:
        async for event in toy.commit(run):
            await asyncio.sleep(600)
            yield event

    finished, took = await timed(toy, commit=commit)
    assert LIMIT <= took < LIMIT + LATE
    assert (finished.outcome, finished.exit_code, finished.changed) == ("success", 0, True)
    assert finished.followups == ("completion",)
    assert (toy.current, toy.tail_armed) == ("000002", True)
    receipt = toy.latest()
    assert "deadline" in receipt["followups"][0]["reason"]
    assert receipt["post_update"]["sha"] == NEW.code_sha


async def test_a_hanging_child_is_ended_and_owed(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    child = (
        f"{GOOD_CHILD}\nimport time\nopen({str(pid_file)!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)\n"
    )
    toy = Toy(tmp_path / "home", child=child)
    finished, took = await timed(toy)
    assert LIMIT <= took < LIMIT + LATE
    assert (finished.outcome, finished.exit_code, finished.followups) == ("success", 0, ("completion",))
    assert not pid_file.exists() or gone(int(pid_file.read_text()))


async def test_a_commit_does_not_begin_when_the_time_is_nearly_up(toy: Toy) -> None:
    async def slow(run: Run) -> None:
        await asyncio.sleep(0.95)

    toy.hooks["validate"] = slow
    finished, _ = await timed(toy)
    assert (finished.outcome, finished.stop_class) == ("failed", "deadline")
    assert "commit" not in toy.calls
    assert toy.current == "000001"


async def test_the_plans_deadline_counts_without_an_option(toy: Toy) -> None:
    def short(run: Run) -> None:
        assert run.plan is not None
        run.plan = type(run.plan)(deadline_s=LIMIT)

    toy.hooks["snapshot"] = short
    toy.hooks["prepare"] = hang
    began = time.monotonic()
    finished, _ = await toy.run()
    assert time.monotonic() - began < LIMIT + LATE
    assert finished.stop_class == "deadline"


@pytest.mark.parametrize("options", [UpdateOptions(deadline=0.0), UpdateOptions(with_backup=True)])
async def test_options_that_cannot_be(toy: Toy, options: UpdateOptions) -> None:
    with pytest.raises(UsageError):
        await toy.run(options)
    assert not toy.calls
