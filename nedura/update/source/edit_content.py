"""Rules for local edits that need more than a name and a mode: what lies there, how large it is, what it asks for, what is beside it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path

from nedura.update.generation.places import is_exposed, is_shielded
from nedura.update.generation.tree_rules import MAX_BLOB, find_twins, needs_lfs
from nedura.update.source.edit_rules import Change, LeftOut
from nedura.update.source.git import Git

__all__ = ["UNREADABLE", "exposed_paths", "unfit_changes", "unfit_files", "unfit_names"]

EXPOSED = "other users can write to it or to its folder"
UNREADABLE = "it cannot be read"
TOO_LARGE = f"it is larger than {MAX_BLOB >> 20} MB"


def unfit_files(checkout: Path, names: Iterable[str]) -> list[LeftOut]:
    """Changed tracked files that git must not even read: what is no file any more, may not be read, or is larger than any tree may hold."""
    left = []
    for name in names:
        try:
            info = os.lstat(checkout / name)
        except OSError:  # gone: a deletion, which git sees itself
            continue
        if stat.S_ISREG(info.st_mode):
            if info.st_size > MAX_BLOB:
                left.append(LeftOut(path=name, reason=TOO_LARGE))
            elif not os.access(checkout / name, os.R_OK):
                left.append(LeftOut(path=name, reason=UNREADABLE))
        elif not (stat.S_ISLNK(info.st_mode) or stat.S_ISDIR(info.st_mode)):
            left.append(LeftOut(path=name, reason="it is no regular file"))
    return left


def exposed_paths(checkout: Path, paths: Iterable[str]) -> dict[str, str]:
    """Path -> why an edit is not carried: somebody else could have made it, by its file or by a folder around it.

    Args:
        checkout: the source; it is known to be ours alone itself.
        paths: of edits, deletions included.
    """
    if is_shielded(checkout / ".git"):
        return {}
    known: dict[str, bool] = {}

    def exposed(path: str) -> bool:
        if path not in known:
            try:
                known[path] = is_exposed(os.lstat(checkout / path))
            except OSError:  # gone: who could remove it is its folder's question
                known[path] = False
        parent = path.rpartition("/")[0]
        return known[path] or (bool(parent) and exposed(parent))

    return {path: EXPOSED for path in paths if exposed(path)}


def unfit_changes(git: Git, changes: Sequence[Change]) -> dict[str, str]:
    """Path -> why an edit is not carried, by its content: too large, or it asks for git-lfs, whose files are not fetched.

    Raises:
        UpdateError: git failed.
    """
    blobs = [change for change in changes if change.new_mode.startswith("100")]
    if not blobs:
        return {}
    listed = "".join(f"{change.new}\n" for change in blobs).encode()
    answer = git.run("cat-file", "--batch-check=%(objectsize)", stdin=listed).text.splitlines()
    found = {
        change.path: TOO_LARGE
        for change, size in zip(blobs, answer, strict=False)
        if size.isdigit() and int(size) > MAX_BLOB
    }
    for change in blobs:
        if change.path.rpartition("/")[2] == ".gitattributes" and change.path not in found:
            text = git.run("cat-file", "blob", change.new).out.decode("utf-8", "replace")
            if needs_lfs({change.path: text}):
                found[change.path] = "it asks for git-lfs, whose files are not fetched"
    return found


def unfit_names(git: Git, target: str, changes: Sequence[Change]) -> dict[str, str]:
    """Path -> why a file that somebody added is not carried: it would be one with another where letter case does not count.

    Args:
        git: our repository.
        target: commit id that the edits are put on.
        changes: all of them; what they delete is in nobody's way.

    Raises:
        UpdateError: git failed.
    """
    added = [change.path for change in changes if change.old_mode == "000000"]
    if not added:
        return {}
    gone = {change.path for change in changes if change.new_mode == "000000"}
    listed = git.run("ls-tree", "-r", "-z", "--name-only", "--full-tree", target).out
    names = listed.decode("utf-8", "surrogateescape").split("\0")
    twins = find_twins((name for name in names if name and name not in gone), added)
    return {path: f"its name differs from {other} only in letter case" for path, other in twins.items()}
