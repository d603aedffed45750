"""Sending a profile's due hand-off records, a few at a time: the books are written beside the requests, never between them.

Each attempt is counted and leased on disk before its request leaves. While some requests are under way the next few records are
leased already, so that a place that gets free is filled at once; what was leased and never left is given back.
"""

from __future__ import annotations

import asyncio
import functools
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeAlias

import attrs

from nedura.clock import Clock
from nedura.errors import NeduraError
from nedura.signin.background import in_thread
from nedura.signin.handoff_record import HandoffStore
from nedura.signin.handoff_rules import Record, Reply, is_due, lease, prolonged, returned, settle

__all__ = ["AT_ONCE", "Ask", "Sending"]

AT_ONCE: Final = 5
"""Requests under way at a time for one profile."""

AHEAD: Final = 5
"""Records leased beside them, ready to leave."""

FRESH: Final = 5.0
"""Seconds for which a lease that waited is still good: with the request's own deadline (20 s) it must end inside the lease (30 s)."""

GATHER_SECONDS: Final = 0.005
"""How long a write waits for company: answers that come together are written together."""

CLOSE_TIMEOUT: Final = 1.0
"""Seconds to wait for the leaf lock when the time is up."""

Ask: TypeAlias = Callable[[Record], Awaitable[Reply]]
"""Sends one record and gives the answer, or the lack of one; raises nothing but bugs."""


@attrs.define(kw_only=True, eq=False)
class _Held:
    """A record that this run leased and has not settled on disk."""

    before: Record
    leased: Record
    since: float = 0.0
    left: bool = False
    reply: Reply | None = None


@attrs.define(kw_only=True)
class Sending:
    """One run over the due records of a profile.

    Attributes:
        store: the records.
        clock: time.
        may_send: whether a record may be sent at all; asked in a thread, under the leaf lock.
        settled: what was settled on disk, in order.
    """

    store: HandoffStore
    clock: Clock
    may_send: Callable[[Record], bool]
    settled: list[Record] = attrs.field(factory=list)
    _held: dict[str, _Held] = attrs.field(factory=dict)
    _ready: deque[_Held] = attrs.field(factory=deque)
    _tried: set[str] = attrs.field(factory=set)
    _flying: set[asyncio.Task[None]] = attrs.field(factory=set)
    _wake: asyncio.Event = attrs.field(factory=asyncio.Event)
    _problem: BaseException | None = None
    _ended: bool = False

    async def run(self, ask: Ask) -> None:
        """Send until none is due.

        Raises:
            LockTimeout, StoreError: the records could not be written; every request that had left was waited for.
        """
        try:
            await self._write()
            self._fill(ask)
            while self._held and self._problem is None:
                await self._wake.wait()
                self._wake.clear()
                if self._flying:
                    await asyncio.wait(tuple(self._flying), timeout=GATHER_SECONDS)
                await self._write()
                self._fill(ask)
        except NeduraError:
            await self._land()
            raise
        finally:
            self._ended = True
            for task in tuple(self._flying):
                task.cancel()
            await self._land()
        if self._problem is not None:
            raise self._problem

    async def _land(self) -> None:
        """Nothing more leaves; what is under way is waited for."""
        self._ended = True
        if self._flying:
            await asyncio.wait(tuple(self._flying))

    def _fill(self, ask: Ask) -> None:
        """Let what is leased leave, as far as there is place; a lease that waited for long is renewed on disk first."""
        while self._ready and len(self._flying) < AT_ONCE and not self._ended:
            if self._stale(self._ready[0]):
                self._wake.set()
                return
            held = self._ready.popleft()
            held.left = True
            task = asyncio.create_task(self._one(ask, held))
            self._flying.add(task)
            task.add_done_callback(functools.partial(self._landed, ask))

    def _stale(self, held: _Held) -> bool:
        return self.clock.monotonic() - held.since > FRESH

    async def _one(self, ask: Ask, held: _Held) -> None:
        held.reply = await ask(held.leased) if held.leased.open else Reply()

    def _landed(self, ask: Ask, task: asyncio.Task[None]) -> None:
        self._flying.discard(task)
        if not task.cancelled():
            self._problem = self._problem or task.exception()
            self._ended |= self._problem is not None
        self._wake.set()
        self._fill(ask)

    async def _write(self) -> None:
        """Settle what was answered, renew what waited, lease what comes next: one locked write. Nothing is written when nothing is new."""
        answered = [held for held in self._held.values() if held.reply is not None]
        waited = [held for held in self._ready if self._stale(held)]
        wanted = AT_ONCE + AHEAD - len(self._flying) - len(self._ready)
        settled: list[Record] = []
        taken: list[_Held] = []
        since = self.clock.monotonic()

        def decide(records: tuple[Record, ...]) -> tuple[Record, ...]:
            now = self.clock.time()
            settled[:] = [
                settle(records, held.leased, held.reply, now) for held in answered if held.reply is not None
            ]
            records = _with(records, settled)
            records = _with(records, (prolonged(records, held.leased, now) for held in waited))
            due = [one for one in records if one.id not in self._tried and is_due(one, now)]
            for record in [one for one in due if self.may_send(one)][: 0 if self._ended else max(0, wanted)]:
                held = _Held(before=record, leased=lease(record, now))
                self._held[record.id] = held
                taken.append(held)
            return _with(records, (held.leased for held in taken))

        try:
            await in_thread(functools.partial(self.store.change, decide))
        except NeduraError:
            for held in taken:  # not on disk: they never count
                self._held.pop(held.leased.id, None)
            raise
        for record in settled:
            self._held.pop(record.id, None)
        self.settled += settled
        for held in (*waited, *taken):
            held.since = since
        self._tried.update(held.leased.id for held in taken)
        self._ready += taken

    def close(self) -> None:
        """Settle what left, as unanswered where nothing came, and give back what never left. Blocks for a short while.

        The schedule counts a request that was cut off too.

        Raises:
            LockTimeout, StoreError: the leases stand, as after a crash.
        """
        self._ended = True
        if not self._held:
            return
        settled: list[Record] = []

        def decide(records: tuple[Record, ...]) -> tuple[Record, ...]:
            now = self.clock.time()
            held = tuple(self._held.values())
            settled[:] = [
                settle(records, one.leased, one.reply or Reply(code="no_answer"), now)
                for one in held
                if one.left
            ]
            kept = (returned(records, one.leased, one.before, now) for one in held if not one.left)
            return _with(_with(records, settled), kept)

        self.store.change(decide, timeout=CLOSE_TIMEOUT)
        self._held.clear()
        self.settled += settled


def _with(records: tuple[Record, ...], changed: Iterable[Record]) -> tuple[Record, ...]:
    by_id = {record.id: record for record in changed}
    return tuple(by_id.get(record.id, record) for record in records)
