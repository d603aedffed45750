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
from nedura.installs import CodeIdentity

__all__ = [
    "Check",
    "Health",
    "Look",
    "Standing",
    "await_serving",
    "in_service",
    "judge_standing",
    "stays_serving",
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


async def stays_serving(
    member: Runtime, expected: CodeIdentity | None, *, look: Look, clock: Clock, seconds: float
) -> Standing:
    """Watch a member that serves for some seconds more: it must stay the same incarnation and keep answering."""
    end = clock.monotonic() + seconds
    silent = 0
    while clock.monotonic() < end:
        await clock.sleep(min(_SETTLE_STEP_SECONDS, max(0.0, end - clock.monotonic())))
        answer = await look(member.home)
        if answer is None:
            silent += 1
            if silent >= 3 or clock.monotonic() >= end:
                return Standing("failed", "settle", "it stopped answering soon after its start")
            continue
        silent = 0
        if (answer.pid, answer.start_time) != (member.pid, member.start_time):
            return Standing("failed", "settle", f"process {member.pid} ended soon after its start")
        again = judge_standing(attrs.evolve(member, pid=0), answer, expected)
        if again.state == "failed":
            return again
    return Standing("serving")


async def stays_well(
    member: Runtime, expected: CodeIdentity | None, *, look: Look, clock: Clock, seconds: float, check: Check
) -> Standing:
    """Watch a member that serves as `stays_serving`, with the host's check at both ends of the watch; the first failure ends it all.

    The checks run beside the watch, so that they add no time to it: the last one begins early enough to end with it.
    """
    work = [
        asyncio.ensure_future(stays_serving(member, expected, look=look, clock=clock, seconds=seconds)),
        asyncio.ensure_future(_checked_twice(check, clock, seconds)),
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
