"""How many members of a roll are out of service at once."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

__all__ = ["Place", "Places"]


class Places:
    """The bound of a roll. A member that failed and stays down keeps its place; one place is always left, so that the roll goes on.

    Args:
        width: how many may be down at once, at least 1.
    """

    def __init__(self, width: int) -> None:
        self._left = max(1, width)
        self._free = asyncio.Semaphore(self._left)

    async def take(self) -> None:
        """Wait for a free place."""
        await self._free.acquire()

    def give_back(self) -> None:
        """Let the next member have it."""
        self._free.release()

    def lose(self) -> bool:
        """Give a taken place up for good; False when it is the last one."""
        if self._left == 1:
            return False
        self._left -= 1
        return True


class Place:
    """One member's place, held while it is down."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._kept = False

    def keep(self) -> None:
        """The member stays down: nobody else gets its place."""
        self._kept = self._places.lose()

    async def __aenter__(self) -> Self:
        """Wait for it."""
        await self._places.take()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give it back, unless it is kept."""
        if not self._kept:
            self._places.give_back()
