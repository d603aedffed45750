"""State of a deliberate way back: from the full backup of the run that is undone, never from a quick snapshot (decision 44)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Mapping
from pathlib import Path
from typing import Any

from nedura.errors import RefusedError
from nedura.text import clean, counted
from nedura.update.bounded import in_thread
from nedura.update.events import StepDone
from nedura.update.run import Run
from nedura.update.state.backup import BACKUPS
from nedura.update.state.home_import import LARGE, import_backup
from nedura.wire import Event

__all__ = ["BACKUP_NOTE", "MembersRunning", "NoFullBackup", "backup_of", "bring_back", "refuse_running"]

BACKUP_NOTE = "state_backup"
"""Note of a run that holds the archive whose state comes back with the commit."""


class NoFullBackup(RefusedError):
    """Raised when the run that is undone took no full backup, or it is gone."""

    code = "no_full_backup"


class MembersRunning(RefusedError):
    """Raised when state would be replaced under a running member."""

    code = "members_running"


def backup_of(receipt: Mapping[str, Any], root: Path) -> Path:
    """The full backup that a run took before it changed anything.

    Only its name counts: it is looked for where this root home keeps its backups.

    Raises:
        NoFullBackup: it took none, or it is not there any more.
    """
    rows = [row for row in receipt.get("foreign") or () if isinstance(row, Mapping)]
    names = [Path(str(row.get("path", ""))).name for row in rows if row.get("kind") == "backup_taken"]
    if not names or not names[-1]:
        raise NoFullBackup(
            "That run took no full backup, and quick snapshots never bring back a whole state. Nothing was changed.",
            advice="Go back without --with-backup, and take full backups with: nedura update --backup",
        )
    path = root / BACKUPS / names[-1]
    if not path.is_file():
        raise NoFullBackup(f"The full backup {clean(path.name, 120)} is gone. Nothing was changed.")
    return path


def refuse_running(profiles: Collection[str]) -> None:
    """Raises `MembersRunning` when any member runs: its databases would be replaced under it."""
    if profiles:
        raise MembersRunning(
            f"State cannot come back while members run: {', '.join(sorted(profiles))}. Nothing was changed.",
            advice="Stop them first: nedura gateway stop",
        )


async def bring_back(run: Run) -> AsyncGenerator[Event, None]:
    """Put the state of the noted backup in place. Everything is judged before the first file is touched.

    Raises:
        RefusedError, StoreError: the archive cannot be used, or a database is open: nothing was changed.
    """
    archive = run.notes[BACKUP_NOTE]
    done = await in_thread(
        import_backup, archive, run.root_home, now=run.clock.time(), trust=True, limits=LARGE
    )
    run.snapshots.clear()  # else the maintenance nets would put back what was just taken back on purpose
    before = ", ".join(sorted(done.safety.values())) or "none"
    yield StepDone(
        name="state_restored",
        detail=f"{counted(len(done.files), 'file')} from {clean(archive.name, 120)}; snapshots of before: {before}",
    )
