"""The stages of the old half, in order, and what each sets on the run.

Each is one async generator of events that are already in the journal. prepare, validate and commit together are the spec's "apply";
the last one hands over to the new code and judges what comes back.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from pathlib import Path
from typing import Any, Final

from nedura.clock import iso
from nedura.errors import UpdateError
from nedura.installs import CodeIdentity
from nedura.update.commit_point import arm
from nedura.update.completion.needed import is_needed
from nedura.update.completion.steps import ending
from nedura.update.events import Committed, Outcome, Prepared, UpdateFinished
from nedura.update.exit_code import forget_old_code, tell_chat
from nedura.update.ledger import marker
from nedura.update.ledger.journal import Journal
from nedura.update.ledger.lock import lock_place
from nedura.update.ledger.receipt import owed_steps, unreadable
from nedura.update.parts import UpdateParts
from nedura.update.prompt import forget_old_prompt
from nedura.update.run import Run
from nedura.wire import Event

__all__ = [
    "STAGES",
    "UNFRAMED",
    "StageFunction",
    "action_id",
    "finished",
    "forget_exit_code",
    "initiator",
    "is_skipped",
    "last_word",
    "lock_file",
    "refuse_chat",
    "way_back",
    "write_exit_code",
]

StageFunction = Callable[[Run, UpdateParts, Journal], AsyncGenerator[Event, None]]


async def _told(journal: Journal, source: AsyncGenerator[Event, None]) -> AsyncGenerator[Event, None]:
    """Put a part's events into the journal on their way out."""
    events = source
    try:
        async for event in events:
            journal.take(event)
            yield event
    finally:
        await events.aclose()


async def plan(run: Run, parts: UpdateParts, journal: Journal) -> AsyncGenerator[Event, None]:
    """Read-only inventory, recorded right after the receipt opens; later the worklist of reconciliation."""
    events = _told(journal, parts.plan(run))
    try:
        async for event in events:
            yield event
    finally:
        await events.aclose()


async def snapshot(run: Run, parts: UpdateParts, journal: Journal) -> AsyncGenerator[Event, None]:
    """Quick snapshots of every profile."""
    events = _told(journal, parts.snapshot(run))
    try:
        async for event in events:
            if event.kind == "snapshot_taken":
                run.snapshots[getattr(event, "profile", "")] = getattr(event, "snapshot_id", "")
            yield event
    finally:
        await events.aclose()


async def prepare(run: Run, parts: UpdateParts, journal: Journal) -> AsyncGenerator[Event, None]:
    """Build the candidate aside."""
    events = _told(journal, parts.prepare(run))
    try:
        async for event in events:
            if isinstance(event, Prepared):
                run.candidate, run.changed = event.candidate, event.changed
            yield event
    finally:
        await events.aclose()
    if run.candidate is None:
        raise UpdateError("Nothing was prepared.", stop_class="internal")


async def validate(run: Run, parts: UpdateParts, journal: Journal) -> AsyncGenerator[Event, None]:
    """Compile, import, rehearse, boot the probe."""
    events = _told(journal, parts.validate(run))
    try:
        async for event in events:
            yield event
    finally:
        await events.aclose()


async def commit(run: Run, parts: UpdateParts, journal: Journal) -> AsyncGenerator[Event, None]:
    """Obligations durable, then the one move. A failure before the move hands them back byte for byte."""
    armed = arm(run)
    try:
        events = _told(journal, parts.commit(run))
        try:
            async for event in events:
                if isinstance(event, Committed):
                    run.committed = True
                yield event
        finally:
            await events.aclose()
    except asyncio.CancelledError:
        if not run.committed and armed.arrived(run):  # the move was whole before the cancellation was seen
            run.committed = True
            journal.take(Committed(before=run.before, now=_candidate_code(run)))
        elif not run.committed and not armed.moved(run):
            armed.hand_back()
        raise
    except BaseException:
        if not run.committed and not armed.moved(run):
            armed.hand_back()
        raise
    run.notes["armed"] = armed
    armed.moved_on(run)


def _candidate_code(run: Run) -> CodeIdentity:
    return run.candidate.identity if run.candidate is not None else run.before


def completion(run: Run, parts: UpdateParts, journal: Journal) -> AsyncGenerator[Event, None]:
    """Hand over to the new code. Loaded when it is needed; a working tree's move has loaded it before (`preload`)."""
    from nedura.update.completion.handover import completion as hand_over

    return hand_over(run, parts, journal)


STAGES: Final[tuple[tuple[str, StageFunction], ...]] = (
    ("plan", plan),
    ("snapshot", snapshot),
    ("prepare", prepare),
    ("validate", validate),
    ("commit", commit),
    ("completion", completion),
)
"""The update, in order."""

UNFRAMED: Final = frozenset({"completion"})
"""Stages without an own frame: the completion's stages frame themselves."""


def is_skipped(name: str, run: Run) -> bool:
    """Already up to date: nothing to validate and nothing to move (decision 40), and mostly nothing to complete."""
    if name == "completion":
        return not is_needed(run)
    return name in ("validate", "commit") and run.candidate is not None and not run.changed


def lock_file(run: Run) -> Path:
    """The install's lock: beside its generations (sealed), in the git folder (checkout), else in the root home."""
    sealed = run.layout == "sealed" or run.checkout is None
    folder = run.root_home if run.install is None else run.install.folder
    return lock_place(folder, None if sealed else run.checkout, run.product)


def initiator(run: Run) -> str:
    """Who started the run."""
    if run.options.gateway_mode:
        return "gateway"
    return "desktop" if action_id(run) else "cli"


def action_id(run: Run) -> str:
    """Id of the dashboard action this run answers for, empty when there is none."""
    return marker.action_id(run.environ, run.product)


def finished(
    run: Run, journal: Journal, outcome: Outcome, exit_code: int, *, reason: str = "", stop_class: str = ""
) -> UpdateFinished:
    """The last event."""
    current = (
        run.candidate.identity
        if run.candidate is not None and (run.committed or not run.changed)
        else run.before
    )
    try:
        never = not journal.receipt["started_at"] or (journal.failure and journal.path is None)
        path = "" if never else str(journal.store.path_of(journal.receipt))
    except (KeyError, ValueError):
        path = ""
    return UpdateFinished(
        run_id=run.run_id,
        outcome=outcome,
        exit_code=exit_code,
        finished_at=iso(run.clock.time()),
        stop_reason=reason,
        stop_class=stop_class,
        followups=tuple(owed_steps(journal.receipt)),
        receipt=path,
        changed=run.committed,
        now=current,
        unreadable=unreadable(journal.receipt),
        **way_back(run, journal.receipt),
    )


def way_back(run: Run, receipt: Mapping[str, Any]) -> dict[str, str]:
    """The fields of the last event that only a deliberate way back fills: what it undid, and which state came back."""
    behind = str(run.notes.get("went_behind", ""))
    if not behind:
        return {}
    rows = [row for row in receipt.get("steps") or () if isinstance(row, Mapping)]
    state = [
        str(row.get("detail", "")) for row in rows if row.get("name") == "state_restored" and row.get("ok")
    ]
    return {"went_behind": behind, "restored": "; ".join(state)}


def last_word(run: Run, journal: Journal, reason: str = "") -> UpdateFinished:
    """The parent closes a run that is committed or was current already."""
    owed = owed_steps(journal.receipt)
    end = ending(
        followups=owed,
        user_action=bool(journal.receipt.get("user_action")),
        strict=run.options.strict,
    )
    event = finished(run, journal, end["outcome"], end["exit_code"], reason=reason)
    journal.take(event)
    journal.store.prune()
    return event


def write_exit_code(run: Run, ending: UpdateFinished) -> Event | None:
    """How the run ended, for the chat that asked for it; what to show when that cannot be written."""
    return tell_chat(run.home, 0 if ending.exit_code in (0, 3) else 1) if run.options.gateway_mode else None


def refuse_chat(run: Run, newest: Mapping[str, Any] | None) -> None:
    """A chat whose update is refused for another's lock hears 1, unless the one that runs is a chat's, too: that one's file it is."""
    running = newest is not None and newest.get("outcome") == "running"
    if run.options.gateway_mode and not (running and newest and newest.get("initiator") == "gateway"):
        tell_chat(run.home, 1)


def forget_exit_code(run: Run) -> None:
    """What an earlier run told a chat is no answer to this one."""
    if run.options.gateway_mode:
        forget_old_code(run.home)
        forget_old_prompt(run.home)
