"""Writes of one run to its hand-off records: those that wait while one is under way share the next one, and its two syncs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, TypeAlias

from nedura.signin.handoff_record import HandoffStore
from nedura.signin.handoff_rules import Record

__all__ = ["Decide", "GroupCommit"]

GATHER_SECONDS: Final = 0.002
"""How long a write waits for company: answers that come together are then written together."""

Decide: TypeAlias = Callable[[tuple[Record, ...]], tuple[Record, ...]]
"""What a write does to the records; it may be asked only once, under the lock."""


class GroupCommit:
    """One writer at a time for many tasks of one event loop.

    Args:
        store: the records.
    """

    def __init__(self, store: HandoffStore) -> None:
        self._store = store
        self._turn = asyncio.Lock()
        self._waiting: list[tuple[Decide, asyncio.Future[None]]] = []

    async def write(self, decide: Decide) -> None:
        """Apply a decision, durably.

        Raises:
            LockTimeout, StoreError: nothing was written.
        """
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((decide, written))
        async with self._turn:
            if not written.done():
                await asyncio.sleep(GATHER_SECONDS)
                await self._flush()
        await written

    async def _flush(self) -> None:
        batch, self._waiting = self._waiting, []

        def decide(records: tuple[Record, ...]) -> tuple[Record, ...]:
            for one, _ in batch:
                records = one(records)
            return records

        try:
            await asyncio.to_thread(self._store.change, decide)
        except Exception as error:  # everybody whose decision was in it must hear
            for _, written in batch:
                written.set_exception(error)
        except asyncio.CancelledError:
            for _, written in batch:
                written.cancel()
            raise
        else:
            for _, written in batch:
                written.set_result(None)
