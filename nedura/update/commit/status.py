"""Looking at a checkout: its status, what a half-done operation left, what its line ends hide. Writes nothing."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterable, Iterator

from nedura.update.commit.rules import Dirt, Entry, sort_dirt
from nedura.update.source.edit_rules import is_own
from nedura.update.source.git import Git
from nedura.update.source.source_git import SourceGit
from nedura.update.source.torn import Change
from nedura.update.source.unfinished import has_operation

__all__ = [
    "branch_elsewhere",
    "current_branch",
    "has_operation",
    "hidden_edits",
    "ignored_in_the_way",
    "in_place_of",
    "look_for_dirt",
    "read_status",
    "unmerged_work",
]

_AT_ONCE = 200
"""Paths of one command line."""


def read_status(git: SourceGit) -> list[Entry]:
    """Every path that differs from HEAD; ignored files and submodules' insides are not looked at.

    Raises:
        SourceGitError: git cannot say.
    """
    answer = git.run(
        "status",
        "--porcelain=v1",
        "-z",
        "--untracked-files=all",
        "--ignore-submodules=all",
        "--no-renames",
        "--no-ahead-behind",
    )
    return [Entry(path=item[3:], staged=item[0], worktree=item[1]) for item in answer.items]


def current_branch(git: SourceGit) -> str:
    """Branch that HEAD names; empty when detached. Asked by its full name: git's short one is another where a tag is called the same."""
    return git.run("symbolic-ref", "-q", "HEAD", ok=(0, 1)).text.removeprefix("refs/heads/")


def branch_elsewhere(git: SourceGit, branch: str) -> str:
    """The worktree, and not a removed one, that has a branch which is not checked out here; empty when none."""
    place = git.run("for-each-ref", "--format=%(worktreepath)", f"refs/heads/{branch}").text
    return place if place and os.path.isdir(place) else ""


def hidden_edits(git: SourceGit, changes: Iterable[Change]) -> list[str]:
    """Paths of a move that are edited here and that `git status` was told to pass over (assume-unchanged, skip-worktree).

    Raises:
        SourceGitError: git cannot say.
    """
    listed = git.run("ls-files", "-v", "-z").items
    hidden = {item[2:] for item in listed if item[0].islower() or item[0] == "S"}
    if not hidden:
        return []
    found = []
    for change in changes:
        if change.path not in hidden or not os.path.lexists(os.path.join(git.checkout, change.path)):
            continue
        if git.run("hash-object", "--", change.path, ok=(0, 128)).text != change.old:
            found.append(change.path)
    return found


def in_place_of(git: SourceGit, edits: Iterable[str]) -> list[str]:
    """What lies where edited paths were, and that no status need list: files in a folder that was a file, or what was a folder.

    Args:
        git: the checkout.
        edits: tracked paths that differ from HEAD.

    Returns:
        Paths that git does not know, ignored ones too; a repository of its own as its folder, with a slash at the end.

    Raises:
        OSError: a folder cannot be read.
    """
    found: set[str] = set()
    known = set(edits)
    for path in known:
        parts = path.split("/")
        above = ("/".join(parts[:count]) for count in range(1, len(parts)))
        found.update(name for name in above if _no_folder(os.path.join(git.checkout, name)))
        full = os.path.join(git.checkout, path)
        if os.path.isdir(full) and not os.path.islink(full):
            found.update(_inside(git.checkout, full))
    return sorted(found - known)


def _no_folder(full: str) -> bool:
    return os.path.lexists(full) and (os.path.islink(full) or not os.path.isdir(full))


def _inside(checkout: str, folder: str) -> Iterator[str]:
    def unreadable(error: OSError) -> None:
        raise error

    for parent, folders, names in os.walk(folder, onerror=unreadable):
        if ".git" in (*folders, *names):
            folders.clear()
            yield f"{os.path.relpath(parent, checkout)}/"
            continue
        links = (name for name in folders if os.path.islink(os.path.join(parent, name)))
        yield from (os.path.relpath(os.path.join(parent, name), checkout) for name in (*names, *links))


def look_for_dirt(git: SourceGit) -> Dirt:
    """The status, with machine-made changes told from a person's.

    Raises:
        SourceGitError: git cannot say.
    """
    entries = read_status(git)
    changed = [entry.path for entry in entries if not entry.untracked]
    autocrlf = git.run("config", "--get", "core.autocrlf", ok=(0, 1)).text.lower() in ("true", "input")
    cr_only = _only_line_ends(git, changed) if autocrlf and changed else ()
    return sort_dirt(entries, cr_only=cr_only, autocrlf=autocrlf)


def ignored_in_the_way(git: SourceGit, added: Iterable[str], *, untracked: bool = False) -> list[str]:
    """Ignored files that a move would overwrite without a word: git takes them for expendable.

    Args:
        git: the checkout.
        added: paths that the target has and HEAD has not.
        untracked: files that are not ignored count, too.

    Raises:
        SourceGitError: git cannot say.
    """
    taken = sorted({place for path in added for place in _taken(git.checkout, path)})
    found: list[str] = []
    which = () if untracked else ("--ignored", "--exclude-standard")
    for start in range(0, len(taken), _AT_ONCE):
        names = taken[start : start + _AT_ONCE]
        found += git.run("ls-files", "-z", "--others", *which, "--", *names).items
    return [path for path in found if not is_own(path) and not _is_bytecode(path)]


def _is_bytecode(path: str) -> bool:
    """Compiled code beside its source: nobody's work, made again at the next start."""
    return path.endswith(".pyc") and "/__pycache__/" in f"/{path}"


def _taken(checkout: str, path: str) -> Iterator[str]:
    """The path, or the part of it that is no folder, if something lies there."""
    parts = path.split("/")
    for count in range(1, len(parts) + 1):
        place = "/".join(parts[:count])
        try:
            mode = os.lstat(os.path.join(checkout, place)).st_mode
        except OSError:
            return
        if count == len(parts) or not stat.S_ISDIR(mode):
            yield place
            return


def _only_line_ends(git: SourceGit, changed: Collection[str]) -> set[str]:
    """Changed paths that have no changed line once carriage returns are left out; mode changes and staged ones count as edits."""
    options = ("--no-ext-diff", "--no-textconv", "--no-renames", "-z")
    real = git.run("diff", "--numstat", "--ignore-cr-at-eol", *options, "HEAD").items
    with_lines = {item.split("\t", 2)[2] for item in real if not item.startswith("0\t0\t")}
    other = git.run("diff", "--raw", "--ignore-cr-at-eol", *options, "HEAD").items
    modes = {
        path
        for head, path in zip(other[0::2], other[1::2], strict=False)
        if head.split(" ")[0].lstrip(":") != head.split(" ")[1]
    }
    return set(changed) - with_lines - modes


def unmerged_work(git: SourceGit | Git, branch: str, target: str) -> int:
    """Commits of a branch whose patch the target does not have; -1 when it cannot be told.

    Args:
        git: the checkout, or our repository that has both.
        branch: commit id or full ref.
        target: commit id.
    """
    answer = git.run("cherry", target, branch, ok=range(-64, 256))
    if answer.code != 0:
        return -1
    return sum(line.startswith("+") for line in answer.text.splitlines())
