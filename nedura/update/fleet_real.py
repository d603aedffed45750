"""The real fleet behind `FleetParts`: fleet's public functions, bound to one install."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from nedura.clock import Clock, SystemClock
from nedura.fleet import (
    Finality,
    Fleet,
    FleetMatrix,
    MatrixRow,
    MemberFailed,
    RestartParts,
    Runtime,
    VerifyWaiting,
    collect,
    complete,
    default_parts,
    judge,
    list_services,
    lock_holder,
    reconcile,
    restart_first,
    restart_rest,
    run_recovery,
    unsettled,
    with_failed,
)
from nedura.fleet.matrix import comes_back
from nedura.fleet.model import RuntimeKind
from nedura.homes import home_for_profile
from nedura.installs import CodeIdentity
from nedura.product import NEDURA, Product
from nedura.wire import Event

__all__ = ["RealFleet", "settle_limit"]

FIRST_STEP: Final = 0.1
LONG_STEP: Final = 2.0
FLOOR: Final = 120.0
"""Seconds that a verification waits at least (decision 51)."""
STICKY: Final = frozenset({"settle", "health"})
"""Checks of a member that serves: one that failed them is no success when something serves there again."""


def settle_limit(runtimes: Sequence[Runtime]) -> float:
    """Seconds until the last look counts: 120, or three times the slowest boot measured in this fleet (decision 51)."""
    return max(FLOOR, *(3 * (runtime.boot_s or 0.0) for runtime in runtimes), 0.0)


@attrs.define(kw_only=True)
class RealFleet:
    """The fleet of one install.

    Attributes:
        root_home: its root home.
        install_id: its id.
        product, environ, clock: seams.
        watched: whether those after the first member are watched, too, before they count.
        parts: what restarts work with; default the real ones.
    """

    root_home: Path
    install_id: str
    product: Product = NEDURA
    environ: Mapping[str, str] | None = None
    clock: Clock = attrs.field(factory=SystemClock)
    watched: bool = False
    parts: RestartParts | None = None
    _failed: dict[int, tuple[Runtime, str]] = attrs.field(factory=dict, init=False)

    async def collect(self) -> Fleet:
        """Everything of this install that is live, and every unit that is left alone: also one no scan of processes shows."""
        listing = await list_services(product=self.product, environ=self.environ)
        return await collect(
            self.root_home,
            product=self.product,
            install_id=self.install_id,
            services=listing.services,
            environ=self.environ,
        )

    def first(self, runtimes: Sequence[Runtime], expected: CodeIdentity) -> AsyncGenerator[Event, None]:
        """Restart one eligible member and watch it."""
        settle = self.product.settle_seconds
        return self._noted(
            runtimes, restart_first(runtimes, expected, parts=self._restart_parts(), settle=settle)
        )

    def rest(
        self, runtimes: Sequence[Runtime], expected: CodeIdentity, skip: Collection[int]
    ) -> AsyncGenerator[Event, None]:
        """Restart the others, each with its own failure."""
        parts = self._restart_parts()
        events = restart_rest(runtimes, expected, parts=parts, skip=skip, settle=self._settle)
        return self._noted(runtimes, events)

    @property
    def _settle(self) -> float:
        """Seconds that those after the first member are watched."""
        return self.product.settle_seconds if self.watched else 0.0

    def _restart_parts(self) -> RestartParts:
        # the same ones for the whole run: a supervisor knows what it armed
        if self.parts is None:
            self.parts = default_parts(product=self.product, environ=self.environ)
        return self.parts

    async def _noted(
        self, runtimes: Sequence[Runtime], events: AsyncGenerator[Event, None]
    ) -> AsyncGenerator[Event, None]:
        """A roll's events; whose restart failed, and at what, is remembered for the verdict."""
        known = {one.pid: one for one in runtimes}
        try:
            async for event in events:
                if isinstance(event, MemberFailed) and event.pid in known:
                    self._failed[event.pid] = (known[event.pid], event.check)
                yield event
        finally:
            await events.aclose()

    async def verify(
        self, before: Fleet, expected: CodeIdentity, restarted: Collection[str]
    ) -> AsyncGenerator[Event, None]:
        """Look until nobody is down or silent, nobody who is comes back any more, or the time is up; the last event is the matrix."""
        start, limit, step = self.clock.monotonic(), settle_limit(before.runtimes), FIRST_STEP
        returning = [one for one in before.gone if comes_back(one)]
        old = (*before.runtimes, *returning)
        wanted = bool(restarted or before.gateways or returning)
        finality = Finality(supervisors=self._restart_parts().supervisors, clock=self.clock)
        while True:
            fleet = await self.collect()
            rows = self._judged(expected, fleet, old)
            waiting = unsettled(rows) or (() if rows or not wanted else ("the fleet",))
            elapsed = self.clock.monotonic() - start
            if not waiting or elapsed >= limit or await finality.settled(_down(rows, old)):
                break
            if step >= LONG_STEP:
                yield VerifyWaiting(waiting_for=tuple(waiting), elapsed=elapsed, deadline=limit)
            await self.clock.sleep(step)
            step = min(LONG_STEP, step * 2)
        rows = with_failed(rows, [one for one, _ in self._failed.values()], self._unsteady())
        yield FleetMatrix(
            expected=expected,
            rows=rows,
            foreign=fleet.foreign,
            complete=complete(rows, expected_rows=wanted),
            waited=round(elapsed, 3),
            settled=not waiting,
        )

    def _judged(self, expected: CodeIdentity, fleet: Fleet, old: Sequence[Runtime]) -> tuple[MatrixRow, ...]:
        rows = judge(expected, fleet, before=old, pending=_ancestors(fleet))
        return with_failed(rows, (), self._unsteady())

    def _unsteady(self) -> frozenset[tuple[RuntimeKind, Path]]:
        return frozenset((one.kind, one.home) for one, check in self._failed.values() if check in STICKY)

    async def account(
        self, before: Fleet, failed: Mapping[int, str], deferred: Mapping[int, str]
    ) -> tuple[Mapping[str, Any], ...]:
        """What became of each runtime of before, as rows."""
        now = await self.collect()
        unsteady = [pid for pid, (_, check) in self._failed.items() if check in STICKY]
        found = reconcile(before.runtimes, now, failed=failed, deferred=deferred, unsteady=unsteady)
        return tuple(map(attrs.asdict, found))

    async def recover(self, runtimes: Sequence[Runtime], expected: CodeIdentity) -> tuple[bool, str]:
        """Try once more in a fresh process."""
        found = await run_recovery(runtimes, expected, settle=self._settle)
        return found.complete, f"{len(found.verified)} of {len(found.requested)} verified by a fresh process"

    async def idle(self, profiles: Collection[str]) -> frozenset[str]:
        """Profiles whose claim is positively free."""
        found = set()
        for profile in profiles:
            home = home_for_profile(self.root_home, profile)
            holder = await asyncio.to_thread(lock_holder, home)
            if holder.held is False:
                found.add(profile)
        return frozenset(found)


def _down(rows: Sequence[MatrixRow], old: Sequence[Runtime]) -> list[Runtime]:
    """Who is waited for, as they were; with somebody among them that says nothing yet, nobody: that one may speak at any time.

    Without any row the whole fleet is missing.
    """
    if any(row.identity_pending for row in rows):
        return []
    waited = {(row.kind, row.home) for row in rows if row.state == "down" and not row.unsteady}
    return [one for one in old if (not rows and one.kind == "gateway") or (one.kind, one.home) in waited]


def _ancestors(fleet: Fleet) -> frozenset[int]:
    """What we run under was told to restart and is not waited for."""
    return frozenset(runtime.pid for runtime in fleet.runtimes if runtime.ancestor)
