"""What snapshots, backups, restores and the maintenance nets tell, beside `SnapshotTaken` of the frame."""

from __future__ import annotations

from typing import Any, ClassVar, Final, final

import attrs

from nedura.text import clean, counted
from nedura.update.events import size_text
from nedura.wire import LATER

__all__ = [
    "EVENTS",
    "BackupFailed",
    "BackupTaken",
    "NetRestored",
    "SnapshotFailed",
    "SnapshotRestored",
    "SnapshotsStarted",
]


def _listed(names: tuple[str, ...], limit: int = 5) -> str:
    """The first names of a list and how many more there are."""
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more


@final
@attrs.frozen(kw_only=True)
class SnapshotsStarted:
    """Snapshots of these profiles begin; told before the first file is looked at.

    Attributes:
        profiles: every profile, in order.
        label: why.
    """

    kind: ClassVar[str] = "snapshots_started"
    profiles: tuple[str, ...]
    label: str = "pre-update"

    @property
    def copy(self) -> str:
        """Chat form: nothing; the stage says it."""
        return ""

    @property
    def copy_terminal(self) -> str:
        """Terminal form."""
        return f"  Saving {counted(len(self.profiles), 'profile')}: {_listed(self.profiles)}"


@final
@attrs.frozen(kw_only=True)
class SnapshotFailed:
    """A profile has no snapshot of this run; the others are not touched by that.

    Attributes:
        profile: the profile.
        reason: why, one line.
    """

    kind: ClassVar[str] = "snapshot_failed"
    profile: str
    reason: str

    @property
    def copy(self) -> str:
        """Chat form."""
        return f"No snapshot could be saved for {self.profile}."

    @property
    def copy_terminal(self) -> str:
        """Terminal form."""
        return f"  ✗ {self.profile}: no snapshot: {self.reason}"


@final
@attrs.frozen(kw_only=True)
class SnapshotRestored:
    """Files of a snapshot are back in a home.

    Attributes:
        profile: the profile.
        snapshot_id: the snapshot.
        restored: paths that were put back.
        kept: path -> why the newer live file stayed.
        safety: snapshot of what was there before; empty when none was taken or there was nothing.
        unsaved: what that snapshot lacks.
    """

    kind: ClassVar[str] = "snapshot_restored"
    profile: str
    snapshot_id: str
    restored: tuple[str, ...] = ()
    kept: dict[str, str] = attrs.field(factory=dict)
    safety: str = attrs.field(default="", metadata=LATER)
    unsaved: tuple[str, ...] = attrs.field(default=(), metadata=LATER)

    @property
    def copy(self) -> str:
        """Chat form."""
        return f"Restored {counted(len(self.restored), 'file')} of {self.profile}."

    @property
    def copy_terminal(self) -> str:
        """Terminal form."""
        lines = [f"✓ {self.profile}: restored {counted(len(self.restored), 'file')} from {self.snapshot_id}"]
        lines += [f"  {path}: {why}" for path, why in sorted(self.kept.items())]
        if self.safety:
            lacks = f", without {', '.join(self.unsaved)}" if self.unsaved else ""
            lines.append(f"  What was there before is in snapshot {self.safety}{lacks}")
        return "\n".join(lines)


@final
@attrs.frozen(kw_only=True)
class NetRestored:
    """A maintenance net put something back that an update had lost (facts/update.md 4.4).

    Attributes:
        profile: the profile.
        net: `cron`, `config` or `state_db`.
        ok: whether it is whole now.
        detail: what was put back and from where, or why it could not be.
    """

    kind: ClassVar[str] = "net_restored"
    profile: str
    net: str
    ok: bool
    detail: str

    @property
    def copy(self) -> str:
        """Chat form."""
        words = {"cron": "scheduled jobs", "config": "model settings", "state_db": "the state database"}
        name = words.get(self.net, self.net)
        return (
            f"Put back {name} of {self.profile}." if self.ok else f"Please look at {name} of {self.profile}."
        )

    @property
    def copy_terminal(self) -> str:
        """Terminal form."""
        return f"  {'⚠' if self.ok else '✗'} {self.profile}: {self.detail}"


@final
@attrs.frozen(kw_only=True)
class BackupTaken:
    """A full backup is on disk. It contains credentials.

    Attributes:
        path: the zip.
        files, size: members, and bytes of the zip.
        skipped: path -> reason.
        pruned: names of older ones that it replaced.
    """

    kind: ClassVar[str] = "backup_taken"
    path: str
    files: int
    size: int
    skipped: dict[str, str] = attrs.field(factory=dict)
    pruned: tuple[str, ...] = ()

    @property
    def copy(self) -> str:
        """Chat form."""
        return "Saved a full backup."

    @property
    def copy_terminal(self) -> str:
        """Terminal form."""
        many = counted(self.files, "file")
        lines = [
            f"  ✓ Full backup: {clean(self.path, 4096)} ({many}, {size_text(self.size)}; contains credentials)"
        ]
        shown = sorted(self.skipped.items())
        lines += [f"    left out {path}: {why}" for path, why in shown[:20]]
        if len(shown) > 20:
            lines.append(f"    and {len(shown) - 20} more")
        return "\n".join(lines)


@final
@attrs.frozen(kw_only=True)
class BackupFailed:
    """No full backup was made; nothing else changed.

    Attributes:
        reason: why, one line.
    """

    kind: ClassVar[str] = "backup_failed"
    reason: str

    @property
    def copy(self) -> str:
        """Chat form."""
        return "No full backup could be saved."

    @property
    def copy_terminal(self) -> str:
        """Terminal form."""
        return f"  ✗ No full backup: {self.reason}"


EVENTS: Final[tuple[type[Any], ...]] = (
    SnapshotsStarted,
    SnapshotFailed,
    SnapshotRestored,
    NetRestored,
    BackupTaken,
    BackupFailed,
)
"""Every kind of this module."""
