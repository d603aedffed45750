"""The second half of an update, run by the NEW code: the environment's verdict, the first member, maintenance, builds, the rest of
the fleet, verification, the receipt's end (facts/update.md 6.6).

Started by `bootstrap.py` of the same tree. It is the receipt's writer from its first event on; its parent keeps lock, deadline,
pointer and the last word.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any

import attrs

from nedura.clock import Clock, SystemClock, iso
from nedura.errors import StoreError
from nedura.fleet import Fleet, FleetMatrix
from nedura.fleet.matrix import comes_back
from nedura.installs import InstallPaths, running_code
from nedura.product import Product
from nedura.profiles import list_profiles
from nedura.records import read_json, write_json
from nedura.update.completion.completion_parts import CompletionParts, default_parts
from nedura.update.completion.request import CompletionRequest, CompletionResult
from nedura.update.completion.steps import ending, guarded, tail_owed, why
from nedura.update.events import (
    FollowUp,
    Notice,
    RuntimeOutcomes,
    Skipped,
    StageFinished,
    StageStarted,
    StepDone,
    UpdateFinished,
    UserAction,
)
from nedura.update.events_completion import package_report
from nedura.update.exit_code import tell_chat
from nedura.update.ledger import restart_record
from nedura.update.ledger.journal import Journal
from nedura.update.ledger.obligations import RestartObligation, TailObligation, restart_folder
from nedura.update.ledger.owner import myself
from nedura.update.ledger.restart_record import Live, RestartRecord
from nedura.update.ledger.writer import WriterChanged
from nedura.wire import Event, fitting_line, to_wire

__all__ = ["Completion", "FirstMemberFailed", "main"]

MAX_REQUEST = 16 * 1024 * 1024


class FirstMemberFailed(Exception):
    """Raised when the first member is not verified: only the old parent may act on it (decision 34).

    Attributes:
        check: the failed check.
        member: the member's event as a record.
    """

    def __init__(self, check: str, member: Mapping[str, Any]) -> None:
        super().__init__(check)
        self.check = check
        self.member = dict(member)


@attrs.define(kw_only=True)
class Completion:
    """One completion.

    Attributes:
        request: what to finish.
        product: names, as the old side had them.
        parts: seams.
        clock, environ: time and environment.
        followups: steps owed so far.
        restarted: profiles whose member was restarted.
        done: pids that need no restart any more.
        before: the fleet as it was before any restart; None while nobody could look.
        failed, deferred: pid -> why its restart failed, or comes later.
        matrix: the verified fleet.
        windows_resume: the pause token as it stands now; None when this run resumed nothing.
    """

    request: CompletionRequest
    product: Product
    parts: CompletionParts
    clock: Clock = attrs.field(factory=SystemClock)
    environ: Mapping[str, str] = attrs.field(factory=lambda: dict(os.environ))
    followups: list[str] = attrs.field(factory=list)
    user_action: bool = False
    restarted: set[str] = attrs.field(factory=set)
    done: set[int] = attrs.field(factory=set)
    before: Fleet | None = None
    failed: dict[int, str] = attrs.field(factory=dict)
    deferred: dict[int, str] = attrs.field(factory=dict)
    matrix: FleetMatrix | None = None
    windows_resume: Mapping[str, Any] | None = None

    @property
    def paths(self) -> InstallPaths:
        """The install's places."""
        return InstallPaths(Path(self.request.root_home), self.request.install_id)

    @property
    def tail(self) -> TailObligation:
        """The tail obligation of this install."""
        return TailObligation(self.paths.folder)

    @property
    def debt(self) -> RestartObligation:
        """The restart record of this install."""
        shared = self.paths.folder if self.request.layout == "sealed" else self.request.tree
        return RestartObligation(restart_folder(self.environ, self.product), shared, self.paths.root_home)

    async def events(self) -> AsyncGenerator[Event, None]:
        """Everything in order. Follow-ups are collected on the way.

        Raises:
            FirstMemberFailed: the parent has to take the pointer back.
        """
        parts = (
            self._frame(),
            self._first_member(),
            self._upkeep(),
            self._fleet(),
            self._settle(),
            self._aftermath(),
        )
        for part in parts:
            try:
                async for event in part:
                    self._note(event)
                    yield event
            finally:
                await part.aclose()

    def _note(self, event: Event) -> None:
        if isinstance(event, FollowUp):
            self.followups.append(event.step)
        elif isinstance(event, UserAction):
            self.user_action = True
        elif isinstance(event, FleetMatrix):
            self.matrix = event
        elif event.kind == "member_restarted":
            self.restarted.add(getattr(event, "profile", ""))
            self.done.add(getattr(event, "pid", 0))
        elif event.kind == "member_failed":
            self.failed[getattr(event, "pid", 0)] = getattr(event, "reason", "")
        elif event.kind == "restart_pending":
            self.deferred[getattr(event, "pid", 0)] = "it restarts after its running turns"

    async def _frame(self) -> AsyncGenerator[Event, None]:
        """Who writes now, and what the environment step said before any application code ran."""
        me = myself()
        yield WriterChanged(pid=me.pid, create_time=me.create_time)
        report = self.request.notes.get("pm_receipt") if isinstance(self.request.notes, Mapping) else None
        if report is None:
            return
        yield package_report(report)
        yield StageStarted(stage="deps")
        reason = str(report.get("reason", "")) if not report.get("ok", True) else ""
        yield StageFinished(stage="deps", outcome="failed" if reason else "success", reason=reason)
        if reason:
            yield FollowUp(step="dependencies", reason=reason)

    async def _first_member(self) -> AsyncGenerator[Event, None]:
        """One member of a sealed install before anything else (decision 34)."""
        if not self.request.first_member or self._restart_skipped():
            return
        yield StageStarted(stage="first_member")
        self.before = await self.parts.fleet.collect()
        events = self.parts.fleet.first(self.before.runtimes, self.request.expected)
        told = False
        try:
            async for event in events:
                told = True
                yield event
                if event.kind == "member_failed" and not getattr(event, "incomplete", False):
                    raise FirstMemberFailed(str(getattr(event, "check", "unknown")), to_wire(event))
        finally:
            await events.aclose()
        reason = "" if told else "no member is eligible, so there is no automatic way back"
        yield StageFinished(stage="first_member", outcome="success" if told else "skipped", reason=reason)

    def _restart_skipped(self) -> bool:
        return bool(self.request.options.get("no_gateway_restart"))

    async def _upkeep(self) -> AsyncGenerator[Event, None]:
        """Builds and maintenance, each step with its own failure."""
        for stage, steps in self.parts.upkeep(self):
            yield StageStarted(stage=stage)
            failed = False
            for step, source in steps:
                events = guarded(step, source)
                try:
                    async for event in events:
                        failed = failed or isinstance(event, FollowUp)
                        yield event
                finally:
                    await events.aclose()
            yield StageFinished(stage=stage, outcome="failed" if failed else "success")
        if self.request.options.get("gateway_mode"):
            warning = tell_chat(
                Path(self.request.home), 0
            )  # the restart can end the process that waits for it
            if warning is not None:
                yield warning

    async def _fleet(self) -> AsyncGenerator[Event, None]:
        if self._restart_skipped():
            yield StageStarted(stage="restart")
            yield Skipped(name="gateway_restart", reason="--no-gateway-restart; the restart stays owed")
            yield StageFinished(stage="restart", outcome="skipped", reason="--no-gateway-restart")
            return
        for stage, source in (("restart", self._restart()), ("verify", self._verify())):
            yield StageStarted(stage=stage)
            failed = False
            events = guarded("gateway_restart", source)
            try:
                async for event in events:
                    failed = failed or isinstance(event, FollowUp) or event.kind == "member_failed"
                    yield event
            finally:
                await events.aclose()
            yield StageFinished(stage=stage, outcome="failed" if failed else "success")

    async def _restart(self) -> AsyncGenerator[Event, None]:
        """Restart whoever does not run the expected code yet."""
        fleet = await self.parts.fleet.collect()
        if self.before is None:
            self.before = fleet
        stale = [
            runtime
            for runtime in fleet.runtimes
            if runtime.pid not in self.done and not self.parts.runs(self.request.expected, runtime.code)
        ]
        events = self.parts.fleet.rest(stale, self.request.expected, self.done)
        try:
            async for event in events:
                yield event
        except (
            Exception
        ):  # border: a broken phase gets one more try in a fresh process, then it is a follow-up
            complete, detail = await self.parts.fleet.recover(stale, self.request.expected)
            recovery = StepDone(name="fresh_recovery", ok=complete, detail=detail)
            if not complete:
                raise
        else:
            return
        finally:
            await events.aclose()
        yield recovery

    async def _verify(self) -> AsyncGenerator[Event, None]:
        before = self.before or Fleet()
        events = self.parts.fleet.verify(before, self.request.expected, self.restarted)
        try:
            async for event in events:
                yield event
        finally:
            await events.aclose()
        if before.runtimes:
            rows = await self.parts.fleet.account(before, self.failed, self.deferred)
            yield RuntimeOutcomes(rows=tuple(map(self._accounted, rows)))

    def _accounted(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        """A member that ran the expected code before, and is proven to run it still, was not forgotten: nothing was due."""
        rows = self.matrix.rows if self.matrix is not None else ()
        current = {one.pid for one in rows if one.state == "current" and not one.failing}
        lost = row.get("outcome") == "unaccounted" and row.get("pid") in current
        return {**row, "outcome": "current"} if lost else row

    async def _settle(self) -> AsyncGenerator[Event, None]:
        """Clear what is proven done, keep the rest armed."""
        if not self._restart_skipped():
            events = guarded("gateway_restart", self._settle_restart())
            try:
                async for event in events:
                    yield event
            finally:
                await events.aclose()
        if not tail_owed(self.followups):
            try:
                self.tail.clear()
            except StoreError as error:
                yield FollowUp(step="completion", reason=why(error))

    async def _aftermath(self) -> AsyncGenerator[Event, None]:
        """Nothing here is owed: what fails is said."""
        if self.followups:
            return
        events = self.parts.aftermath(self)
        try:
            async for event in events:
                yield event
        except Exception as error:  # border: tidying up after a finished update must not change how it ended
            failure = Notice(text=f"Tidying up was left for the next update: {why(error)}")
        else:
            return
        finally:
            await events.aclose()
        yield failure

    async def _settle_restart(self) -> AsyncGenerator[Event, None]:
        debt, matrix = self.debt, self.matrix
        if matrix is None:  # the look itself failed and is a follow-up already: what is armed stays armed
            return
        record = debt.read()
        if await self._is_settled(record, matrix):
            if record is not None:
                debt.clear()
            return
        owed = [
            {"kind": row.kind, "profile": row.profile, "pid": row.pid, "state": row.state}
            for row in matrix.rows
            if row.failing or row.state not in ("current", "external")
        ]
        if owed:
            debt.change(lambda old: restart_record.with_inventory(old, owed))
        if self.restarted and not any(
            row.failing for row in matrix.rows
        ):  # another profile's update attaches to it
            debt.change(lambda old: restart_record.restarted(old, pid=os.getpid(), now=self.clock.time()))
        if matrix.complete and owed and not any(row.failing for row in matrix.rows):
            return  # pending or silent about itself: no failure, but it stays armed until it is proven
        if "gateway_restart" not in self.followups:
            names = ", ".join(str(row["profile"]) for row in owed) or "a gateway that should be running"
            yield FollowUp(step="gateway_restart", reason=f"not verified on the new version: {names}")

    async def _is_settled(self, record: RestartRecord | None, matrix: FleetMatrix) -> bool:
        """Positive proof that the fleet owes nothing; an unreadable record needs every gateway of before current again."""
        before = self.before
        if not matrix.complete or before is None:
            return False
        live = [Live(profile=row.profile, state=row.state) for row in matrix.rows if row.kind == "gateway"]
        known = {one.profile for one in (*before.gateways, *filter(comes_back, before.gone))}
        if record is None or not record.readable:
            current = {row.profile for row in live if row.state in ("current", "external", "restart_pending")}
            every = known | {one.profile for one in before.gone}
            if record is None or every:
                return every <= current if record is not None else known <= current
            names = {
                one.name for one in list_profiles(self.paths.root_home)
            }  # nobody was seen: ask each claim
            return bool(names) and names <= await self.parts.fleet.idle(sorted(names))
        asked = [str(row.get("profile", "")) for row in record.inventory or ()]
        idle = await self.parts.fleet.idle(
            [name for name in asked if name not in {row.profile for row in live}]
        )
        return restart_record.settled(record, live, idle=idle, expects_none=not known)

    def finished(self, *, interrupted: bool = False) -> UpdateFinished:
        """The last event."""
        end = ending(
            followups=self.followups,
            user_action=self.user_action or bool(self.request.receipt.get("user_action")),
            interrupted=interrupted,
        )
        return UpdateFinished(
            run_id=self.request.update_id,
            finished_at=iso(self.clock.time()),
            stop_reason=self.request.message,
            followups=tuple(dict.fromkeys(self.followups)),
            receipt=self.request.receipt_path,
            changed=self.request.changed,
            now=self.request.expected,
            unreadable=self.matrix.unreadable if self.matrix is not None else 0,
            went_behind=str(self.request.way_back.get("went_behind", "")),
            restored=str(self.request.way_back.get("restored", "")),
            **end,
        )


class _Stream:
    """The event pipe to the parent. A parent that is gone is no reason to stop (facts/update.md 6.7)."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def send(self, record: Mapping[str, Any]) -> None:
        if self._handle < 0:
            return
        data = fitting_line(record)
        try:
            while data:
                data = data[os.write(self._handle, data) :]
        except OSError:
            self._handle = -1


def main(request_path: str, result_path: str) -> int:
    """Entry of the bootstrap's `prepared` phase; the exit status is the run's exit code."""
    value = read_json(Path(request_path), MAX_REQUEST)
    if isinstance(value, dict) and "pm_receipt" in value:
        value["notes"] = {**(value.get("notes") or {}), "pm_receipt": value["pm_receipt"]}
    request = CompletionRequest.from_json(value)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides; it ends this session when it must
    result = asyncio.run(_run(request))
    write_json(Path(result_path), result.to_json())
    return result.exit_code


async def _run(request: CompletionRequest, parts: CompletionParts | None = None) -> CompletionResult:
    product = request.product_object()
    clock = SystemClock()
    code = running_code()
    if not request.expected.code_sha:  # a takeover could not know it: what runs now is what should run
        request = attrs.evolve(request, expected=code)
    parts = parts or default_parts(request, product)
    completion = Completion(request=request, product=product, parts=parts, clock=clock)
    journal = Journal(Path(request.root_home), clock, receipt=dict(request.receipt))
    pipe = _Stream(request.events_fd)

    def tell(event: Event) -> None:
        pipe.send(journal.take(event))

    try:
        events = completion.events()
        try:
            async for event in events:
                tell(event)
        finally:
            await events.aclose()
    except FirstMemberFailed as failed:
        return CompletionResult(
            update_id=request.update_id,
            nonce=request.nonce,
            exit_code=1,
            first_member=failed.check,
            member=failed.member,
        )
    except Exception as error:  # border of a process: the run is committed, so this is owed, not failed
        tell(FollowUp(step="completion", reason=why(error)))
        completion.followups.append("completion")
    if code.code_sha and code.code_sha != request.expected.code_sha:
        tell(Notice(text=f"Finished by {code.short()}, expected {request.expected.short()}.", warning=True))
    tell(completion.finished())
    warning = journal.warning()
    if warning is not None:
        tell(warning)
    journal.store.prune()
    return CompletionResult(
        update_id=request.update_id,
        nonce=request.nonce,
        exit_code=int(journal.receipt["exit_code"]),
        receipt=journal.receipt,
        windows_resume=completion.windows_resume or request.windows_resume,
        pm_receipt=request.notes.get("pm_receipt"),
    )
