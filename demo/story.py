"""The seven steps, each verified before it is called done."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from demo.errors import DemoError
from demo.events import DemoFinished, DemoStep
from demo.scenes import SCENES, Story
from demo.steps import STEPS
from demo.world import World
from nedura.errors import NeduraError
from nedura.wire import Event

__all__ = ["run_demo"]

Scene = Callable[[Story], Awaitable[str]]


async def run_demo(
    checkout: Path, tell: Callable[[Event], None], *, keep: bool, debug: bool = False
) -> DemoFinished:
    """Run the demo to its end; whatever happens, nothing of it is left behind.

    Args:
        checkout: the tree to install from.
        tell: gets every event, the last one is `DemoFinished`.
        keep: leave the folder (never a process).
        debug: let an unexpected exception through after the clean-up.
    """
    start = time.monotonic()
    folder = _make_folder()
    story = Story(world=World(checkout=checkout, folder=folder, tell=tell))
    reason = "it was interrupted"
    try:
        reason = await _scenes(story, tell, debug)
    finally:
        left = await asyncio.shield(_clean_up(story.world, tell, keep))
        if left and not reason:
            reason = f"{', '.join(left)} could not be cleaned up"
        finished = DemoFinished(
            ok=not reason,
            reason=reason,
            folder=str(folder),
            kept=keep,
            receipt=story.receipt,
            matrix=story.matrix,
            downtimes=story.downtimes,
            seconds=round(time.monotonic() - start, 2),
        )
        tell(finished)
    return finished


def _make_folder() -> Path:
    """The demo's own folder.

    Raises:
        DemoError: there is no place for it.
    """
    try:
        return Path(os.path.realpath(tempfile.mkdtemp(prefix="nedura-demo-")))
    except OSError as error:
        raise DemoError(
            f"No temporary folder can be made: {error.strerror}.", advice="Set TMPDIR."
        ) from error


async def _scenes(story: Story, tell: Callable[[Event], None], debug: bool) -> str:
    """Play every step; the reason of the first that did not hold, or nothing."""
    for number, scene in enumerate(SCENES, 1):
        start = time.monotonic()
        tell(DemoStep(number=number, title=STEPS[number - 1], state="started"))
        try:
            detail, reason = await scene(story), ""
        except (NeduraError, OSError) as error:
            if debug and not isinstance(error, DemoError):
                raise
            detail = reason = getattr(error, "message", "") or str(error)
        seconds = time.monotonic() - start
        title = STEPS[number - 1]
        tell(
            DemoStep(
                number=number,
                title=title,
                state="failed" if reason else "done",
                detail=detail,
                seconds=seconds,
            )
        )
        if reason:
            return reason
    return ""


async def _clean_up(world: World, tell: Callable[[Event], None], keep: bool) -> list[str]:
    """End everything; from here on a second Ctrl-C is not heard, so that nothing is left behind."""
    for interrupt in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(interrupt, signal.SIG_IGN)
    number, start = len(STEPS), time.monotonic()
    tell(DemoStep(number=number, title=STEPS[-1], state="started"))
    left = await world.end(keep=keep)
    tell(
        DemoStep(
            number=number,
            title=STEPS[-1],
            state="failed" if left else "done",
            detail=", ".join(left)
            or ("every process ended, folder kept" if keep else "every process ended, folder removed"),
            seconds=time.monotonic() - start,
        )
    )
    return left
