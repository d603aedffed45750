"""A run ends by its deadline, whatever a stage does (decision 35): every step of a stage is waited for only as long as the run has."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from typing import Any, Final

from nedura.errors import UpdateError
from nedura.update.run import Run
from nedura.wire import Event

__all__ = ["DEFAULT_DEADLINE", "GRACE", "OutOfTime", "limit_of", "to_the_end", "within"]

DEFAULT_DEADLINE: Final = 2 * 3600.0
"""Seconds a run may take when neither its options nor its plan say so."""
GRACE: Final = 2.0
"""Seconds that a cancelled stage has to tidy up."""
CHILD_SLACK: Final = 2.0
"""Seconds that the completion has beyond the deadline: its child was given the same one, and its own words are more exact."""
COMMIT_RESERVE: Final = (30.0, 0.1)
"""A commit begins only with so many seconds, or that share of the whole time, still left."""
_END: Final = object()


class OutOfTime(UpdateError):
    """Raised when the run's time is up in a stage."""

    def __init__(self, stage: str, limit: float) -> None:
        tail = "" if stage in ("commit", "completion") else "; nothing was changed"
        super().__init__(
            f"The run's deadline of {limit:g} s passed in {stage}{tail}.",
            stop_class="deadline",
            advice="Try again, or allow more: --deadline SECONDS",
        )


def limit_of(run: Run) -> float:
    """Seconds that a run may take in all: the caller's, else the plan's."""
    return run.options.deadline or (run.plan.deadline_s if run.plan is not None else 0) or DEFAULT_DEADLINE


def left_of(run: Run, stage: str) -> float:
    """Seconds that a stage of a run still has."""
    left = run.started_at + limit_of(run) - run.clock.time()
    return left + CHILD_SLACK if stage == "completion" else left


async def within(run: Run, stage: str, events: AsyncGenerator[Event, None]) -> AsyncGenerator[Event, None]:
    """A stage's events, for as long as the run has time; then the stage is cancelled and has `GRACE` seconds.

    A commit is never left behind half-way: it does not begin late, and once cancelled its end is waited for.

    Args:
        run: the run.
        stage: the stage's name.
        events: the stage; closed when this one is.

    Raises:
        OutOfTime: the time is up.
    """
    try:
        limit = limit_of(run)
        if stage == "commit" and left_of(run, stage) < min(COMMIT_RESERVE[0], COMMIT_RESERVE[1] * limit):
            raise OutOfTime("validate", limit)
        while True:
            event = await _next(run, stage, events)
            if event is None:
                return
            yield event
    finally:
        if not getattr(events, "ag_running", False):  # one that ignores its cancellation is left behind
            await events.aclose()


async def _next(run: Run, stage: str, events: AsyncGenerator[Event, None]) -> Event | None:
    """The next event, None at the end."""
    step = asyncio.ensure_future(_step(events))
    try:
        await asyncio.wait({step}, timeout=max(0.0, left_of(run, stage)))
    except asyncio.CancelledError:
        step.cancel()
        await _settled(step)
        raise
    if not step.done():
        step.cancel()
        await asyncio.wait({step}, timeout=None if stage == "commit" else GRACE)
        if step.done() and not step.cancelled():
            step.exception()  # seen; that the time is up is what counts
        raise OutOfTime(stage, limit_of(run))
    found = step.result()
    return found if found is not _END else None  # type: ignore[return-value]


async def _settled(task: asyncio.Future[Any]) -> None:
    """Wait for the end of a task, however often we are told to stop meanwhile."""
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            continue  # the caller is being cancelled already


async def to_the_end(work: Coroutine[Any, Any, None]) -> None:
    """Finish what must not be left half done, e.g. the end of a child; a cancellation goes on afterwards.

    Raises:
        asyncio.CancelledError: we were cancelled meanwhile.
    """
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await _settled(task)
        raise


async def _step(events: AsyncGenerator[Event, None]) -> object:
    return await anext(events, _END)
