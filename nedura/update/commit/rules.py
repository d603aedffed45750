"""What a checkout move decides, without IO: where to go, what counts as somebody's edit, and what becomes of parked edits."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Literal

import attrs

from nedura.text import counted
from nedura.update.source.edit_rules import is_own

__all__ = [
    "Dirt",
    "Disposition",
    "Entry",
    "Placement",
    "Situation",
    "collisions",
    "dispose",
    "place",
    "sort_dirt",
]

Strategy = Literal["switch", "update_in_place"]


@attrs.frozen(kw_only=True)
class Entry:
    """One line of `git status --porcelain`.

    Attributes:
        path: relative to the checkout.
        staged: status letter of the index.
        worktree: status letter of the work tree.
    """

    path: str
    staged: str
    worktree: str

    @property
    def untracked(self) -> bool:
        """Not in the index."""
        return self.staged == "?"

    @property
    def unmerged(self) -> bool:
        """A half-done merge."""
        return "U" in self.staged + self.worktree or self.staged + self.worktree in ("AA", "DD")


@attrs.frozen(kw_only=True)
class Situation:
    """Where a checkout stands before a move.

    Attributes:
        branch: branch that is checked out, empty when detached.
        target_branch: branch that the update follows, empty for a release commit.
        dirty: tracked files are edited.
        unmerged_work: commits of a parked branch that the target does not have, by patch; -1 when it cannot be told.
        strategy: `updates.parked_branch_strategy`, with `--switch-branch` applied.
        auto_switch: `updates.auto_switch_parked_branch`.
    """

    branch: str
    target_branch: str
    dirty: bool = False
    unmerged_work: int = 0
    strategy: Strategy = "switch"
    auto_switch: bool = True


@attrs.frozen(kw_only=True)
class Placement:
    """Where a move goes (facts/update.md 5.2 step 13).

    Attributes:
        action: `stay` on the branch, `switch` to the target branch, `detach` at a release commit, `merge` into the parked branch, or
            `skip`: touch nothing.
        reason: what to say; for `skip` why.
        advice: for `skip` what its owner can do.
    """

    action: Literal["stay", "switch", "detach", "merge", "skip"]
    reason: str = ""
    advice: str = ""


def place(at: Situation) -> Placement:
    """Decide where to go from here. Table of facts/update.md 5.2 step 13."""
    if not at.target_branch:
        return Placement(action="detach")
    if at.branch == at.target_branch:
        return Placement(action="stay")
    if not at.branch:
        return Placement(action="switch", reason=f"leaving the detached commit for {at.target_branch}")
    if at.dirty or at.unmerged_work < 0:
        why = "has local edits" if at.dirty else "cannot be compared with the target"
        first = "Commit or discard the edits, or: " if at.dirty else "Go there yourself: "
        return Placement(
            action="skip",
            reason=f"branch {at.branch} is checked out and {why}",
            advice=f"{first}git checkout {at.target_branch}",
        )
    if not at.auto_switch:
        return Placement(
            action="skip",
            reason=f"branch {at.branch} is checked out and switching is turned off",
            advice=f"Go there yourself: git checkout {at.target_branch}; or turn it on: updates.auto_switch_parked_branch",
        )
    if not at.unmerged_work:
        return Placement(
            action="switch",
            reason=f"branch {at.branch} is fully merged, so this tree goes to {at.target_branch}",
        )
    count = counted(at.unmerged_work, "commit")
    if at.strategy == "update_in_place":
        return Placement(action="merge", reason=f"merging into branch {at.branch} with its {count}")
    return Placement(
        action="switch",
        reason=f"branch {at.branch} keeps its {count}; go back with: git checkout {at.branch}",
    )


@attrs.frozen(kw_only=True)
class Dirt:
    """What differs from HEAD, sorted by who made it.

    Attributes:
        edits: tracked paths that somebody edited.
        machine: tracked paths that a tool rewrote; their content of HEAD comes back.
        line_ends: tracked paths that differ only in line ends; likewise.
        untracked: files that git does not know, ours left out.
    """

    edits: tuple[str, ...] = ()
    machine: tuple[str, ...] = ()
    line_ends: tuple[str, ...] = ()
    untracked: tuple[str, ...] = ()


def sort_dirt(entries: Iterable[Entry], *, cr_only: Collection[str] = (), autocrlf: bool = False) -> Dirt:
    """Tell machine-made changes from a person's (facts/update.md 5.2 step 6).

    `package-lock.json` churn is a machine's unless a manifest that it may record, beside or below it, is edited or new. Line ends count as
    noise only when git converts them here and nothing else is edited.

    Args:
        entries: the status.
        cr_only: paths whose content differs only by carriage returns.
        autocrlf: git converts line ends in this checkout.
    """
    tracked = [entry for entry in entries if not entry.untracked and not is_own(entry.path)]
    manifests = {entry.path for entry in entries if entry.path.rsplit("/", 1)[-1] == "package.json"}
    machine = {
        entry.path
        for entry in tracked
        if entry.path.rsplit("/", 1)[-1] == "package-lock.json"
        and entry.staged == " "
        and entry.worktree == "M"
        and not any(path.startswith(entry.path.removesuffix("package-lock.json")) for path in manifests)
    }
    rest = [entry.path for entry in tracked if entry.path not in machine]
    noise = rest if autocrlf and rest and all(path in cr_only for path in rest) else []
    return Dirt(
        edits=tuple(path for path in rest if not noise),
        machine=tuple(sorted(machine)),
        line_ends=tuple(noise),
        untracked=tuple(e.path for e in entries if e.untracked and not is_own(e.path)),
    )


def collisions(untracked: Iterable[str], target: Collection[str]) -> tuple[str, ...]:
    """Untracked files in the way of a target's files: the same path, a file where a folder must be, or the other way round."""
    folders = {
        "/".join(parts[:n]) for path in target for parts in [path.split("/")] for n in range(1, len(parts))
    }
    found = []
    for path in untracked:
        name = path.rstrip("/")  # a repository inside the checkout is listed as a folder
        parts = name.split("/")
        above = {"/".join(parts[:n]) for n in range(1, len(parts))}
        if name in target or name in folders or not above.isdisjoint(target):
            found.append(path)
    return tuple(found)


Disposition = Literal["restore", "discard", "keep"]


def dispose(*, keep_stash: bool, setting: str, interactive: bool) -> Disposition:
    """What becomes of parked edits after a good move (facts/update.md 5.2 step 22).

    Args:
        keep_stash: `--keep-stash`.
        setting: `updates.non_interactive_local_changes`.
        interactive: a person can be asked; then nothing is discarded by configuration.
    """
    if keep_stash:
        return "keep"
    return "discard" if setting == "discard" and not interactive else "restore"
