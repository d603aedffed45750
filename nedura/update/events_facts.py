"""Facts that an update tells on its way: the plan, each snapshot, the candidate, the move, the way back, what became of each runtime."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final, final

import attrs

from nedura.installs import CodeIdentity
from nedura.text import counted
from nedura.update.event_words import size_text, version_text
from nedura.update.run import Candidate

__all__ = ["EVENTS", "Committed", "PlanReady", "Prepared", "RuntimeOutcomes", "SnapshotTaken", "TakenBack"]


@final
@attrs.frozen(kw_only=True)
class PlanReady:
    """The read-only inventory (facts/update.md 3.1) in its wire form.

    Attributes:
        plan: the plan as the receipt keeps it.
        summary: one line about the fleet.
    """

    kind: ClassVar[str] = "plan_ready"
    plan: Mapping[str, Any]
    summary: str = ""

    @property
    def copy(self) -> str:
        """Chat form."""
        count = len(self.plan.get("runtimes") or ())
        return f"Found {counted(count, 'running member')}."

    @property
    def copy_terminal(self) -> str:
        """Terminal form."""
        return f"  {self.summary}" if self.summary else ""


@final
@attrs.frozen(kw_only=True)
class SnapshotTaken:
    """A profile's quick snapshot is complete on disk.

    Attributes:
        profile: the profile.
        snapshot_id: folder name under its `state-snapshots/`.
        files, size: what it holds, bytes.
        incomplete: paths that could not be captured or were over the cap.
    """

    kind: ClassVar[str] = "snapshot_taken"
    profile: str
    snapshot_id: str
    files: int = 0
    size: int = 0
    incomplete: tuple[str, ...] = ()

    @property
    def copy(self) -> str:
        """Chat form: nothing; the stage says it."""
        return ""

    @property
    def copy_terminal(self) -> str:
        """Terminal form."""
        missing = f", without {', '.join(self.incomplete)}" if self.incomplete else ""
        mark = "⚠" if self.incomplete else "✓"
        many = counted(self.files, "file")
        return f"  {mark} {self.profile}: {self.snapshot_id} ({many}, {size_text(self.size)}){missing}"


def _named(code: CodeIdentity) -> str:
    """What is switched to, for a chat; a way back says the same, so nothing here is called new."""
    return version_text(code) or "the other version"


@final
@attrs.frozen(kw_only=True)
class Prepared:
    """Last event of prepare: what would become current.

    Attributes:
        candidate: what was built aside; what is current when nothing changed.
        changed: False means already up to date (decision 40).
        commits: how many commits newer, -1 when unknown.
    """

    kind: ClassVar[str] = "prepared"
    candidate: Candidate
    changed: bool
    commits: int = -1

    @property
    def copy(self) -> str:
        """Chat form."""
        return f"{_named(self.candidate.identity)} is ready." if self.changed else "Already up to date."

    @property
    def copy_terminal(self) -> str:
        """Terminal form."""
        name = version_text(self.candidate.identity)
        if not self.changed:
            return f"  Already up to date at {name}."
        ahead = f", {counted(self.commits, 'commit')} ahead" if self.commits > 0 else ""
        return f"  Ready: {name}{ahead}."


@final
@attrs.frozen(kw_only=True)
class Committed:
    """The commit point is behind us: from now on nothing fails the update.

    Attributes:
        before, now: the code before and after the move.
        branch: what it was updated against.
    """

    kind: ClassVar[str] = "committed"
    before: CodeIdentity
    now: CodeIdentity
    branch: str = ""

    @property
    def copy(self) -> str:
        """Chat form."""
        return f"Switched to {_named(self.now)}."

    @property
    def copy_terminal(self) -> str:
        """Terminal form."""
        drift = f" [{self.branch} @ {self.now.short()}]" if self.branch else ""
        return f"  {version_text(self.before) or 'nothing'} → {version_text(self.now)}{drift}"


@final
@attrs.frozen(kw_only=True)
class TakenBack:
    """The first member failed on the new code; the parent took the pointer back (decision 34).

    Attributes:
        check: which check of the first member failed.
        now: the code that is current again.
        restored: whether that member serves the old code again.
    """

    kind: ClassVar[str] = "taken_back"
    check: str
    now: CodeIdentity
    restored: bool = True

    @property
    def copy(self) -> str:
        """Chat form."""
        return "The new version did not come up, so the previous one is back."

    @property
    def copy_terminal(self) -> str:
        """Terminal form."""
        member = "" if self.restored else " Its first member is not serving yet."
        return f"✗ The first member failed ({self.check}). Back on {version_text(self.now)}.{member}"


@final
@attrs.frozen(kw_only=True)
class RuntimeOutcomes:
    """What became of each runtime of the plan (facts/update.md 8.4).

    Attributes:
        rows: `{kind, profile, pid, mechanism, outcome, reason}`, one a runtime.
    """

    kind: ClassVar[str] = "runtime_outcomes"
    rows: tuple[Mapping[str, Any], ...]

    @property
    def copy(self) -> str:
        """Chat form: nothing; the matrix says it."""
        return ""

    @property
    def copy_terminal(self) -> str:
        """Terminal form: only what is not accounted for."""
        lost = [row for row in self.rows if row.get("outcome") in ("failed", "unaccounted")]
        return "\n".join(
            f"⚠ {row.get('profile')} {row.get('kind')} (pid {row.get('pid')}): {row.get('outcome')}"
            + (f": {row.get('reason')}" if row.get("reason") else "")
            for row in lost
        )


EVENTS: Final[tuple[type[Any], ...]] = (
    PlanReady,
    SnapshotTaken,
    Prepared,
    Committed,
    TakenBack,
    RuntimeOutcomes,
)
"""Every kind of this module."""
