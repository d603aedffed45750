"""Which commit an update builds: branch, channel or release tag, and whether moving there is allowed."""

from __future__ import annotations

from typing import Literal

import attrs

from nedura.errors import UpdateError
from nedura.text import clean
from nedura.update.channels import Choice
from nedura.update.fetch import check_branch, fetch_ref, remote_tags
from nedura.update.git import Git
from nedura.update.urls import Remote

__all__ = ["Move", "Target", "fetch_target", "judge_move"]

Move = Literal["same", "forward", "rewritten", "backward"]


@attrs.frozen(kw_only=True)
class Target:
    """The commit to build.

    Attributes:
        commit: its id.
        name: branch or tag, for people.
        move: how it relates to what runs.
        commits: how many commits it is ahead, -1 when the history does not tell.
    """

    commit: str
    name: str
    move: Move = "forward"
    commits: int = -1


def fetch_target(git: Git, remote: Remote, choice: Choice, current: str, *, shallow: bool = False) -> Target:
    """Fetch what the choice names and compare it with what runs.

    Args:
        git: our repository.
        remote: the pinned remote.
        choice: branch or channel.
        current: commit id that runs, may be empty.
        shallow: the source's history is cut, so ours may stay so.

    Raises:
        UpdateError: it cannot be fetched, or a channel names no release.
    """
    if choice.branch:
        name = check_branch(git, choice.branch)
        commit = fetch_ref(git, remote, f"refs/heads/{name}")
    else:
        name = choice.pick(remote_tags(git, remote))
        commit = fetch_ref(git, remote, f"refs/tags/{name}")
    move, ahead = _relation(git, current, commit)
    return Target(commit=commit, name=name, move=move, commits=ahead)


def _relation(git: Git, current: str, target: str) -> tuple[Move, int]:
    if not current or current == target:
        return ("same", 0) if current else ("forward", -1)
    answer = git.run("rev-list", "--left-right", "--count", f"{current}...{target}", ok=range(256))
    fields = answer.text.split()
    if answer.code != 0 or len(fields) != 2:
        return "rewritten", -1
    behind, ahead = int(fields[0]), int(fields[1])
    if behind and ahead and git.run("merge-base", current, target, ok=(0, 1, 128)).code != 0:
        return "rewritten", -1
    if ahead == 0:
        return "backward", 0
    return ("rewritten" if behind else "forward"), ahead


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
