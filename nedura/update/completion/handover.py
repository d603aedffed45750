"""The old half's last stage: hand over to the new code, listen, judge its result, and keep the last word (facts/update.md 6)."""

from __future__ import annotations

import asyncio
import secrets
import shutil
import sys
import tempfile
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from nedura.errors import NeduraError, RecordMissing, StoreError, UpdateError
from nedura.records import read_json, write_json
from nedura.text import clean, clean_block
from nedura.update.commit_point import Armed, debt_of, owed_inventory, paths_of, tail_of
from nedura.update.completion.child import Child, ChildEnd
from nedura.update.completion.completion_parts import runs
from nedura.update.completion.request import CompletionRequest, CompletionResult, is_believable, judge
from nedura.update.completion.steps import why
from nedura.update.events import CompletionStarted, FollowUp, TakenBack, UpdateFinished
from nedura.update.kinds import known_kinds
from nedura.update.ledger.journal import Journal
from nedura.update.ledger.leftovers import scratch_prefix
from nedura.update.ledger.masks import masked_record
from nedura.update.ledger.receipt import owed_steps, unreadable
from nedura.update.ledger.receipt_shape import agreed
from nedura.update.parts import UpdateParts
from nedura.update.run import Run
from nedura.update.stages import way_back
from nedura.update.within import limit_of, to_the_end
from nedura.wire import Event, from_wire

__all__ = ["completion", "scrubbed"]

MAX_RESULT: Final = 16 * 1024 * 1024
_OWN_WORDS: Final = frozenset({"update_started", "update_finished"})
"""Kinds that only the parent says; from a child they count through its correlated result alone."""
_OWN_FIELDS: Final = (
    "schema", "update_id", "correlation_id", "action_id", "started_at", "argv", "pid", "pid_create_time", "initiator",
    "install_id", "layout", "pre_update",
)  # fmt: skip
"""What a receipt says about the run itself: the parent knows it, the child only repeats it."""


async def completion(run: Run, parts: UpdateParts, journal: Journal) -> AsyncGenerator[Event, None]:
    """Run the completion child and settle what it leaves; `needed` has said that there is something to do."""
    handover = _Handover(run, parts, journal)
    try:
        events = handover.events()
        try:
            async for event in events:
                yield event
        finally:
            await events.aclose()
    finally:
        await to_the_end(handover.close())
    events = handover.settle()
    try:
        async for event in events:
            yield event
    finally:
        await events.aclose()


class _Handover:
    """One child, its folder, and what came of it."""

    def __init__(self, run: Run, parts: UpdateParts, journal: Journal) -> None:
        self._run = run
        self._parts = parts
        self._journal = journal
        self._folder: Path | None = None
        self._child: Child | None = None
        self._request: CompletionRequest | None = None
        self._end = ChildEnd()
        self._value: Any = None
        self._mine = dict(journal.receipt)  # as it stood before new code had a word
        self.failure = ""

    async def events(self) -> AsyncGenerator[Event, None]:
        """Start it and re-yield what it says."""
        try:
            child, request = await self._start()
        except (OSError, NeduraError) as error:
            self.failure = f"it could not be started: {why(error)}"
            return
        yield self._take(CompletionStarted(pid=child.pid, going_back=self._run.options.rollback is not None))
        records = child.records(request.deadline)
        try:
            async for record in records:
                event = self._heard(record)
                if event is not None:
                    yield event
        finally:
            await records.aclose()
        self._end = child.end

    async def _start(self) -> tuple[Child, CompletionRequest]:
        self._folder = Path(
            await asyncio.to_thread(tempfile.mkdtemp, prefix=scratch_prefix(self._run.product.command))
        )
        request = build_request(self._run, self._journal, self._folder)
        child = self._child = self._parts.spawn(self._run, request, self._folder, self._journal.note)
        request = self._request = attrs.evolve(request, events_fd=child.events_fd)
        tail = tail_of(self._run)
        tail.arm()
        extra = {"roots": list(self._run.product.roots), "tail": str(tail.path)}
        write_json(self._folder / "request.json", {**request.to_json(), **extra}, indent=None)
        child.argv = [*await self._parts.scope(), *child.argv]
        await child.start()
        return child, request

    def _take(self, event: Event) -> Event:
        self._journal.take(event)
        return event

    def _heard(self, record: Mapping[str, Any]) -> Event | None:
        """One record of the child: scrubbed, folded, and as an event. From the first one on it is the writer."""
        self._journal.writes = False
        safe = masked_record(scrubbed(record))
        if safe["kind"] in _OWN_WORDS:
            return None
        self._journal.take_record(safe)
        return from_wire({key: value for key, value in safe.items() if key != "at"}, known_kinds())

    async def close(self) -> None:
        """End whatever still runs, read the result, remove the folder."""
        if self._child is not None:
            await self._child.kill()
            self._end = self._child.end
        if self._folder is not None:
            try:
                self._value = read_json(self._folder / "result.json", MAX_RESULT)
            except RecordMissing:
                self._value = None
            except StoreError as error:
                self._value = {"unreadable": error.message}
            await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)

    async def settle(self) -> AsyncGenerator[Event, None]:
        """Believe the result, or say what is owed."""
        result, reason = None, self.failure
        if not reason and self._request is not None:
            if self._end.stopped:
                reason = {"deadline": "it did not end by its deadline", "flood": "it sent too much"}.get(
                    self._end.stopped, self._end.stopped
                )
            else:
                result, reason = judge(self._request, self._value, self._end.status)
        self._journal.resume()
        if result is not None and result.receipt is not None:
            self._accept(result)
        elif result is not None and self._may_take_back(result):
            events = self._take_back(result)
            try:
                async for event in events:
                    yield event
            finally:
                await events.aclose()
        elif not self._closed_by_child():
            events = self._owe(reason or "its result is not believed")
            try:
                async for event in events:
                    yield event
            finally:
                await events.aclose()

    def _accept(self, result: CompletionResult) -> None:
        """The child's receipt is the run's receipt; the parent still has the last word on the exit code."""
        assert result.receipt is not None
        mine = self._journal.receipt
        theirs = agreed(masked_record(scrubbed(result.receipt)), mine)
        self._journal.receipt = {**theirs, **{key: mine[key] for key in _OWN_FIELDS if key in mine}}
        self._finish_from_receipt()

    def _closed_by_child(self) -> bool:
        """The child closed the receipt and died before it left a result: that receipt counts (facts/update.md 6.7)."""
        if not is_believable(self._journal.receipt) or self._end.stopped:
            return False
        self._finish_from_receipt()
        return True

    def _keep_what_was_said(self) -> None:
        """What the old half owes or left to the user stays in the receipt, whatever the child made of it, and counts for the ending."""
        receipt = self._journal.receipt
        rows = [*receipt["followups"]]
        known = {(row.get("step"), row.get("reason")) for row in rows}
        dropped = [
            row for row in self._mine["followups"] if (row.get("step"), row.get("reason")) not in known
        ]
        receipt |= {
            "followups": [*dropped, *rows],
            "user_action": receipt.get("user_action") or self._mine.get("user_action"),
        }
        if receipt["user_action"] and receipt["outcome"] == "success":
            receipt |= {"outcome": "partial", "exit_code": 1}
        self._journal.receipt = receipt

    def _finish_from_receipt(self) -> None:
        self._keep_what_was_said()
        run, receipt = self._run, self._journal.receipt
        followups = owed_steps(receipt)
        exit_code = int(receipt.get("exit_code") or 0)
        event = UpdateFinished(
            run_id=run.run_id,
            outcome=str(receipt["outcome"]),
            exit_code=3 if run.options.strict and exit_code == 0 and followups else exit_code,
            finished_at=str(receipt.get("finished_at", "")),
            stop_reason=str(receipt.get("stop_reason", "")),
            stop_class=str(receipt.get("stop_class", "")),
            followups=tuple(followups),
            receipt=str(self._journal.store.path_of(receipt)),
            changed=run.committed,
            now=run.candidate.identity if run.candidate is not None else run.before,
            unreadable=unreadable(receipt),
            **way_back(run, receipt),
        )
        if event.exit_code != exit_code or (event.went_behind and not receipt.get("went_behind")):
            self._journal.take(event)  # an older child that a way back has started knows of no way back
        else:
            self._journal.write()  # the last word is ours, whatever the child managed to write
        self._journal.store.prune()
        run.notes["finished"] = event

    async def _owe(self, reason: str) -> AsyncGenerator[Event, None]:
        """A completion that could not be started or left no word is owed: tail armed, exit 0."""
        words = f": {self._end.last_words}" if self._end.last_words and not self.failure else ""
        yield self._take(
            FollowUp(step="completion", reason=f"the completion process failed, {reason}{words}")
        )
        try:
            tail_of(self._run).arm()
            debt_of(self._run).arm(
                now=self._run.clock.time(),
                owner=self._run.run_id,
                expected=self._run.candidate.identity
                if self._run.candidate is not None
                else self._run.before,
                inventory=owed_inventory(self._run),
            )
        except StoreError as error:
            yield self._take(FollowUp(step="completion", reason=f"it cannot even be recorded: {why(error)}"))

    def _may_take_back(self, result: CompletionResult) -> bool:
        run = self._run
        return (
            bool(result.first_member)
            and run.committed
            and run.layout == "sealed"
            and run.previous is not None
        )

    async def _take_back(self, result: CompletionResult) -> AsyncGenerator[Event, None]:
        """The pointer back, that member back, obligations back: this process, never the new code (decision 34).

        Raises:
            UpdateError: always; the run is rolled back.
        """
        run, check = self._run, clean(result.first_member, 80)
        self._parts.take_back(run)
        run.committed = False
        self._parts.remember_failed(run, check)
        restored = True
        fleet = self._parts.fleet(run)
        found = await fleet.collect()
        other = [one for one in found.runtimes if one.kind == "gateway" and not runs(run.before, one.code)]
        events = fleet.rest([*other, *found.gone], run.before, ())
        try:
            async for event in events:
                restored = restored and event.kind != "member_failed"
                yield self._take(event)
        finally:
            await events.aclose()
        self._give_back(restored)
        yield self._take(TakenBack(check=check, now=run.before, restored=restored))
        raise UpdateError(f"first_member:{check}", stop_class="first_member")

    def _give_back(self, restored: bool) -> None:
        """Nothing of the new version is owed any more; a member that did not come back stays owed on the old one."""
        armed = self._run.notes.get("armed")
        if isinstance(armed, Armed):
            armed.hand_back()
        if not restored:
            debt_of(self._run).arm(
                now=self._run.clock.time(),
                owner=self._run.run_id,
                expected=self._run.before,
                inventory=owed_inventory(self._run),
            )


def build_request(run: Run, journal: Journal, folder: Path) -> CompletionRequest:
    """What the new code is told."""
    candidate = run.candidate
    assert candidate is not None
    options = run.options
    return CompletionRequest(
        update_id=run.run_id,
        nonce=secrets.token_hex(16),
        source=str(run.checkout if run.layout != "sealed" and run.checkout is not None else candidate.tree),
        root_home=str(run.root_home),
        home=str(run.home),
        install_id=paths_of(run).install_id,
        layout=run.layout,
        python=str(candidate.python) if run.layout == "sealed" else sys.executable,
        environment=run.notes.get("environment"),
        product=attrs.asdict(run.product),
        options={
            "yes": options.yes,
            "gateway_mode": options.gateway_mode,
            "no_gateway_restart": options.no_gateway_restart,
        },
        before=run.before,
        expected=candidate.identity,
        branch=str(run.notes.get("branch", "")),
        changed=run.changed,
        first_member=run.changed and run.layout == "sealed",
        snapshots=dict(run.snapshots),
        plan=journal.receipt.get("plan"),
        receipt=journal.receipt,
        receipt_path=str(journal.store.path_of(journal.receipt)),
        deadline=run.started_at + limit_of(run),
        message="" if run.changed else "already up to date",
        windows_resume=run.notes.get("windows_resume"),
        channel_retirement=run.notes.get("channel_retirement"),
        way_back=way_back(run, journal.receipt),
        notes=dict(run.notes.get("for_completion") or {}),
    )


def scrubbed(value: Any, depth: int = 0) -> Any:
    """A record of the other process without control characters, at any depth; what is nested deeper than 12 is cut."""
    if depth > 12:
        return None
    if isinstance(value, str):
        return clean_block(value)
    if isinstance(value, Mapping):
        return {clean(key, 80): scrubbed(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list):
        return [scrubbed(item, depth + 1) for item in value]
    return value
