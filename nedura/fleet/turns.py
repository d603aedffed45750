"""Units of work in flight, so that a drain knows what it waits for."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any, Literal

import attrs

from nedura.errors import FleetError

__all__ = ["Draining", "Turn", "TurnKind", "Turns"]

TurnKind = Literal["chat", "cron", "api", "deferred"]


class Draining(FleetError):
    """Raised when a unit of work is refused because the process is about to restart or stop."""

    code = "draining"

    def __init__(self) -> None:
        super().__init__(
            "This gateway is about to restart and takes no new work.", advice="Try again in a moment."
        )


@attrs.define(eq=False)
class Turn:
    """One unit of work.

    Attributes:
        number: running number in this process.
        kind: what it is.
        session: whose, for people.
        model: what answers it.
        tool: what it does right now.
        started: monotonic seconds.
        active_at: monotonic seconds of its last sign of life.
        task: the task that runs it; cancelled when the drain's budget ends.
    """

    number: int
    kind: TurnKind
    session: str
    model: str
    started: float
    active_at: float
    task: asyncio.Task[Any] | None
    tool: str = ""
    _now: Callable[[], float] = attrs.field(kw_only=True, repr=False)

    def touch(self, tool: str | None = None) -> None:
        """Show a sign of life, and what it does now."""
        self.active_at = self._now()
        if tool is not None:
            self.tool = tool

    def public(self, now: float, wedged_after: float) -> dict[str, Any]:
        """Its entry of `active_work` (facts/runtime.md 2.2)."""
        return {
            "kind": self.kind,
            "session": self.session,
            "elapsed_s": round(now - self.started, 1),
            "idle_s": round(now - self.active_at, 1),
            "model": self.model,
            "current_tool": self.tool,
            "wedged": now - self.active_at > wedged_after,
        }


class Turns:
    """The turns of one process.

    Args:
        now: monotonic seconds.
        changed: called after each change.
    """

    def __init__(self, now: Callable[[], float], changed: Callable[[], None]) -> None:
        self._now = now
        self._changed = changed
        self._numbers = itertools.count(1)
        self._open: dict[int, Turn] = {}
        self.refusing = False

    def __len__(self) -> int:
        return len(self._open)

    def enter(self, kind: TurnKind, session: str, model: str) -> Turn:
        """Begin a unit of work.

        Raises:
            Draining: no new work is taken.
        """
        if self.refusing:
            raise Draining
        now = self._now()
        turn = Turn(
            next(self._numbers), kind, session, model, now, now, asyncio.current_task(), now=self._now
        )
        self._open[turn.number] = turn
        self._changed()
        return turn

    def leave(self, turn: Turn) -> None:
        """End a unit of work."""
        if self._open.pop(turn.number, None) is not None:
            self._changed()

    def waited_for(self, wedged_after: float, only: TurnKind | None = None) -> int:
        """How many turns a drain waits for: those with a sign of life in the last `wedged_after` seconds."""
        now = self._now()
        return sum(
            now - turn.active_at <= wedged_after and only in (None, turn.kind) for turn in self._open.values()
        )

    def public(self, wedged_after: float) -> list[dict[str, Any]]:
        """`active_work` of the state file. Safe to call from another thread."""
        now = self._now()
        return [turn.public(now, wedged_after) for turn in tuple(self._open.values())]

    def interrupt(self) -> int:
        """Cancel what still runs; returns how many."""
        tasks = {turn.task for turn in self._open.values() if turn.task is not None}
        for task in tasks:
            task.cancel("the gateway stops and the time for running work is over")
        return len(tasks)
