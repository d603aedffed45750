"""Builds and maintenance of the completion: which steps there are, in order, and what follow-up each one leaves."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import TYPE_CHECKING

from nedura.homes import DEFAULT_PROFILE, home_for_profile
from nedura.update.completion.completion_parts import Steps
from nedura.update.events import StepDone
from nedura.update.generation.aftermath import after_commit
from nedura.update.generation.launcher import write_launcher
from nedura.update.state.nets import run_nets
from nedura.wire import Event

if TYPE_CHECKING:
    from nedura.update.completion.second_half import Completion

__all__ = ["aftermath", "upkeep"]


def upkeep(completion: Completion) -> Steps:
    """The stages between the first member and the rest of the fleet."""
    return [
        (
            "maintenance",
            [
                ("launchers", _launchers(completion)),
                ("maintenance", _nets(completion)),
            ],
        )
    ]


async def _launchers(completion: Completion) -> AsyncGenerator[Event, None]:
    """Publish the launcher of this version."""
    if completion.request.layout != "sealed":
        return
    write_launcher(completion.paths, completion.product)
    yield StepDone(name="launchers")


async def _nets(completion: Completion) -> AsyncGenerator[Event, None]:
    """Put back what an update lost, per profile, from that profile's own snapshot of this run."""
    root = Path(completion.request.root_home)
    names = dict.fromkeys([DEFAULT_PROFILE, *completion.request.snapshots])
    homes = [(name, home_for_profile(root, name)) for name in names]
    events = run_nets(homes, completion.request.snapshots, clock=completion.clock)
    try:
        async for event in events:
            yield event
    finally:
        await events.aclose()


async def aftermath(completion: Completion) -> AsyncGenerator[Event, None]:
    """The owner's checkout follows where that touches no edit, and generations that nobody needs go."""
    if completion.request.layout != "sealed":
        return
    events = after_commit(completion.paths, completion.clock, completion.environ)
    try:
        async for event in events:
            yield event
    finally:
        await events.aclose()
