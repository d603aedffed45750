"""The real fleet behind `FleetParts`: fleet's public functions, bound to one install."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from nedura.clock import Clock, SystemClock
from nedura.fleet import (
    Fleet,
    FleetMatrix,
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
)
from nedura.fleet.matrix import comes_back, unsettled
from nedura.homes import home_for_profile
from nedura.installs import CodeIdentity
from nedura.product import NEDURA, Product
from nedura.wire import Event

__all__ = ["RealFleet", "settle_limit"]

FIRST_STEP: Final = 0.1
LONG_STEP: Final = 2.0
FLOOR: Final = 120.0
"""Seconds that a verification waits at least (decision 51)."""


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
    """

    root_home: Path
    install_id: str
    product: Product = NEDURA
    environ: Mapping[str, str] | None = None
    clock: Clock = attrs.field(factory=SystemClock)

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
        return restart_first(
            runtimes, expected, parts=self._restart_parts(), settle=self.product.settle_seconds
        )

    def rest(
        self, runtimes: Sequence[Runtime], expected: CodeIdentity, skip: Collection[int]
    ) -> AsyncGenerator[Event, None]:
        """Restart the others, each with its own failure."""
        return restart_rest(runtimes, expected, parts=self._restart_parts(), skip=skip)

    def _restart_parts(self) -> RestartParts:
        return default_parts(product=self.product, environ=self.environ)

    async def verify(
        self, before: Fleet, expected: CodeIdentity, restarted: Collection[str]
    ) -> AsyncGenerator[Event, None]:
        """Look until nobody is down or silent, or the time is up; the last event is the matrix."""
        start, limit, step = self.clock.monotonic(), settle_limit(before.runtimes), FIRST_STEP
        returning = [one for one in before.gone if comes_back(one)]
        old = (*before.runtimes, *returning)
        wanted = bool(restarted or before.gateways or returning)
        while True:
            fleet = await self.collect()
            rows = judge(expected, fleet, before=old, pending=_ancestors(fleet))
            waiting = unsettled(rows) or (() if rows or not wanted else ("the fleet",))
            elapsed = self.clock.monotonic() - start
            if not waiting or elapsed >= limit:
                break
            if step >= LONG_STEP:
                yield VerifyWaiting(waiting_for=tuple(waiting), elapsed=elapsed, deadline=limit)
            await self.clock.sleep(step)
            step = min(LONG_STEP, step * 2)
        yield FleetMatrix(
            expected=expected,
            rows=rows,
            foreign=fleet.foreign,
            complete=complete(rows, expected_rows=wanted),
            waited=round(elapsed, 3),
            settled=not waiting,
        )

    async def account(
        self, before: Fleet, failed: Mapping[int, str], deferred: Mapping[int, str]
    ) -> tuple[Mapping[str, Any], ...]:
        """What became of each runtime of before, as rows."""
        now = await self.collect()
        return tuple(map(attrs.asdict, reconcile(before.runtimes, now, failed=failed, deferred=deferred)))

    async def recover(self, runtimes: Sequence[Runtime], expected: CodeIdentity) -> tuple[bool, str]:
        """Try once more in a fresh process."""
        found = await run_recovery(runtimes, expected)
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


def _ancestors(fleet: Fleet) -> frozenset[int]:
    """What we run under was told to restart and is not waited for."""
    return frozenset(runtime.pid for runtime in fleet.runtimes if runtime.ancestor)
