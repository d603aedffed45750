"""Merges of trees that touch no file of anybody: what git 2.38 and newer can do, and what an older one is told."""

from __future__ import annotations

from typing import Final

from nedura.errors import UpdateError
from nedura.text import clean
from nedura.update.source.source_git import SourceGit, SourceGitError

__all__ = ["NEEDED", "can_merge", "cannot_merge", "merge_commits", "merge_onto"]

NEEDED: Final = "git 2.38 or newer is needed to merge"
_USAGE: Final = 129


def can_merge(git: SourceGit) -> bool:
    """Whether this git can merge trees aside. It is asked by doing it: versions are renamed and patched by those who pack them.

    Raises:
        SourceGitError: there is no commit, or git failed.
    """
    head = git.text("rev-parse", "--verify", "HEAD^{commit}")
    return git.run("merge-tree", "--write-tree", head, head, ok=(0, _USAGE)).code == 0


def merge_commits(git: SourceGit, ours: str, theirs: str) -> tuple[str | None, list[str]]:
    """Tree id of a merge of two commits; None and the conflicted paths when it does not fit.

    Raises:
        SourceGitError: git cannot merge.
    """
    answer = git.run(
        "merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", ours, theirs, ok=(0, 1, _USAGE)
    )
    if answer.code == _USAGE:
        raise SourceGitError("merge-tree", answer.code, NEEDED)
    tree, *paths = answer.items
    return (tree, []) if answer.code == 0 else (None, paths)


def merge_onto(git: SourceGit, base: str, head: str, tree: str) -> tuple[str | None, list[str]]:
    """Put what a tree changed of a base onto a commit; None and the conflicted paths when it does not fit.

    Args:
        git: the checkout.
        base: commit id that the tree was made from: the base is given, not found.
        head: commit id.
        tree: a tree, as git names it.

    Raises:
        SourceGitError: git cannot merge.
    """
    before, now, wanted = (git.text("rev-parse", f"{name}^{{tree}}") for name in (base, head, tree))
    if before in (
        now,
        wanted,
    ):  # back to where it was made, or nothing changed: no merge, and any git can do it
        return (wanted if before == now else now), []
    root = git.text("commit-tree", before, "-m", "base")
    ours = git.text("commit-tree", now, "-p", root, "-m", "new code")
    theirs = git.text("commit-tree", wanted, "-p", root, "-m", "local edits")
    return merge_commits(git, ours, theirs)


def cannot_merge(what: str, branch: str) -> UpdateError:
    """The refusal of a merge into a parked branch that conflicts."""
    return UpdateError(
        f"{clean(what, 80)} cannot be merged into {clean(branch, 80)} without conflicts. Nothing was changed.",
        stop_class="checkout_move_failed",
        advice="Merge it by hand, or use --switch-branch.",
    )
