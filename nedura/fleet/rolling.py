"""The roll: one member first, then the rest with a bound (decisions 20, 34). It reports verdicts; the pipeline owns the pointer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection, Sequence
from pathlib import Path
from typing import Final

from nedura.fanin import DEFAULT_LIMIT, Job, Report, run_all, stream
from nedura.fleet.cgroup import mark_shared_cgroup, own_unit
from nedura.fleet.model import Foreign, Runtime
from nedura.fleet.places import Place, Places
from nedura.fleet.restart import RestartParts, attach_restart, restart_member
from nedura.fleet.restart_events import LeftAlone, RestartEvent
from nedura.fleet.restart_lock import RestartLock
from nedura.fleet.watching import Watching
from nedura.homes import profile_name
from nedura.installs import CodeIdentity

__all__ = [
    "SETTLE_SECONDS",
    "attach_restarts",
    "in_roll_order",
    "left_alone",
    "pick_first",
    "restart_first",
    "restart_rest",
    "restarts_under_way",
    "roll",
]

SETTLE_SECONDS: Final = 12.0
"""How long a member must keep serving: the first one of a sealed install before the others follow it, everybody before the verdict."""


def in_roll_order(runtimes: Sequence[Runtime]) -> tuple[Runtime, ...]:
    """Members once each, in a stable order; what we run under, or in whose control group we are, comes last (decisions 20, 21)."""
    seen: dict[tuple[int, int | None], Runtime] = {}
    for runtime in mark_shared_cgroup(runtimes, own_unit()):
        seen.setdefault((runtime.pid, runtime.start_time), runtime)
    return tuple(sorted(seen.values(), key=lambda runtime: runtime.ancestor))


async def pick_first(runtimes: Sequence[Runtime], parts: RestartParts) -> Runtime | None:
    """The member that goes first: a gateway that we can start again and do not run under; an idle, supervised one before others.

    Returns:
        None when no member is eligible: then there is no automatic way back (decision 34).
    """
    candidates = [
        runtime
        for runtime in in_roll_order(runtimes)
        if runtime.kind == "gateway" and not runtime.ancestor and runtime.supervisor in parts.supervisors
    ]
    for runtime in sorted(candidates, key=lambda one: (one.active_turns > 0, not one.unit)):
        if await parts.supervisors[runtime.supervisor].able(runtime):
            return runtime
    return None


_WHY: Final = {
    "another home": "belongs to another home",
    "home unreadable": "runs on a home that could not be read",
    "another install": "belongs to another install on this home",
    "another product": "belongs to another product",
    "another user": "belongs to another user",
}


def left_alone(foreign: Sequence[Foreign]) -> tuple[LeftAlone, ...]:
    """What a collection found and nobody restarts, as events."""
    return tuple(
        LeftAlone(name=one.name, what=one.what, reason=_WHY[one.reason], home=str(one.home or ""))
        for one in foreign
    )


def _real(parts: RestartParts | None) -> RestartParts:
    if parts is not None:
        return parts
    from nedura.fleet.restart_parts import default_parts  # the real parts import every supervisor

    return default_parts()


def restart_first(
    runtimes: Sequence[Runtime],
    expected: CodeIdentity | None,
    *,
    parts: RestartParts | None = None,
    settle: float = SETTLE_SECONDS,
) -> AsyncGenerator[RestartEvent, None]:
    """Restart one eligible member and watch it. Its last event is `MemberRestarted` or `MemberFailed`; no event: none is eligible.

    Args:
        runtimes: the install's runtimes.
        expected: identity it must run; None to accept any.
        parts: seams and limits; default the real ones.
        settle: seconds it must keep serving.
    """
    parts = _real(parts)

    async def job(report: Report[RestartEvent]) -> None:
        first = await pick_first(runtimes, parts)
        if first is not None:
            await restart_member(first, expected, parts, report, settle=settle)

    return stream([job], limit=1)


def restart_rest(
    runtimes: Sequence[Runtime],
    expected: CodeIdentity | None,
    *,
    parts: RestartParts | None = None,
    skip: Collection[int] = (),
    width: int = DEFAULT_LIMIT,
    settle: float = 0.0,
) -> AsyncGenerator[RestartEvent, None]:
    """Restart members concurrently, each with its own budget and its own failure; what we run under is signalled last.

    Args:
        runtimes: the install's runtimes.
        expected: identity they must run; None to accept any.
        parts: seams and limits; default the real ones.
        skip: pids that are done already.
        width: how many are down at once.
        settle: seconds that each must keep serving before it counts; the watches run side by side, beside the roll.
    """
    parts = _real(parts)
    todo = [runtime for runtime in in_roll_order(runtimes) if runtime.pid not in skip]

    async def job(report: Report[RestartEvent]) -> None:
        await _restart_all(todo, expected, parts, report, width, settle)

    return stream([job], limit=1)


def restarts_under_way(homes: Sequence[Path]) -> tuple[Path, ...]:
    """The homes whose gateway somebody restarts now."""
    return tuple(home for home in homes if RestartLock(home).busy())


def attach_restarts(
    homes: Sequence[Path], expected: CodeIdentity | None, *, parts: RestartParts | None = None
) -> AsyncGenerator[RestartEvent, None]:
    """Wait for restarts that others do, of homes where nobody serves meanwhile. `MemberRestarted` for each that serves then.

    Args:
        homes: of `restarts_under_way`.
        expected: identity they must run; None to accept any.
        parts: seams and limits; default the real ones.
    """
    parts = _real(parts)

    def job(home: Path) -> Job[RestartEvent]:
        nobody = Runtime(kind="gateway", profile=profile_name(home), pid=0, start_time=None, home=home)

        async def attach(report: Report[RestartEvent]) -> None:
            await attach_restart(nobody, expected, parts, report)

        return attach

    return stream([job(home) for home in homes], limit=max(1, len(homes)))


async def _restart_all(
    todo: Sequence[Runtime],
    expected: CodeIdentity | None,
    parts: RestartParts,
    report: Report[RestartEvent],
    width: int,
    settle: float,
) -> None:
    # The bound is on members out of service: one that serves again gives its place away before it is checked and watched.
    places = Places(width)
    below = [one for one in todo if not one.ancestor]
    together = Watching(parts.clock, parts.tick, len(below))

    def job(runtime: Runtime) -> Job[RestartEvent]:
        async def restart(report: Report[RestartEvent]) -> None:
            down = Place(places)
            try:
                await restart_member(
                    runtime, expected, parts, report, settle=settle, down=down, together=together
                )
            finally:
                together.finished()

        return restart

    telling = asyncio.ensure_future(together.tell(report))
    try:
        await run_all([job(one) for one in below], report, limit=len(todo))
    finally:
        telling.cancel()
        await asyncio.gather(telling, return_exceptions=True)
    await run_all([job(one) for one in todo if one.ancestor], report, limit=1)


def roll(
    runtimes: Sequence[Runtime],
    expected: CodeIdentity | None,
    *,
    parts: RestartParts | None = None,
    sealed: bool,
    width: int = DEFAULT_LIMIT,
    settle: float = SETTLE_SECONDS,
) -> AsyncGenerator[RestartEvent, None]:
    """The first member, then the rest. In a sealed install a first member that fails ends it before anything else is touched.

    Args:
        runtimes: the install's runtimes.
        expected: identity they must run; None to accept any.
        parts: seams and limits; default the real ones.
        sealed: whether the pointer can be taken back; otherwise every failure is isolated.
        width: how many are down at once.
        settle: seconds that the first member must keep serving before the others follow, and each of these before it counts.
    """
    parts = _real(parts)

    async def job(report: Report[RestartEvent]) -> None:
        todo = in_roll_order(runtimes)
        first = await pick_first(todo, parts) if sealed else None
        if first is not None and not await restart_member(first, expected, parts, report, settle=settle):
            return
        await _restart_all(
            [one for one in todo if first is None or one.pid != first.pid],
            expected,
            parts,
            report,
            width,
            settle,
        )

    return stream([job], limit=1)
