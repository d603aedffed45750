"""The restart of one member: drain, wait for its turns, start, verify. Every failure stays with the member (facts/update.md 7)."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import attrs

from nedura.clock import Clock, SystemClock
from nedura.errors import NeduraError, StoreError
from nedura.fanin import Report
from nedura.fleet.budget import drain_limit, restart_budget
from nedura.fleet.claim import lock_holder
from nedura.fleet.incarnation import Incarnations, SystemIncarnations
from nedura.fleet.model import Runtime
from nedura.fleet.places import Place
from nedura.fleet.processes import system_processes
from nedura.fleet.restart_events import (
    DrainWaiting,
    LeftAlone,
    MemberFailed,
    MemberRestarted,
    RestartEvent,
    RestartPending,
    RestartStarted,
    RestartWaiting,
)
from nedura.fleet.restart_lock import RestartLock, patience
from nedura.fleet.restart_ways import progress_step, triage, waiting_words
from nedura.fleet.serving import (
    Health,
    Look,
    Standing,
    Watch,
    await_serving,
    ended_as_asked,
    in_service,
    judge_standing,
    stays_started,
    stays_well,
)
from nedura.fleet.silence import SILENCE_SECONDS, Silence
from nedura.fleet.statefile import StateRecord, read_state
from nedura.fleet.supervisors.base import RestartError, Supervisor
from nedura.fleet.takeover import ANOTHER_HOME, doubts
from nedura.fleet.watching import Watching
from nedura.installs import CodeIdentity
from nedura.records import remove, write_bytes
from nedura.text import clean

__all__ = ["RestartParts", "claim_holder", "progress_step", "restart_member", "triage", "waiting_words"]

Result = TypeVar("Result")

SERVING_SECONDS: Final = restart_budget(None, None, drained=True)
"""How long a started member may take until it answers, when nobody declares more."""


def claim_holder(runtime: Runtime) -> tuple[int, int | None]:
    """Pid and start time of the process that holds a home's claim; what the inventory saw when that cannot be told.

    Raises:
        RestartError: the lock's record names a process that serves another home: a record is text, and anybody who may write the home
            can name an innocent in it.
    """
    holder = lock_holder(runtime.home)
    if holder.pid and holder.record is not None:
        if doubts(holder.pid, runtime.home, system_processes()) == ANOTHER_HOME:
            raise RestartError(
                f"Process {holder.pid}, which the claim of this home names, was not signalled: {ANOTHER_HOME}.",
                check="identity",
                final=True,
            )
        return holder.pid, holder.record.start_time
    return runtime.pid, runtime.start_time


def takes_files(home: Path) -> bool:
    """Whether a home can be written now; a member that cannot say anything there is not silent."""
    trial = home / ".restart-trial"
    try:
        write_bytes(trial, b"")
        remove(trial)
    except StoreError:
        return False
    return True


def _state_record(home: Path) -> StateRecord | None:
    return read_state(home, time.time())


@attrs.frozen(kw_only=True)
class RestartParts:
    """What a restart works with.

    Attributes:
        supervisors: supervisor id (`Runtime.supervisor`) -> who restarts such members.
        look: asks a home who serves it.
        holder: pid and start time of the process that holds a gateway's claim.
        health: a host's own check; None for none.
        processes, clock: seams.
        drain_limit: a member's declared drain seconds -> how long it is waited for.
        serving_timeout: seconds from a start to a verified answer.
        record: what a home's state file says; `writable`: whether the home takes a file now.
        silence: seconds without any sign of life that prove a process wedged whose socket is dead, too.
        patience: a member's declared drain seconds -> how long somebody else's restart of it is waited for.
        wedged_wait: seconds that a process whose loop stands still gets after each signal.
        tick: seconds between two progress lines at the start of a wait.
        target: identity that a start runs at this moment, for a restart that nobody has fixed one for; None: what the caller expects.
    """

    supervisors: Mapping[str, Supervisor]
    look: Look
    holder: Callable[[Runtime], tuple[int, int | None]] = claim_holder
    health: Health | None = None
    processes: Incarnations = attrs.field(factory=SystemIncarnations)
    clock: Clock = attrs.field(factory=SystemClock)
    drain_limit: Callable[[float | None], float] = drain_limit
    serving_timeout: float = SERVING_SECONDS
    record: Callable[[Path], StateRecord | None] = _state_record
    writable: Callable[[Path], bool] = takes_files
    silence: float = SILENCE_SECONDS
    patience: Callable[[float | None], float] = patience
    wedged_wait: float = 5.0
    tick: float = 1.0
    target: Callable[[], CodeIdentity] | None = None


async def restart_member(
    runtime: Runtime,
    expected: CodeIdentity | None,
    parts: RestartParts,
    report: Report[RestartEvent],
    *,
    settle: float = 0.0,
    down: Place | None = None,
    together: Watching | None = None,
) -> bool:
    """Restart one member and report what happens. Never raises for a failure of the member.

    Args:
        runtime: as the inventory saw it.
        expected: identity it must run afterwards; None to accept any.
        parts: seams and limits.
        report: gets the events.
        settle: seconds that it must go on serving before it counts.
        down: held from before its drain until it serves again, and kept when it is given up and nobody serves its home; the
            host's own check of a serving member, and the watch over it, are outside.
        together: tells of this watch and others in one line; None for a line of its own.

    Returns:
        Whether it is verified.
    """
    supervisor = parts.supervisors.get(runtime.supervisor)
    if supervisor is None:
        report(
            LeftAlone(
                name=runtime.name,
                what=f"{runtime.kind} process",
                reason=f"is restarted by its {runtime.supervisor} owner",
            )
        )
        return False
    restart = _Restart(runtime, expected, parts, supervisor, report, together)
    return await restart.guarded(restart.run(settle, down or nullcontext()))


async def attach_restart(
    runtime: Runtime, expected: CodeIdentity | None, parts: RestartParts, report: Report[RestartEvent]
) -> bool:
    """Wait for the restart that somebody else does of a member that is down for it now. Never raises for a failure of the member.

    Args:
        runtime: its home and profile; nobody served it when it was looked at (pid 0).
        expected: identity it must run afterwards; None to accept any.
        parts: seams and limits.
        report: gets the events.

    Returns:
        Whether it serves now, verified. Without a failure reported, nobody is at it any more.
    """
    restart = _Restart(runtime, expected, parts, parts.supervisors["manual"], report)
    lock = RestartLock(runtime.home, runtime.kind)
    try:
        return await restart.guarded(restart.attach(lock))
    finally:
        lock.release()


class _Restart:
    """One member's way through a restart."""

    def __init__(
        self,
        runtime: Runtime,
        expected: CodeIdentity | None,
        parts: RestartParts,
        supervisor: Supervisor,
        report: Report[RestartEvent],
        together: Watching | None = None,
    ) -> None:
        self.runtime, self._expected, self.parts = runtime, expected, parts
        self.supervisor, self.report, self.together = supervisor, report, together
        self.words = ""
        self.asked = parts.clock.monotonic()

    @property
    def expected(self) -> CodeIdentity | None:
        """What it must run: what the caller decided, or what a start runs at this moment."""
        return self._expected if self.parts.target is None else self.parts.target()

    async def guarded(self, way: Awaitable[bool]) -> bool:
        """A way through whose failure is this member's own: it is reported."""
        try:
            return await way
        except RestartError as error:
            failure = error
        except NeduraError as error:
            failure = RestartError(error.message, check=error.code, advice=error.advice)
        except Exception as error:  # border: one member's surprise must not hurt its siblings
            failure = RestartError(f"{type(error).__name__}: {error}", check="internal")
        runtime = self.runtime
        self.report(
            MemberFailed(
                profile=runtime.profile, pid=runtime.pid, check=failure.check, reason=clean(failure.diagnostics(), 500),
                incomplete=failure.incomplete, command=self.supervisor.command(runtime), member=runtime.kind,
                unit=runtime.unit,
            )
        )  # fmt: skip
        return False

    def say(self, words: str) -> None:
        """Remember what is waited for; the next progress line shows it."""
        self.words = words

    async def run(self, settle: float, down: AbstractAsyncContextManager[Place | None]) -> bool:
        """The whole restart; see `restart_member`."""
        if self.runtime.ancestor:
            return await self.alone(settle, down)  # another restart waits for us: it is not waited for
        lock = RestartLock(self.runtime.home, self.runtime.kind)
        try:
            answer = await self.attached(lock)
            if answer is None:
                return await self.alone(settle, down)
            served = self.parts.clock.monotonic()
            self.judge(await self.prove(answer, settle))
            self.done(answer, "current" if self.expected else "unknown", served)
            return True
        finally:
            lock.release()

    async def attach(self, lock: RestartLock) -> bool:
        """Take the result of somebody else's restart; see `attach_restart`."""
        answer = await self.attached(lock)
        if answer is not None:
            self.done(answer, "current" if self.expected else "unknown")
        return answer is not None

    async def attached(self, lock: RestartLock) -> Runtime | None:
        """Who serves by somebody else's restart: waited for, if under way; over since we looked, if another process serves."""
        runtime, parts = self.runtime, self.parts
        waited = not lock.take()
        if waited:
            self.say(f"another restart of it (process {lock.holder or 'unknown'})")
            await self.ticking(lock.wait(parts.clock, parts.patience(runtime.drain_budget_s)))
            self.words = ""
        if runtime.kind != "gateway":
            return None
        if not waited and parts.holder(runtime) == (runtime.pid, runtime.start_time):
            return None
        answer = await parts.look(runtime.home)
        serves = answer is not None and judge_standing(runtime, answer, self.expected).state == "serving"
        return answer if serves else None

    async def alone(self, settle: float, down: AbstractAsyncContextManager[Place | None]) -> bool:
        """The restart itself, which nobody else does now."""
        async with down as place:
            try:
                if not await self.renew():
                    return False
                answer = await self.serving() if self.runtime.kind == "gateway" else None
            except Exception:
                if place is not None and not in_service(await self.parts.look(self.runtime.home)):
                    place.keep()
                raise
        served = self.parts.clock.monotonic()
        if answer is None:
            self.judge(await self.watched(self.started(settle), settle))
            self.done(self.runtime, "unknown", served)  # its manager said so; it has no control socket
            return True
        self.judge(await self.prove(answer, settle))
        self.done(answer, "current" if self.expected else "unknown", served)
        return True

    async def renew(self) -> bool:
        """Have the member end and its successor started; False when it was only told to (it waits for us)."""
        runtime, parts = self.runtime, self.parts
        way = triage(runtime)
        if runtime.kind == "gateway":
            parts.holder(runtime)  # proven before anything is armed, let alone signalled
        self.report(
            RestartStarted(
                profile=runtime.profile, pid=runtime.pid, member=runtime.kind,
                supervisor=runtime.supervisor, unit=runtime.unit,
                aliases=runtime.aliases,
            )
        )  # fmt: skip
        await self.supervisor.arm(runtime)
        if way == "signal":
            if (sent := parts.processes.send(*parts.holder(runtime), signal.SIGUSR1)).outcome == "refused":
                raise RestartError(f"It was not told to restart: {sent.reason}.", check="drain")
            self.report(RestartPending(profile=runtime.profile, pid=runtime.pid, unit=runtime.unit))
            return False
        self.asked = parts.clock.monotonic()
        drained = await self.drain() if way == "drain" else way == "end" and await self.end_wedged()
        await self.start(drained)
        return True

    async def drain(self) -> bool:
        """Ask the member to finish and wait for its end; False when it does not end by itself."""
        parts, runtime = self.parts, self.runtime
        pid, start_time = parts.holder(runtime)
        start = parts.clock.monotonic()
        silence = Silence(pid, start_time, start, parts.silence)
        silence.read(parts.record(runtime.home), start)
        sent = parts.processes.send(pid, start_time, signal.SIGUSR1)
        if not sent:
            self.say(f"a restart without drain: {sent.reason}")
            return sent.outcome == "gone"  # too late counts as drained
        limit = parts.drain_limit(runtime.drain_budget_s)
        while True:
            elapsed = parts.clock.monotonic() - start
            step = progress_step(elapsed, parts.tick)
            if await parts.processes.gone(pid, start_time, max(0.0, min(step, limit - elapsed))):
                return True
            elapsed = parts.clock.monotonic() - start
            if elapsed >= limit:
                self.say(f"a restart without drain, {elapsed:.0f} s were not enough")
                return False
            answer = await parts.look(runtime.home)
            if answer is not None and (answer.pid, answer.start_time) != (pid, start_time):
                return True
            words = self.heard(answer, silence, pid, start_time)
            if (answer is not None and answer.wedged) or self.silent(silence):
                return await self.end_wedged()
            self.report(
                DrainWaiting(
                    profile=runtime.profile,
                    pid=pid,
                    elapsed=round(elapsed, 1),
                    waiting_for=words,
                    limit=limit,
                )
            )

    def heard(self, answer: Runtime | None, silence: Silence, pid: int, start_time: int | None) -> str:
        """Take down what a draining process says, by its socket or else by its state file; what it still does, in words."""
        now = self.parts.clock.monotonic()
        if answer is not None:
            silence.heard(now)
            return waiting_words(answer)
        if self.parts.processes.halted(pid):
            # it cannot finish its turns, nor even see the signal, until somebody lets it run again
            self.parts.processes.send(pid, start_time, signal.SIGCONT)
            silence.heard(now)
            return "its process, which a signal had halted, to run again"
        record = self.parts.record(self.runtime.home)
        silence.read(record, now)
        if record is not None and record.pid == pid and record.active_agents:
            return waiting_words(attrs.evolve(self.runtime, active_turns=record.active_agents, detail={}))
        return waiting_words(None)

    def silent(self, silence: Silence) -> bool:
        """Whether a process that does not answer is proven wedged."""
        now = self.parts.clock.monotonic()
        if not silence.proof(now, writable=True):
            return False
        reason = silence.proof(now, writable=self.parts.writable(self.runtime.home))
        if reason:
            self.say(f"the end of a process that hangs: {reason}")
        return bool(reason)

    async def end_wedged(self) -> bool:
        """End a process whose loop stands still: SIGTERM, then SIGKILL, a few seconds each. False when it survives."""
        pid, start_time = self.parts.holder(self.runtime)
        for number in (signal.SIGTERM, signal.SIGKILL):
            self.parts.processes.send(pid, start_time, number)
            if await self.parts.processes.gone(pid, start_time, self.parts.wedged_wait):
                return True
        return False

    async def start(self, drained: bool) -> None:
        """Get the successor started, softly first."""
        if drained:
            try:
                await self.ticking(self.supervisor.revive(self.runtime, self.say))
            except RestartError as error:
                if error.incomplete or error.final:
                    raise
                self.say(f"a second try: {error.message}")
            else:
                return
        await self.ticking(self.supervisor.force(self.runtime, self.say))

    async def serving(self) -> Runtime:
        """Wait until the successor serves on the expected code."""
        runtime, parts = self.runtime, self.parts
        self.say("its answer")
        answer, standing = await self.ticking(
            await_serving(
                runtime,
                self.expected,
                look=parts.look,
                clock=parts.clock,
                timeout=parts.serving_timeout,
                gave_up=lambda: self.supervisor.gave_up(runtime),
            )
        )
        self.judge(standing)
        if answer is None:
            raise RestartError("It does not answer.", check="serving")
        return answer

    def judge(self, standing: Standing) -> None:
        """Fail unless the member serves."""
        if standing.state != "serving":
            raise RestartError(standing.reason[:1].upper() + standing.reason[1:] + ".", check=standing.check)

    async def prove(self, member: Runtime, settle: float) -> Standing:
        """The host's own check, and, where it is watched, that it stays up and passes it again."""
        if settle <= 0:
            return await self.ticking(self.check_health(member))
        parts, home = self.parts, member.home
        watch = Watch(
            look=parts.look,
            clock=parts.clock,
            seconds=settle,
            gone=lambda limit: parts.processes.gone(member.pid, member.start_time, limit),
            planned=lambda: ended_as_asked(parts.record(home), member),
        )
        work = stays_well(member, self.expected, watch, lambda: self.check_health(member))
        return await self.watched(work, settle)

    async def started(self, settle: float) -> Standing:
        """That a member without a control socket stays up, by its manager's word."""
        gave_up = partial(self.supervisor.gave_up, self.runtime)
        return await stays_started(gave_up, clock=self.parts.clock, seconds=settle)

    async def watched(self, work: Awaitable[Standing], settle: float) -> Standing:
        """A watch over this member, told of with the others' or by a line of its own."""
        if self.together is None:
            self.say("proof that it stays up")
            return await self.ticking(work)
        with self.together.over(self.runtime.name, settle):
            return await work

    async def check_health(self, member: Runtime) -> Standing:
        """What the host says about a member that says it is ready."""
        reason = await self.parts.health(member) if self.parts.health is not None else ""
        return Standing("failed", "health", reason) if reason else Standing("serving")

    def done(self, member: Runtime, verdict: str, served: float | None = None) -> None:
        """Report success."""
        end = self.parts.clock.monotonic() if served is None else served
        self.report(
            MemberRestarted(
                profile=self.runtime.profile, pid=member.pid, downtime_ms=round((end - self.asked) * 1000),
                verdict=verdict, member=self.runtime.kind, unit=self.runtime.unit,
            )
        )  # fmt: skip

    async def ticking(self, work: Awaitable[Result]) -> Result:
        """Await something with a progress line now and then; the work is cancelled with us."""
        task = asyncio.ensure_future(work)
        start = self.parts.clock.monotonic()
        try:
            while True:
                elapsed = self.parts.clock.monotonic() - start
                done, _ = await asyncio.wait({task}, timeout=progress_step(elapsed, self.parts.tick))
                if done:
                    return task.result()
                self.report(
                    RestartWaiting(
                        profile=self.runtime.profile, elapsed=round(self.parts.clock.monotonic() - start, 1),
                        waiting_for=self.words or "its successor", unit=self.runtime.unit,
                    )
                )  # fmt: skip
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task})
