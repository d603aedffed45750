"""Which commit an update builds: branch, channel or release tag, and whether moving there is allowed."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Final, Literal

import attrs

from nedura.errors import UpdateError
from nedura.text import clean
from nedura.update.source.channels import Choice
from nedura.update.source.fetch import FETCHED, check_branch, fetch_ref, remote_tags
from nedura.update.source.git import Git, GitAnswer, is_commit_id
from nedura.update.source.owner_checkout import Source, read_ref
from nedura.update.source.repository import mend_history
from nedura.update.source.urls import Remote

__all__ = [
    "Move",
    "Target",
    "fetch_target",
    "judge_move",
    "keep_tip",
    "known_tips",
    "seen_by",
    "withdrawn_tips",
]

WITHDRAWN: Final = "refs/nedura/withdrawn/"
WITHDRAWN_KEPT: Final = 50
"""Commits taken back by the remote that are remembered; each holds its objects in our repository."""
Move = Literal["same", "forward", "rewritten", "backward"]


@attrs.frozen(kw_only=True)
class Target:
    """The commit to build.

    Attributes:
        commit: its id.
        name: branch or tag, for people.
        move: how it relates to what runs.
        commits: how many commits it is ahead, -1 when the history does not tell.
        ahead: commits of what runs that the remote lacks.
        fetched: commit id that the name has at the remote.
        states: commit id that its code states about itself, where that is another one (a release's).
    """

    commit: str
    name: str
    move: Move = "forward"
    commits: int = -1
    ahead: int = 0
    fetched: str = ""
    states: str = ""


def tip_ref(name: str) -> str:
    """The ref that keeps what a branch of the remote was when we last looked."""
    return f"refs/nedura/tips/{name}"


def seen_by(source: Source | None, choice: Choice, *, sealed: bool, remote: str = "") -> tuple[str, ...]:
    """What the owner's checkout last saw of its remote: the branch that is followed, and mostly the one that is checked out.

    A checkout that runs on a branch of its owner's follows another one: its commits there, pushed or not, are no rewind of that one.
    Who names a branch for this run leaves the one that runs, and what it had counts.

    Args:
        source: the owner's checkout.
        choice: branch or channel.
        sealed: it is only built from.
        remote: name of the remote that is followed: a branch of a colleague's fork may be checked out.
    """
    if source is None:
        return ()
    if not choice.branch:
        return (source.tracking,)
    followed = source.last_seen(choice.branch, remote)
    return (followed, source.tracking) if sealed or choice.source == "option" else (followed,)


def known_tips(git: Git, choice: Choice, tracking: Iterable[str] = ()) -> tuple[str, ...]:
    """What was known of the remote before this fetch: by us, and by the owner's checkout. Commits we lack are left out.

    Args:
        git: our repository.
        choice: branch or channel.
        tracking: the checkout's remote-tracking commits, from `seen_by`.
    """
    ours = read_ref(git.repo, tip_ref(choice.branch)) if choice.branch else ""
    found = dict.fromkeys(commit for commit in (ours, *tracking) if is_commit_id(commit))
    return _present(git, found)


def _present(git: Git, commits: Iterable[str]) -> tuple[str, ...]:
    """Those of some ids that are commits of ours."""
    asked = "".join(f"{commit}\n" for commit in commits)
    if not asked:
        return ()
    answer = git.run("cat-file", "--batch-check", stdin=asked.encode(), ok=range(256))
    rows = [line.split() for line in answer.text.splitlines()] if answer.code == 0 else []
    return tuple(row[0] for row in rows if len(row) == 3 and row[1] == "commit")


def fetch_target(
    git: Git, remote: Remote, choice: Choice, current: str, *, known: Sequence[str] = (), into: str = FETCHED
) -> Target:
    """Fetch what the choice names and compare it with what runs.

    Args:
        git: our repository.
        remote: the pinned remote.
        choice: branch or channel.
        current: commit id that runs, may be empty.
        known: from `known_tips`, asked before.
        into: our ref that gets the commit.

    Raises:
        UpdateError: it cannot be fetched, or a channel names no release.
    """
    if choice.branch:
        name = check_branch(git, choice.branch)
        commit = fetch_ref(git, remote, f"refs/heads/{name}", into=into, commits=known)
    else:
        name = choice.pick(remote_tags(git, remote))
        commit = fetch_ref(git, remote, f"refs/tags/{name}", into=into)
    return attrs.evolve(_compare(git, name, current, commit, known), fetched=commit)


def keep_tip(git: Git, choice: Choice, target: Target) -> None:
    """Remember what the branch was, once the move to it is accepted: a refused rewind stays a rewind.

    Raises:
        UpdateError: git failed.
    """
    if not choice.branch or not target.fetched:
        return
    before = read_ref(git.repo, tip_ref(choice.branch))
    if before == target.fetched:
        return
    if before and not _is_ancestor(git, before, target.fetched):
        _keep_withdrawn(git, before)
    git.run("update-ref", tip_ref(choice.branch), target.fetched)


def _keep_withdrawn(git: Git, commit: str) -> None:
    """Remember a commit that the remote took back: a checkout that still has it must not be taken for its author's."""
    git.run("update-ref", f"{WITHDRAWN}{commit}", commit)
    folder = git.repo / WITHDRAWN
    names = sorted(os.listdir(folder), key=lambda name: os.stat(folder / name).st_mtime)
    for name in names[:-WITHDRAWN_KEPT]:
        git.run("update-ref", "-d", f"{WITHDRAWN}{name}", ok=range(256))


def withdrawn_tips(git: Git) -> tuple[str, ...]:
    """Commits that a branch of the remote had when we looked, and that it has taken back since."""
    folder = git.repo / WITHDRAWN
    return _present(git, filter(is_commit_id, sorted(os.listdir(folder)))) if folder.is_dir() else ()


def _compare(git: Git, name: str, current: str, target: str, known: Sequence[str]) -> Target:
    """How a fetched commit relates to what runs. Own commits of the checkout are no rewind of the remote (C024)."""
    if current == target:
        return Target(commit=target, name=name, move="same", commits=0)
    if not current or not _present(git, [current]):
        return Target(commit=target, name=name)
    ahead, commits = _apart(git, current, target)
    straight = ahead == 0
    withdrawn = not known or any(not _holds(git, target, tip, current if straight else "") for tip in known)
    if commits == 0:
        if withdrawn:
            return Target(commit=target, name=name, move="backward", commits=0)
        return Target(commit=current, name=name, move="same", commits=0, ahead=ahead)
    move: Move = "forward" if straight or not withdrawn else "rewritten"
    return Target(commit=target, name=name, move=move, commits=commits, ahead=ahead)


def _holds(git: Git, target: str, tip: str, ancestor: str) -> bool:
    """Whether the history of a commit holds a tip; of one ancestor of it that is known already."""
    return tip in (target, ancestor) or _is_ancestor(git, tip, target)


def _is_ancestor(git: Git, old: str, new: str) -> bool:
    return _history(git, (old, new), "merge-base", "--is-ancestor", old, new).code == 0


def _apart(git: Git, old: str, new: str) -> tuple[int, int]:
    """(commits that only the old one has, commits that only the new one has); -1 where the history does not tell."""
    answer = _history(git, (old, new), "rev-list", "--left-right", "--count", f"{old}...{new}")
    fields = answer.text.split()
    if answer.code == 0 and len(fields) == 2 and all(field.isdigit() for field in fields):
        return int(fields[0]), int(fields[1])
    return (0 if _is_ancestor(git, old, new) else -1), (0 if _is_ancestor(git, new, old) else -1)


def _history(git: Git, commits: tuple[str, str], *words: str) -> GitAnswer:
    """A question about history. Where git meets a parent that is gone, the history's end is noted and it is asked again."""
    answer = git.run(*words, ok=range(256))
    if answer.code != 0 and "could not read" in answer.err.lower() and mend_history(git, commits):
        answer = git.run(*words, ok=range(256))
    return answer


def judge_move(target: Target, *, allow_downgrade: bool) -> None:
    """Refuse to go back to an ancestor of what runs.

    Raises:
        UpdateError: it would, and nobody asked for it.
    """
    if target.move == "backward" and not allow_downgrade:
        raise UpdateError(
            f"{clean(target.name, 80)} now names a commit that is older than what runs ({target.commit[:8]}).",
            stop_class="downgrade",
            advice="If you mean it: --allow-downgrade, or --rollback.",
        )
