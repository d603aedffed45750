"""Steps after the commit point: each one isolated, each failure a follow-up, never the end of the update (the spec's Verify)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Mapping
from typing import Any, Final

from nedura.errors import NeduraError
from nedura.text import one_line
from nedura.update.events import FollowUp
from nedura.wire import Event

__all__ = ["TAIL_STEPS", "ending", "guarded", "tail_owed"]

TAIL_STEPS: Final = frozenset(
    {
        "dependencies", "launchers", "build", "bytecode", "maintenance", "profile_sync", "config_migration",
        "completion", "channel", "windows_resume",
    }
)  # fmt: skip
"""Follow-ups that keep the tail obligation armed; `gateway_restart` keeps the restart record instead."""


def why(error: BaseException) -> str:
    """An error as a follow-up's reason: our own message, else the type and a cleaned text."""
    if isinstance(error, NeduraError):
        return one_line(error.diagnostics())
    return one_line(f"{type(error).__name__}: {error}")


async def guarded(step: str, source: AsyncGenerator[Event, None]) -> AsyncGenerator[Event, None]:
    """Yield a step's events; a failure becomes that step's follow-up."""
    failure: Event | None = None
    try:
        async for event in source:
            yield event
    except Exception as error:  # border: after the commit point nothing fails the update
        failure = FollowUp(step=step, reason=why(error))
    finally:
        await source.aclose()
    if failure is not None:
        yield failure


def tail_owed(followups: Collection[str]) -> bool:
    """Whether any of these follow-ups belongs to the tail."""
    return bool(TAIL_STEPS.intersection(followups))


def ending(
    *, followups: Collection[str], user_action: bool, strict: bool = False, interrupted: bool = False
) -> Mapping[str, Any]:
    """Outcome and exit code of a run whose code is committed (facts/update.md 1.5, decision 36).

    Args:
        followups: steps that stay owed.
        user_action: something waits for the user: the one committed run that exits 1.
        strict: exit 3 for owed work.
        interrupted: Ctrl-C after the commit point.
    """
    if interrupted:
        return {"outcome": "interrupted", "exit_code": 130}
    if user_action:
        return {"outcome": "partial", "exit_code": 1}
    return {"outcome": "success", "exit_code": 3 if strict and followups else 0}
