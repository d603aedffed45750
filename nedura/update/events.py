"""What an update tells: its frame (run, stages, steps, follow-ups, end); the facts every surface shows come from `events_facts`.

Stage owners keep events of their own area in `events_<area>.py` with the same shape and an `EVENTS` tuple; `kinds.py` lists those
modules. The receipt is a fold over the wire form of this stream (architecture.md rule 2).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final, final

import attrs

from nedura.installs import CodeIdentity
from nedura.text import one_line
from nedura.update.event_words import (
    FOLLOWUP_PREFIX,
    FOLLOWUP_WORDS,
    RETRIED_BY,
    RETRIED_BY_UPDATE,
    STAGE_WORDS,
    Outcome,
    Stage,
    StageOutcome,
    size_text,
    stage_words,
    version_text,
)
from nedura.update.events_facts import (
    Committed,
    PlanReady,
    Prepared,
    RuntimeOutcomes,
    SnapshotTaken,
    TakenBack,
)
from nedura.wire import LATER

__all__ = [
    "EVENTS",
    "FOLLOWUP_PREFIX",
    "FOLLOWUP_WORDS",
    "RETRIED_BY",
    "STAGE_WORDS",
    "AlreadyReported",
    "Committed",
    "CompletionStarted",
    "FollowUp",
    "InterruptedFound",
    "Notice",
    "Outcome",
    "PlanReady",
    "Prepared",
    "Progress",
    "RuntimeOutcomes",
    "Skipped",
    "SnapshotTaken",
    "Stage",
    "StageFinished",
    "StageOutcome",
    "StageStarted",
    "StepDone",
    "TakenBack",
    "UpdateFinished",
    "UpdateStarted",
    "UserAction",
    "size_text",
    "version_text",
]


@final
@attrs.frozen(kw_only=True)
class UpdateStarted:
    """A run has begun and its receipt is on disk as `running`.

    Attributes:
        run_id: id of run and receipt.
        started_at: ISO UTC.
        install_id, layout: the install.
        pid, pid_create_time: the parent process.
        argv: command line, redacted.
        initiator: `desktop`, `gateway` or `cli`.
        correlation_id, action_id: ids of an outside launcher and of a dashboard action, or None.
        pre_update: the code that was current.
        receipt: path of the receipt.
        going_back: it is a deliberate way back.
    """

    kind: ClassVar[str] = "update_started"
    run_id: str
    started_at: str
    install_id: str = ""
    layout: str = "sealed"
    pid: int = 0
    pid_create_time: float = 0.0
    argv: tuple[str, ...] = ()
    initiator: str = "cli"
    correlation_id: str | None = None
    action_id: str | None = None
    pre_update: CodeIdentity = attrs.field(factory=CodeIdentity)
    receipt: str = ""
    going_back: bool = attrs.field(default=False, metadata=LATER)

    @property
    def copy(self) -> str:
        """Chat form."""
        return "Going back to an earlier version." if self.going_back else "Updating."

    @property
    def copy_terminal(self) -> str:
        """Terminal form."""
        running = version_text(self.pre_update)
        doing = "Going back: install" if self.going_back else "Updating install"
        return f"{doing} {self.install_id or 'unknown'}" + (f", now {running}." if running else ".")


@final
@attrs.frozen(kw_only=True)
class InterruptedFound:
    """An earlier run never closed its receipt and its processes are gone; it is closed as interrupted now."""

    kind: ClassVar[str] = "interrupted_found"
    run_id: str
    last_stage: str
    receipt: str = ""

    @property
    def copy(self) -> str:
        """Chat form."""
        return "An earlier update was interrupted. This one finishes what it left."

    @property
    def copy_terminal(self) -> str:
        """Terminal form."""
        where = f" in stage {self.last_stage}" if self.last_stage else ""
        return f"The update {self.run_id[:8]} was interrupted{where}. This run finishes what it left owed."


@final
@attrs.frozen(kw_only=True)
class AlreadyReported:
    """A run with this id exists; it is reported, not repeated (decision 36)."""

    kind: ClassVar[str] = "already_reported"
    run_id: str
    outcome: str
    receipt: str = ""

    @property
    def copy(self) -> str:
        """Chat form."""
        return "This update was already run; here is how it ended."

    @property
    def copy_terminal(self) -> str:
        """Terminal form."""
        return f"Run {self.run_id} was already made, outcome {self.outcome}: {self.receipt}"


@final
@attrs.frozen(kw_only=True)
class StageStarted:
    """A stage has begun; `going_back` in a deliberate way back."""

    kind: ClassVar[str] = "stage_started"
    stage: str
    going_back: bool = attrs.field(default=False, metadata=LATER)

    @property
    def copy(self) -> str:
        """Chat form."""
        return stage_words(self.stage, self.going_back) + "."

    @property
    def copy_terminal(self) -> str:
        """Terminal form."""
        return f"→ {stage_words(self.stage, self.going_back)}"


@final
@attrs.frozen(kw_only=True)
class StageFinished:
    """A stage has ended.

    Attributes:
        stage: its name.
        outcome: how.
        reason: why it failed or was skipped, one line.
        facts: numbers and names worth keeping, e.g. `mode`.
        seconds: how long it took.
        going_back: of a deliberate way back.
    """

    kind: ClassVar[str] = "stage_finished"
    stage: str
    outcome: StageOutcome = "success"
    reason: str = ""
    facts: Mapping[str, Any] = attrs.field(factory=dict)
    seconds: float = 0.0
    going_back: bool = attrs.field(default=False, metadata=LATER)

    @property
    def copy(self) -> str:
        """Chat form: only what did not work."""
        words = stage_words(self.stage, self.going_back).lower()
        return f"Not done: {words}." if self.outcome == "failed" else ""

    @property
    def copy_terminal(self) -> str:
        """Terminal form."""
        mark = {"success": "✓", "failed": "✗", "skipped": "↷"}[self.outcome]
        reason = f": {self.reason}" if self.reason else ""
        return f"{mark} {self.stage}{reason}" + (f" ({self.seconds:.1f} s)" if self.seconds >= 0.05 else "")


@final
@attrs.frozen(kw_only=True)
class StepDone:
    """A step inside a stage that the receipt names."""

    kind: ClassVar[str] = "step"
    name: str
    ok: bool = True
    detail: str = ""

    @property
    def copy(self) -> str:
        """Chat form: nothing, steps are detail."""
        return ""

    @property
    def copy_terminal(self) -> str:
        """Terminal form."""
        return f"  {'✓' if self.ok else '✗'} {self.name.replace('_', ' ')}" + (
            f": {self.detail}" if self.detail else ""
        )


@final
@attrs.frozen(kw_only=True)
class Skipped:
    """Something was left out on purpose; the receipt keeps the reason. `configured`: always, by configuration, so no line tells it."""

    kind: ClassVar[str] = "skipped"
    name: str
    reason: str
    configured: bool = attrs.field(default=False, metadata=LATER)

    @property
    def copy(self) -> str:
        """Chat form: nothing, it was asked for."""
        return ""

    @property
    def copy_terminal(self) -> str:
        """Terminal form."""
        return "" if self.configured else f"  ↷ {self.name.replace('_', ' ')} skipped: {self.reason}"


@final
@attrs.frozen(kw_only=True)
class Notice:
    """One line worth showing and logging that changes nothing."""

    kind: ClassVar[str] = "notice"
    text: str
    warning: bool = False

    @property
    def copy(self) -> str:
        """Chat form: nothing, notices are for the terminal."""
        return ""

    @property
    def copy_terminal(self) -> str:
        """Terminal form."""
        return f"  {'⚠ ' if self.warning else ''}{self.text}"


@final
@attrs.frozen(kw_only=True)
class Progress:
    """How far a long piece of work has come. Never recorded.

    Attributes:
        stage: the stage it belongs to.
        label: what is being done.
        done, total: amounts; total 0 when unknown.
    """

    kind: ClassVar[str] = "progress"
    stage: str
    label: str
    done: int = 0
    total: int = 0

    @property
    def copy(self) -> str:
        """Chat form: nothing."""
        return ""

    @property
    def copy_terminal(self) -> str:
        """Terminal form: nothing by itself; live views draw it."""
        return ""


@final
@attrs.frozen(kw_only=True)
class CompletionStarted:
    """The code that is current now has taken over, as a process `pid`; the parent waits. After a way back that code is not new."""

    kind: ClassVar[str] = "completion_started"
    pid: int
    going_back: bool = attrs.field(default=False, metadata=LATER)

    @property
    def copy(self) -> str:
        """Chat form: nothing."""
        return ""

    @property
    def copy_terminal(self) -> str:
        """Terminal form."""
        who = "The code that is back finishes this" if self.going_back else "New code finishes the update"
        return f"  {who} (process {self.pid})."


@final
@attrs.frozen(kw_only=True)
class FollowUp:
    """A step after the commit point failed; it stays owed and is retried.

    Attributes:
        step: closed name (facts/update.md 9.2).
        reason: one line, at most 500 characters.
        retried_by: what tries it again.
    """

    kind: ClassVar[str] = "follow_up"
    step: str
    reason: str
    retried_by: str = attrs.field()

    @retried_by.default
    def _by(self) -> str:
        return RETRIED_BY_UPDATE if self.step == "gateway_restart" else RETRIED_BY

    @property
    def copy(self) -> str:
        """Chat form."""
        return f"Still to do: {FOLLOWUP_WORDS.get(self.step, self.step)}. It will be tried again."

    @property
    def copy_terminal(self) -> str:
        """Terminal form: ONE line."""
        return f"{FOLLOWUP_PREFIX} '{one_line(self.step)}': {one_line(self.reason)} ({self.retried_by})"


@final
@attrs.frozen(kw_only=True)
class UserAction:
    """Something only the user can finish; the run ends `partial`."""

    kind: ClassVar[str] = "user_action"
    step: str
    reason: str

    @property
    def copy(self) -> str:
        """Chat form."""
        return "Local changes could not be carried over; they are kept and wait for you."

    @property
    def copy_terminal(self) -> str:
        """Terminal form."""
        return f"⚠ Yours to do ({self.step}): {self.reason}"


@final
@attrs.frozen(kw_only=True)
class UpdateFinished:
    """Last event of every run.

    Attributes:
        run_id, outcome, exit_code: how it ended.
        finished_at: ISO UTC.
        stop_reason, stop_class: why, when it did not just succeed.
        followups: steps that stay owed.
        receipt: path of the receipt, empty when none could be written.
        changed: whether the code moved and stayed moved.
        now: the code that is current.
        unreadable: processes and units that could not be read: nobody knows what they run (case C194).
        went_behind: of a deliberate way back the run whose move was undone, empty for an update.
        restored: what came back besides code and environment, empty when state stayed as it is.
    """

    kind: ClassVar[str] = "update_finished"
    run_id: str
    outcome: str
    exit_code: int
    finished_at: str = ""
    stop_reason: str = ""
    stop_class: str = ""
    followups: tuple[str, ...] = ()
    receipt: str = ""
    changed: bool = False
    now: CodeIdentity = attrs.field(factory=CodeIdentity)
    unreadable: int = 0
    went_behind: str = ""
    restored: str = ""

    @property
    def _done(self) -> str:
        if self.went_behind:
            return "Went back to the version before" if self.changed else "Already at the version before"
        return "Updated" if self.changed else "Already up to date"

    @property
    def copy(self) -> str:
        """Chat form."""
        match self.outcome:
            case "success" if self.unreadable and self.changed:
                return f"{self._done}, but {self.unreadable} running things could not be read and may run another."
            case "success" if self.followups:
                return f"{self._done}. Some steps are still to do and will be tried again."
            case "success":
                return f"{self._done}."
            case "partial":
                return f"{self._done}, but your local changes wait for you."
            case "interrupted":
                return "The update was interrupted. The next one finishes what it left."
            case "refused":
                return "This update was refused; nothing was changed."
            case _ if self.went_behind:
                return "Going back failed; nothing was changed."
            case _:
                return "The update failed; nothing was changed."

    @property
    def _moved(self) -> str:
        """What runs now, and for a way back what it undid and what came back with the code."""
        name = version_text(self.now)
        if not self.went_behind:
            return f"Updated to {name}" if self.changed else f"Already up to date at {name}"
        behind = f"{name}, the code before run {self.went_behind[:8]}"
        if not self.changed and not self.restored:
            return f"Already back at {behind}"
        state = f"state restored: {self.restored}" if self.restored else "state stays as it is"
        return f"{'Went back to' if self.changed else 'Already back at'} {behind}; {state}"

    @property
    def copy_terminal(self) -> str:
        """Terminal form."""
        reason = f" {self.stop_reason}" if self.stop_reason else ""
        owed = f" Owed: {', '.join(self.followups)}." if self.followups else ""
        if self.unreadable:
            owed += f" {self.unreadable} could not be read: unknown what they run. See: nedura fleet status"
        match self.outcome:
            case "success" if self.changed and self.unreadable:
                return f"? {self._moved}, not fully verified.{owed}"
            case "success" if not self.changed and not version_text(self.now):
                return f"✓ Already up to date.{owed}"
            case "success":
                return f"✓ {self._moved}.{owed}"
            case "partial":
                return f"⚠ {self._moved}, but something waits for you.{reason}{owed}"
            case "interrupted":
                where = self.stop_reason.removeprefix("interrupted").strip().rstrip(".")
                rest = "" if where and not self.changed else " The next update finishes what is owed."
                return f"✗ Interrupted{' ' if where else ''}{where}.{rest}"
            case "refused":
                return f"✗ Refused.{reason}"
            case _:
                return f"✗ Failed.{reason}"


EVENTS: Final[tuple[type[Any], ...]] = (
    UpdateStarted,
    InterruptedFound,
    AlreadyReported,
    StageStarted,
    StageFinished,
    StepDone,
    Skipped,
    Notice,
    Progress,
    PlanReady,
    SnapshotTaken,
    Prepared,
    Committed,
    TakenBack,
    CompletionStarted,
    FollowUp,
    UserAction,
    RuntimeOutcomes,
    UpdateFinished,
)
"""Every kind of this module and of `events_facts`, which it also names."""
