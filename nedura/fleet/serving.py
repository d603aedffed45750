"""Whether a member serves again, on the code it should run: the decision without IO, and the wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Literal

import attrs

from nedura.clock import Clock
from nedura.fleet.matrix import runs_expected
from nedura.fleet.model import Runtime
from nedura.fleet.statefile import StateRecord
from nedura.installs import CodeIdentity

__all__ = [
    "Check",
    "Health",
    "Look",
    "Standing",
    "Watch",
    "await_serving",
    "ended_as_asked",
    "in_service",
    "judge_standing",
    "stays_serving",
    "stays_started",
    "stays_well",
]

Look = Callable[[Path], Awaitable[Runtime | None]]
"""Who serves a home now, by its own answer; None when nobody answers."""

Health = Callable[[Runtime], Awaitable[str]]
"""A host's own check of a member that says it is ready; an empty string means well, else the reason in words."""

_LAST_SHARE = 0.1
"""Part of a watch, at its end, in which its last check may begin: a check that began early says nothing about what came after it."""
_STEP_SECONDS = 0.03
_LONG_STEP_SECONDS = 0.25
_SETTLE_STEP_SECONDS = 0.5


@attrs.frozen
class Standing:
    """What one look at a member says.

    Attributes:
        state: `serving`, `wait`, or `failed`.
        check: what failed, or what is waited for.
        reason: in words.
    """

    state: Literal["serving", "wait", "failed"]
    check: str = ""
    reason: str = ""


Check = Callable[[], Awaitable[Standing]]
"""`Health` of one member, judged."""


def in_service(answer: Runtime | None) -> bool:
    """Whether work can come in there."""
    return answer is not None and answer.state in ("running", "degraded")


def judge_standing(before: Runtime, answer: Runtime | None, expected: CodeIdentity | None) -> Standing:
    """Judge one answer.

    Args:
        before: the incarnation that was asked to go.
        answer: who answers now.
        expected: the identity that must run; None when any will do (a plain restart).
    """
    if answer is None:
        return Standing("wait", "ready", "nobody answers on its home")
    if (answer.pid, answer.start_time) == (before.pid, before.start_time):
        return Standing("wait", "stop", f"process {before.pid} is still there")
    if answer.state in ("startup_failed", "stopped"):
        return Standing("failed", "boot", f"it reports {answer.state}")
    if expected is not None:
        same = runs_expected(expected, answer.code)
        if same is False:
            return Standing(
                "failed", "version", f"it runs {_words(answer.code)} instead of {_words(expected)}"
            )
        if same is None:
            return Standing("wait", "version", "it does not say what it runs")
    if not in_service(answer):
        return Standing("wait", "ready", f"it is {answer.state or 'not ready'}")
    return Standing("serving")


def _words(code: CodeIdentity) -> str:
    return f"generation {code.generation} ({code.short()})" if code.generation else code.short()


async def await_serving(
    before: Runtime,
    expected: CodeIdentity | None,
    *,
    look: Look,
    clock: Clock,
    timeout: float,
    gave_up: Callable[[], Awaitable[str]] | None = None,
) -> tuple[Runtime | None, Standing]:
    """Look until the member serves, fails, or `timeout` seconds have passed.

    Args:
        before: the incarnation that was asked to go.
        expected: the identity that must run.
        look: seam, asks who serves.
        clock: seam.
        timeout: seconds; after it the last look counts.
        gave_up: asked now and then whether its manager has given up on it; a reason ends the wait.
    """
    start, step = clock.monotonic(), _STEP_SECONDS
    while True:
        answer = await look(before.home)
        standing = judge_standing(before, answer, expected)
        if standing.state != "wait":
            return answer, standing
        elapsed = clock.monotonic() - start
        if elapsed >= timeout:
            return answer, attrs.evolve(
                standing, state="failed", reason=f"{standing.reason} after {elapsed:.0f} s"
            )
        if gave_up is not None and step >= _LONG_STEP_SECONDS and (reason := await gave_up()):
            return answer, Standing("failed", "boot", reason)
        await clock.sleep(step)
        step = min(step * 1.3, _LONG_STEP_SECONDS)


@attrs.frozen(kw_only=True)
class Watch:
    """How a member that serves is watched.

    Attributes:
        look: asks who serves.
        clock: time.
        seconds: how long it must keep serving.
        gone: waits that many seconds for the end of this incarnation, and says whether it ended.
        planned: whether its end, as it left it on disk, was asked for by somebody: a stop, a takeover or another restart.
    """

    look: Look
    clock: Clock
    seconds: float
    gone: Callable[[float], Awaitable[bool]]
    planned: Callable[[], bool]


def ended_as_asked(record: StateRecord | None, member: Runtime) -> bool:
    """Whether a member ended because somebody asked it to, by the last word of this very incarnation."""
    return (
        record is not None
        and record.planned
        and (record.pid, record.start_time) == (member.pid, member.start_time)
    )


async def stays_serving(member: Runtime, expected: CodeIdentity | None, watch: Watch) -> Standing:
    """Watch a member that serves for some seconds more: it must stay the same incarnation and keep answering.

    One that somebody stopped or restarted on purpose meanwhile has not failed.
    """
    clock, gone = watch.clock, watch.gone
    end = clock.monotonic() + watch.seconds
    silent, visible = 0, True
    while (left := end - clock.monotonic()) > 0:
        step = min(_SETTLE_STEP_SECONDS, left)
        ended = visible and await gone(step)
        if not visible:
            await clock.sleep(step)
        answer = await watch.look(member.home)
        if answer is None and not ended:
            silent += 1
            if silent < 3 and clock.monotonic() < end:
                continue
            return _ended(watch, "it stopped answering soon after its start")
        silent = 0
        if answer is None or (answer.pid, answer.start_time) != (member.pid, member.start_time):
            return _ended(watch, f"process {member.pid} ended soon after its start")
        visible = visible and not ended  # it answers although its pid cannot be seen: of another number space
        again = judge_standing(attrs.evolve(member, pid=0), answer, expected)
        if again.state == "failed":
            return again
    return Standing("serving")


def _ended(watch: Watch, reason: str) -> Standing:
    return Standing("serving") if watch.planned() else Standing("failed", "settle", reason)


async def stays_started(gave_up: Callable[[], Awaitable[str]], *, clock: Clock, seconds: float) -> Standing:
    """Watch a member without a control socket by its manager's word alone."""
    end = clock.monotonic() + seconds
    while (left := end - clock.monotonic()) > 0:
        await clock.sleep(min(_SETTLE_STEP_SECONDS, left))
        if reason := await gave_up():
            return Standing("failed", "settle", reason)
    return Standing("serving")


async def stays_well(member: Runtime, expected: CodeIdentity | None, watch: Watch, check: Check) -> Standing:
    """Watch a member that serves as `stays_serving`, with the host's check at both ends of the watch; the first failure ends it all.

    The checks run beside the watch, so that they add no time to it: the last one begins early enough to end with it.
    """
    work = [
        asyncio.ensure_future(stays_serving(member, expected, watch)),
        asyncio.ensure_future(_checked_twice(check, watch.clock, watch.seconds)),
    ]
    waiting = set(work)
    try:
        while waiting:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for one in done:
                if one.result().state != "serving":
                    return one.result()
        return Standing("serving")
    finally:
        for one in work:
            one.cancel()
        await asyncio.gather(*work, return_exceptions=True)


async def _checked_twice(check: Check, clock: Clock, seconds: float) -> Standing:
    start = clock.monotonic()
    standing = await check()
    if standing.state != "serving":
        return standing
    took = clock.monotonic() - start
    last = start + seconds - min(took, _LAST_SHARE * seconds)
    await clock.sleep(max(0.0, last - clock.monotonic()))
    return await check()
