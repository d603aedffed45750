"""The watches over members that serve again, told of in one line: they run side by side and end about together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from nedura.clock import Clock
from nedura.fanin import Report
from nedura.fleet.restart_events import RestartEvent, SettleWaiting

__all__ = ["Watching"]


class Watching:
    """Who of a roll is still watched.

    Args:
        clock: time.
        tick: seconds between two progress lines.
        members: how many members the roll restarts.
    """

    def __init__(self, clock: Clock, tick: float, members: int) -> None:
        self._clock, self._tick = clock, tick
        self._left = members
        self._ends: dict[str, float] = {}

    @contextmanager
    def over(self, name: str, seconds: float) -> Iterator[None]:
        """One member is watched inside."""
        self._ends[name] = self._clock.monotonic() + seconds
        try:
            yield
        finally:
            self._ends.pop(name, None)

    def finished(self) -> None:
        """One member of the roll is done, well or not."""
        self._left -= 1

    async def tell(self, report: Report[RestartEvent]) -> None:
        """Report what is left to watch once nothing else is waited for: soon, then now and then; until cancelled."""
        step = self._tick
        while True:
            await self._clock.sleep(step)
            if self._ends and len(self._ends) == self._left:
                step = 5 * self._tick
                left = max(self._ends.values()) - self._clock.monotonic()
                report(
                    SettleWaiting(
                        waiting_for=tuple(sorted(self._ends)), seconds_left=round(max(0.0, left), 1)
                    )
                )
