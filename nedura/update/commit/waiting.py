"""Parked edits that still wait for their owner, recorded before the first of them leaves the tree: no kill makes anybody forget them.

The record lies in the git folder. Each entry is found by the commit id of its stash entry; one whose stash entry is gone is settled.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import attrs

from nedura.errors import NeduraError
from nedura.records import read_json, remove, write_json
from nedura.text import clean, counted
from nedura.update.commit import stash
from nedura.update.events import StepDone, UserAction
from nedura.update.source.source_git import SourceGit, SourceGitError
from nedura.wire import Event

__all__ = ["Waiting", "bring_back", "forget", "read_waiting", "remember", "remind", "stay_parked", "why_not"]

OWED: Final = "nedura-update-parked.json"
CUT_OFF: Final = "the update that parked them was interrupted"
MAX_TOLD: Final = 3


@attrs.frozen(kw_only=True)
class Waiting:
    """Edits that wait.

    Attributes:
        commit: commit id of their stash entry.
        reason: why they are not back.
        cut_off: nothing was tried yet: the update that parked them has not come to it.
    """

    commit: str
    reason: str
    cut_off: bool = False


def _place(git: SourceGit) -> Path:
    return Path(git.git_dir) / OWED


def _recorded(git: SourceGit) -> list[Waiting]:
    try:
        record = read_json(_place(git))
    except NeduraError:
        return []
    rows = record.get("entries") if isinstance(record, dict) else None
    if not isinstance(rows, list):
        rows = [record]  # as older versions wrote it: one
    return [
        Waiting(
            commit=str(row.get("commit", "")),
            reason=clean(row.get("reason"), 200),
            cut_off=bool(row.get("cut_off")),
        )
        for row in rows
        if isinstance(row, dict)
    ]


def _write(git: SourceGit, entries: list[Waiting]) -> None:
    """Keep what waits; the newest also where an older version looks for it.

    Raises:
        StoreError: it cannot be written.
    """
    if not entries:
        remove(_place(git))
        return
    rows = [attrs.asdict(entry) for entry in entries]
    newest = {"commit": entries[-1].commit, "reason": entries[-1].reason}
    write_json(_place(git), {"schema": 1, **newest, "entries": rows})


def read_waiting(git: SourceGit) -> list[Waiting]:
    """What waits, oldest first; entries that their owner has dropped from the stash are settled."""
    recorded = _recorded(git)
    if not recorded:
        return []
    there = {one.commit for one in stash.find_parked(git)}
    return [entry for entry in recorded if entry.commit in there]


def remember(git: SourceGit, commit: str, reason: str = CUT_OFF, *, cut_off: bool = False) -> None:
    """Record, durably, that a stash entry waits.

    Raises:
        StoreError: it cannot be written.
    """
    others = [entry for entry in read_waiting(git) if entry.commit != commit]
    _write(git, [*others, Waiting(commit=commit, reason=reason, cut_off=cut_off)])


def forget(git: SourceGit, commit: str = "") -> None:
    """A stash entry waits no more; without one, only what its owner dropped is taken off the record.

    Raises:
        StoreError: it cannot be written.
    """
    recorded = _recorded(git)
    left = [entry for entry in read_waiting(git) if entry.commit != commit]
    if left != recorded:
        _write(git, left)


def why_not(restored: stash.Restored) -> str:
    """Why edits, or what was staged of them, stay parked; empty when all of them are back."""
    if restored.conflicts:
        many = len(restored.conflicts)
        found = f"{counted(many, 'file')} conflict{'s' if many == 1 else ''}"
        return f"{found} with the new code: {_some(restored.conflicts)}"
    if restored.unsafe:
        return f"with them the code cannot start: {clean(restored.unsafe, 160)}"
    if restored.unstaged:
        return f"the files are back, but what was staged of them conflicts with the new code: {_some(restored.unstaged)}"
    return ""


def _some(paths: tuple[str, ...]) -> str:
    return ", ".join(clean(path, 60) for path in paths[:5])


def stay_parked(git: SourceGit, commit: str, why: str) -> tuple[Event, Event]:
    """Tell that edits wait for their owner, and remember it for the next run.

    Raises:
        StoreError: it cannot be written.
    """
    return _step(git, commit, why), _action([Waiting(commit=commit, reason=why)])


def _step(git: SourceGit, commit: str, why: str) -> StepDone:
    remember(git, commit, why)
    return StepDone(name="local_changes_stash", ok=False, detail=f"parked: {commit} ({why})")


def _action(entries: list[Waiting], after: str = "") -> UserAction:
    newest = entries[-1]
    commits = ", ".join(f"git stash apply {entry.commit}" for entry in reversed(entries[-MAX_TOLD:]))
    more = f" ({len(entries)} sets of edits wait)" if len(entries) > 1 else ""
    reason = f"Local edits stay parked: {newest.reason}{more}. Bring them back with: {commits}{after}"
    return UserAction(step="local_changes", reason=reason)


def remind(git: SourceGit) -> UserAction | None:
    """The reminder of a later run: edits that could not be brought back still wait (case C021).

    Raises:
        StoreError: the record cannot be written.
    """
    entries = read_waiting(git)
    if not entries:
        forget(git)
        return None
    return _action(entries, "; this is said until the entry is dropped (git stash list, git stash drop)")


def bring_back(git: SourceGit) -> list[Event]:
    """Bring back what an interrupted update had parked, where it fits and nobody wrote there since; `remind` tells of the rest. Blocks.

    Raises:
        StoreError: the record cannot be written.
    """
    told: list[Event] = []
    for entry in read_waiting(git):
        parked = next((one for one in stash.find_parked(git) if one.commit == entry.commit), None)
        if not entry.cut_off or parked is None:
            continue
        try:
            restored = stash.restore(git, parked)
        except (SourceGitError, OSError) as error:
            told.append(_step(git, entry.commit, clean(error, 120)))
            continue
        if why := why_not(restored):
            told.append(_step(git, entry.commit, why))
            continue
        stash.drop(git, parked)
        forget(git, entry.commit)
        what = f"restored {counted(len(restored.paths), 'file')} that an interrupted update had parked"
        told.append(StepDone(name="local_changes_stash", detail=what))
    return told
