"""Which commit an update builds: branch, channel or release tag, and whether moving there is allowed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import attrs

from nedura.errors import UpdateError
from nedura.text import clean
from nedura.update.source.channels import Choice
from nedura.update.source.fetch import FETCHED, check_branch, fetch_ref, remote_tags
from nedura.update.source.git import Git, is_commit_id
from nedura.update.source.owner_checkout import read_ref
from nedura.update.source.repository import mend_history
from nedura.update.source.urls import Remote

__all__ = ["Move", "Target", "fetch_target", "judge_move", "keep_tip", "known_tips"]

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


def known_tips(git: Git, choice: Choice, tracking: str = "") -> tuple[str, ...]:
    """What was known of the remote before this fetch: by us, and by the owner's checkout. Commits we lack are left out.

    Args:
        git: our repository.
        choice: branch or channel.
        tracking: the checkout's remote-tracking commit.
    """
    ours = read_ref(git.repo, tip_ref(choice.branch)) if choice.branch else ""
    found = [commit for commit in (ours, tracking) if is_commit_id(commit)]
    return tuple(commit for commit in dict.fromkeys(found) if _has(git, commit))


def _has(git: Git, commit: str) -> bool:
    return git.run("cat-file", "-e", f"{commit}^{{commit}}", ok=range(256)).code == 0


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
        commit = fetch_ref(git, remote, f"refs/heads/{name}", into=into)
    else:
        name = choice.pick(remote_tags(git, remote))
        commit = fetch_ref(git, remote, f"refs/tags/{name}", into=into)
    return attrs.evolve(_compare(git, name, current, commit, known), fetched=commit)


def keep_tip(git: Git, choice: Choice, target: Target) -> None:
    """Remember what the branch was, once the move to it is accepted: a refused rewind stays a rewind.

    Raises:
        UpdateError: git failed.
    """
    if choice.branch and target.fetched and read_ref(git.repo, tip_ref(choice.branch)) != target.fetched:
        git.run("update-ref", tip_ref(choice.branch), target.fetched)


def _is_ancestor(git: Git, old: str, new: str) -> bool:
    """Whether one commit is behind another. Where git meets a parent that is gone, the history's end is noted and it is asked again."""
    answer = git.run("merge-base", "--is-ancestor", old, new, ok=range(256))
    if answer.code != 0 and "could not read" in answer.err.lower() and mend_history(git, (old, new)):
        answer = git.run("merge-base", "--is-ancestor", old, new, ok=range(256))
    return answer.code == 0


def _compare(git: Git, name: str, current: str, target: str, known: Sequence[str]) -> Target:
    """How a fetched commit relates to what runs. Own commits of the checkout are no rewind of the remote (C024)."""
    if current == target:
        return Target(commit=target, name=name, move="same", commits=0)
    if not current or not _has(git, current):
        return Target(commit=target, name=name)
    withdrawn = not known or any(not _is_ancestor(git, tip, target) for tip in known)
    if _is_ancestor(git, target, current):
        if withdrawn:
            return Target(commit=target, name=name, move="backward", commits=0)
        ahead = _count(git, target, current)
        return Target(commit=current, name=name, move="same", commits=0, ahead=ahead)
    straight = _is_ancestor(git, current, target)
    move: Move = "forward" if straight or not withdrawn else "rewritten"
    return Target(
        commit=target,
        name=name,
        move=move,
        commits=_count(git, current, target),
        ahead=0 if straight else _count(git, target, current),
    )


def _count(git: Git, old: str, new: str) -> int:
    answer = git.run("rev-list", "--count", f"{old}..{new}", ok=range(256))
    return int(answer.text) if answer.code == 0 and answer.text.isdigit() else -1


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
