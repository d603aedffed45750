"""A clock that tests move."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from typing import Final

__all__ = ["FakeClock"]

START: Final = 1_800_000_000.0


class FakeClock:
    """Time that stands still until somebody sleeps or moves it.

    Args:
        now: unix seconds at the start.
        autojump: True: a sleep moves the clock and returns after the other tasks have had their turn, earliest sleeper first.
            False: sleepers wait until `advance` passes their time.
    """

    def __init__(self, now: float = START, *, autojump: bool = True) -> None:
        self._time = now
        self._monotonic = 1000.0
        self.autojump = autojump
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._numbers = itertools.count()
        self._pump: asyncio.Task[None] | None = None
        self.slept: list[float] = []
        """Every sleep that was asked for, in seconds."""

    @property
    def sleepers(self) -> int:
        """How many sleeps are under way."""
        return sum(not done.done() for _, _, done in self._sleepers)

    def time(self) -> float:
        """Unix seconds."""
        return self._time

    def monotonic(self) -> float:
        """Monotonic seconds."""
        return self._monotonic

    async def sleep(self, seconds: float) -> None:
        """Wait on this clock."""
        self.slept.append(seconds)
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._monotonic + seconds, next(self._numbers), done))
        if self.autojump and (self._pump is None or self._pump.done()):
            self._pump = asyncio.create_task(self._jump())
        await done

    def advance(self, seconds: float) -> None:
        """Let time pass and wake who is due."""
        self._monotonic += seconds
        self._time += seconds
        self._wake()

    def suspend(self, seconds: float) -> None:
        """Put the machine to sleep: the wall clock goes on, the monotonic one stands still."""
        self._time += seconds

    def set_wall(self, now: float) -> None:
        """Change the wall clock alone, as a person or NTP does."""
        self._time = now

    def _wake(self) -> None:
        while self._sleepers and (self._sleepers[0][0] <= self._monotonic or self._sleepers[0][2].done()):
            _wake_up(heapq.heappop(self._sleepers)[2])

    async def _jump(self) -> None:
        while self._sleepers:
            for _ in range(5):  # other tasks first: a jump must not overtake work that is ready
                await asyncio.sleep(0)
            self._wake()
            if self._sleepers:
                step = self._sleepers[0][0] - self._monotonic
                if step > 0:
                    self.advance(step)


def _wake_up(done: asyncio.Future[None]) -> None:
    """End a sleep, also one of a loop in another thread."""

    def finish() -> None:
        if not done.done():
            done.set_result(None)

    loop = done.get_loop()
    if loop is asyncio._get_running_loop():
        finish()
    elif not loop.is_closed():
        loop.call_soon_threadsafe(finish)
