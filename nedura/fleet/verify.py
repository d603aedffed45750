"""Looking again until the fleet has settled (facts/update.md 8.2): polling with a deadline, an early end, and one last word."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable
from typing import Final

from nedura.clock import Clock, SystemClock
from nedura.fleet.events import FleetMatrix, VerifyWaiting
from nedura.fleet.matrix import complete, judge, unsettled
from nedura.fleet.model import Fleet, MatrixRow, Runtime
from nedura.installs import CodeIdentity

__all__ = ["settle_deadline", "verify_fleet"]

SETTLE_FLOOR: Final = 120.0
STEP: Final = 0.5
"""Seconds between two looks at first; later looks are further apart."""
MAX_STEP: Final = 2.0


def settle_deadline(runtimes: Iterable[Runtime]) -> float:
    """Seconds a fleet has to settle: 120, or three times the slowest boot that was measured in it (decisions 35, 51)."""
    boots = [runtime.boot_s for runtime in runtimes if runtime.boot_s is not None]
    return max(SETTLE_FLOOR, 3 * max(boots, default=0.0))


def _waiting_for(
    rows: Iterable[MatrixRow], missing: Iterable[str], draining: Iterable[str]
) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*unsettled(rows), *missing, *draining)))


async def verify_fleet(
    expected: CodeIdentity,
    look: Callable[[], Awaitable[Fleet]],
    *,
    before: Iterable[Runtime] = (),
    restarted: Collection[str] = (),
    pending: Collection[int] = (),
    hopeless: Callable[[], bool] | None = None,
    deadline_s: float | None = None,
    clock: Clock | None = None,
) -> AsyncGenerator[VerifyWaiting | FleetMatrix, None]:
    """Poll until no row is down, unpublished or missing, or until the deadline; the last event is a `FleetMatrix`.

    Args:
        expected: identity the fleet should have.
        look: collects the fleet.
        before: runtimes that lived when the update began.
        restarted: profiles that were restarted and must have a row.
        pending: pids that accepted a restart and are not waited for.
        hopeless: asked after each look; True ends the wait (every restarted unit is loaded and dead).
        deadline_s: seconds; default by the boots of `before`.
        clock: time.
    """
    clock = SystemClock() if clock is None else clock
    before = tuple(before)
    deadline = settle_deadline(before) if deadline_s is None else deadline_s
    wanted = {runtime.profile for runtime in before if runtime.kind == "gateway"} | set(restarted)
    start, step, said = clock.monotonic(), STEP, ""
    while True:
        fleet = await look()
        rows = judge(expected, fleet, before=before, pending=pending)
        seen = {row.profile for row in rows} | {name for row in rows for name in row.served_profiles}
        waiting = _waiting_for(
            rows, [name for name in restarted if name not in seen], _leaving(fleet, pending)
        )
        elapsed = clock.monotonic() - start
        ended = bool(hopeless and hopeless())
        if not waiting or elapsed >= deadline or ended:
            break
        if ", ".join(waiting) != said:
            said = ", ".join(waiting)
            yield VerifyWaiting(waiting_for=waiting, elapsed=elapsed, deadline=deadline)
        await clock.sleep(min(step, max(0.05, deadline - elapsed)))
        step = min(MAX_STEP, step * 1.5)
    yield FleetMatrix(
        expected=expected,
        rows=rows,
        foreign=fleet.foreign,
        complete=complete(rows, expected_rows=bool(wanted)) and not (set(restarted) - seen),
        waited=round(elapsed, 3),
        settled=not waiting,
    )


def _leaving(fleet: Fleet, pending: Collection[int]) -> list[str]:
    """Members that are on their way out: their successor is what counts."""
    return [
        runtime.profile
        for runtime in fleet.gateways
        if runtime.state in ("starting", "draining") and runtime.pid not in pending and not runtime.ancestor
    ]
