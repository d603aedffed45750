"""`update()`: the list of stages and what surrounds them: lock, receipt, obligations, the commit point, the last word.

Exit codes: 0 committed or already current, 1 nothing committed or rolled back (or local edits parked), 2 refused, 130 Ctrl-C
(facts/update.md 1.5).
"""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path

import attrs

from nedura.clock import Clock, SystemClock, iso
from nedura.errors import ForeignOwner, NeduraError, RefusedError, StoreError, UpdateError
from nedura.homes import current_home, root_home
from nedura.product import NEDURA, Product
from nedura.text import clean, redact
from nedura.update import stages
from nedura.update.events import (
    AlreadyReported,
    FollowUp,
    Outcome,
    StageFinished,
    StageStarted,
    StepDone,
    UpdateFinished,
    UpdateStarted,
)
from nedura.update.ledger.interrupted import close_interrupted, finish_of
from nedura.update.ledger.journal import Journal
from nedura.update.ledger.lock import LockHeld, UpdateLock
from nedura.update.ledger.masks import masked_event
from nedura.update.ledger.owner import myself
from nedura.update.ledger.receipt import is_finished, owed_steps
from nedura.update.ledger.receipts import ReceiptStore, is_lock_refusal, receipt_name
from nedura.update.options import UpdateOptions
from nedura.update.options_check import check_choices, check_options, check_run_id
from nedura.update.parts import Refusal, UpdateParts, default_parts
from nedura.update.prompt import Ask
from nedura.update.run import Run
from nedura.update.within import within
from nedura.wire import Event

__all__ = ["update"]


class Refused(Exception):
    """Raised inside the pipeline when admission says no."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


async def update(
    *,
    home: Path | None = None,
    product: Product = NEDURA,
    options: UpdateOptions | None = None,
    clock: Clock | None = None,
    environ: Mapping[str, str] | None = None,
    parts: UpdateParts | None = None,
    ask: Ask | None = None,
) -> AsyncGenerator[Event, None]:
    """Update this install and its whole fleet; the last event is always `UpdateFinished`, which holds the exit code.

    Use it under `aclosing`. Closing or cancelling it ends the completion child's whole tree, closes the receipt as `interrupted` and
    releases the lock before it returns.

    Args:
        home: the invoking profile's home; default the current one.
        product: names and places.
        options: what this run is asked to do.
        clock: time seam.
        environ: environment seam.
        parts: stage and fleet seams.
        ask: asks the person who watches (question and default in, answer out); None when nobody does.

    Raises:
        UsageError: an option that cannot be, or does not fit what is installed here; nothing was written.
    """
    environ = dict(os.environ if environ is None else environ)
    clock = SystemClock() if clock is None else clock
    options = options or UpdateOptions()
    check_options(options, product)
    home = current_home(environ) if home is None else home
    run = Run(
        run_id=_run_id(options),
        root_home=root_home(home, environ),
        home=home,
        clock=clock,
        started_at=clock.time(),
        environ=environ,
        product=product,
        options=options,
        ask=None if options.yes else ask,
    )
    pipeline = _Pipeline(run=run, parts=parts or default_parts(), journal=Journal(run.root_home, clock))
    events = pipeline.events()
    try:
        async for event in events:
            yield masked_event(event)
    finally:
        await events.aclose()


def _run_id(options: UpdateOptions) -> str:
    return secrets.token_hex(16) if options.run_id is None else check_run_id(options.run_id)


@attrs.define(kw_only=True)
class _Pipeline:
    run: Run
    parts: UpdateParts
    journal: Journal

    @property
    def _going_back(self) -> bool:
        """Whether this is a deliberate way back (decision 44)."""
        return self.run.options.rollback is not None

    async def events(self) -> AsyncGenerator[Event, None]:
        """The whole run, from the lock to the last event."""
        run = self.run
        done = self._already()
        if done is not None:
            for event in done:
                yield event
            return
        admission = await self._admit()
        if admission is None:
            await asyncio.to_thread(check_choices, run)
        if isinstance(admission, ForeignOwner):
            self.journal.writes = False
            yield self._answer(admission)
            return
        lock = UpdateLock(run.root_home, stages.lock_file(run), run.product, run.environ)
        try:
            lock.acquire(run.started_at)
        except RefusedError as refused:
            for event in self._refused_by_lock(refused, admission):
                yield event
            return
        run.lock_fds = lock.fds
        try:
            events = self._locked(admission)
            try:
                async for event in events:
                    yield event
            finally:
                await events.aclose()
                self.parts.tidy(run)
        finally:
            lock.release()

    async def _admit(self) -> Refusal | NeduraError | None:
        """Admission looks before the lock, because the lock belongs to the install; what it says waits for the receipt."""
        try:
            return await self.parts.admit(self.run)
        except NeduraError as error:
            return error

    def _already(self) -> list[Event] | None:
        """The same run id again reports instead of repeating (decision 36); what a held lock kept from running is tried again."""
        store = ReceiptStore(self.run.root_home)
        receipt = store.find(self.run.run_id) if self.run.options.run_id else None
        if receipt is None or receipt.get("update_id") != self.run.run_id or not is_finished(receipt):
            return None
        if is_lock_refusal(receipt):
            return None
        outcome, path = str(receipt["outcome"]), str(store.path_of(receipt))
        exit_code = receipt.get("exit_code")
        if exit_code == 0 and self.run.options.strict and owed_steps(receipt):
            exit_code = 3
        return [
            AlreadyReported(run_id=self.run.run_id, outcome=outcome, receipt=path),
            finish_of(receipt, exit_code if isinstance(exit_code, int) else 1, path),
        ]

    def _refused_by_lock(self, refused: RefusedError, admission: Refusal | NeduraError | None) -> list[Event]:
        """An own archived receipt; `latest.json` belongs to the run that holds the lock (decision 18).

        What admission said comes first: who updates this install is the same answer on a read-only home or beside another run (C007).
        """
        self.journal.latest = False
        stages.refuse_chat(self.run, self.journal.store.newest())
        found: list[Event] = []
        if isinstance(refused, LockHeld) and not self.run.options.finish_only:
            found.append(self._take(self._started()))
        else:
            self.journal.writes = False
        found.append(self._answer(refused if admission is None else admission))
        return found

    def _answer(self, said: Refusal | NeduraError) -> UpdateFinished:
        """The last event of a run that admission or the lock kept from beginning."""
        if isinstance(said, RefusedError):
            return self._finish("refused", said.exit_code, reason=said.diagnostics(), stop_class=said.code)
        if isinstance(said, NeduraError):
            stop_class = said.stop_class if isinstance(said, UpdateError) else said.code
            return self._failed(said.diagnostics(), stop_class)
        return self._refusal(said)

    def _take(self, event: Event) -> Event:
        self.journal.take(event)
        return event

    def _started(self) -> UpdateStarted:
        run, me = self.run, myself()
        started = UpdateStarted(
            run_id=run.run_id,
            started_at=iso(run.started_at),
            install_id=run.install.install_id if run.install is not None else "",
            layout=run.layout,
            pid=me.pid,
            pid_create_time=me.create_time,
            argv=tuple(clean(redact(word), 300) for word in sys.argv),
            initiator=stages.initiator(run),
            correlation_id=run.product.setting(run.environ, "UPDATE_CORRELATION_ID") or None,
            action_id=stages.action_id(run) or None,
            pre_update=run.before,
            going_back=self._going_back,
        )
        place = self.journal.store.folder / receipt_name(started.started_at, me.pid, run.run_id)
        return attrs.evolve(started, receipt=str(place))

    async def _locked(self, admission: Refusal | NeduraError | None) -> AsyncGenerator[Event, None]:
        """Everything under the lock. Every way out closes the receipt."""
        stages.forget_exit_code(self.run)
        try:
            events = self._stages(admission)
            try:
                async for event in events:
                    yield event
            finally:
                await events.aclose()
            ending = self._ended()
        except Refused as refused:
            ending = self._refusal(refused.refusal)
        except NeduraError as error:
            ending = self._answer(error)
        except (asyncio.CancelledError, GeneratorExit):
            self._interrupted()
            raise
        except Exception as error:  # border of the generator: the receipt must close, whatever happened
            ending = self._failed(f"{type(error).__name__}: {clean(redact(str(error)), 300)}", "internal")
            self.run.notes["error"] = error
        for warning in (stages.write_exit_code(self.run, ending), self.journal.warning()):
            if warning is not None:
                yield warning
        yield ending

    async def _stages(self, admission: Refusal | NeduraError | None) -> AsyncGenerator[Event, None]:
        interrupted = list(close_interrupted(self.journal.store, self.run.clock.time()))
        yield self._take(self._started())
        if self.journal.failure:
            raise StoreError(
                f"The receipt cannot be written: {self.journal.failure}", advice="Nothing was changed."
            )
        for found in interrupted:
            yield self._take(found)
        if isinstance(admission, NeduraError):
            yield self._take(StepDone(name="admission", ok=False, detail=admission.message))
            raise admission
        if admission is not None:
            detail = f"{admission.code} {admission.command}".strip()
            yield self._take(StepDone(name="admission", ok=False, detail=detail))
            raise Refused(admission)
        for name, stage in stages.STAGES:
            events = self._stage(name, stage)
            try:
                async for event in events:
                    yield event
            finally:
                await events.aclose()

    async def _stage(self, name: str, stage: stages.StageFunction) -> AsyncGenerator[Event, None]:
        """One stage in its frame; what the completion child sends is recorded already."""
        if stages.is_skipped(name, self.run):
            return
        began = self.run.clock.monotonic()
        framed = name not in stages.UNFRAMED
        if framed:
            yield self._take(StageStarted(stage=name, going_back=self._going_back))
        try:
            events = within(self.run, name, stage(self.run, self.parts, self.journal))
            try:
                async for event in events:
                    yield event
            finally:
                await events.aclose()
        except Exception as error:  # border: the stage's end is told, then the error goes on
            if framed:
                yield self._take(self._end(name, began, error))
            raise
        if framed:
            yield self._take(self._end(name, began, None))

    def _end(self, name: str, began: float, error: Exception | None) -> StageFinished:
        reason = ""
        if error is not None:
            reason = error.message if isinstance(error, NeduraError) else type(error).__name__
        return StageFinished(
            stage=name,
            outcome="success" if error is None else "failed",
            reason=reason,
            seconds=round(self.run.clock.monotonic() - began, 3),
            facts={"mode": self.run.layout} if name == "commit" else {},
            going_back=self._going_back,
        )

    def _refusal(self, refusal: Refusal) -> UpdateFinished:
        reason = f"{refusal.message} {refusal.advice}".strip()
        return self._finish("refused", refusal.exit_code, reason=reason, stop_class=refusal.code)

    def _failed(self, reason: str, stop_class: str) -> UpdateFinished:
        """A failure before the commit point is exit 1. Behind it, it is owed and the run succeeds (the spec's Verify)."""
        if self.run.committed:
            self.journal.resume()
            self._take(FollowUp(step="completion", reason=reason))
            return self._ended(reason)
        return self._finish("failed", 1, reason=reason, stop_class=stop_class)

    def _ended(self, reason: str = "") -> UpdateFinished:
        """The last event of a run that was not stopped."""
        finished = self.run.notes.get("finished")
        if isinstance(finished, UpdateFinished):
            return finished
        return stages.last_word(self.run, self.journal, reason)

    def _interrupted(self) -> None:
        """Cancelled or closed: nobody listens any more, but the receipt says what happened."""
        if self.journal.finished:
            return
        self.journal.resume()
        where = (
            "after the commit point" if self.run.committed else "before the commit point; nothing was changed"
        )
        ending = self._finish("interrupted", 130, reason=f"interrupted {where}", stop_class="interrupted")
        stages.write_exit_code(self.run, ending)

    def _finish(
        self, outcome: Outcome, exit_code: int, *, reason: str = "", stop_class: str = ""
    ) -> UpdateFinished:
        event = stages.finished(
            self.run, self.journal, outcome, exit_code, reason=reason, stop_class=stop_class
        )
        self.journal.take(event)
        if self.journal.writes:
            self.journal.store.prune()
        return event
