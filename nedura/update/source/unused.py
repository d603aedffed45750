"""Large objects of our repository that nothing names any more: the yesterday's state of a large file that its owner edits (decision 41).

Each update reads the owner's edits into our repository. Small ones pack to nothing and stay; a 30 MB database that is tracked and changes
daily would cost 30 MB a day. Only such files go, and only when no ref and no generation on disk names them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from nedura.update.source.git import Git

__all__ = ["HEAVY", "MUCH", "RESTED", "drop_unused", "loose_objects"]

HEAVY: Final = 1 << 20
"""Bytes on disk from which on an object is looked at."""
MUCH: Final = 64 << 20
"""Bytes of such objects from which on it is worth to walk the history."""
RESTED: Final = 3600.0
"""Seconds that an object was not written: whoever is at work right now has not named it yet."""
_FOLDER: Final = re.compile(r"[0-9a-f]{2}\Z")
_REST: Final = re.compile(r"[0-9a-f]{38}(?:[0-9a-f]{24})?\Z")


def drop_unused(
    git: Git,
    kept: Iterable[str],
    now: float,
    *,
    heavy: int = HEAVY,
    much: int = MUCH,
    rested: float = RESTED,
    seconds: float = 60.0,
) -> str:
    """Remove large loose objects that nothing names. Blocks; the caller holds the install lock.

    Args:
        git: our repository.
        kept: ids that stay although no ref leads to them: the files of generations on disk.
        now: unix seconds.
        heavy: bytes from which on an object is looked at.
        much: bytes of them in all from which on anything is done.
        rested: seconds since an object was written, at least.
        seconds: longest time for the walk.

    Returns:
        what was done, empty when there was nothing to do.

    Raises:
        UpdateError: the history cannot be walked: nothing was removed.
        OSError: the disk refused.
    """
    found = {
        oid: (path, info.st_size)
        for oid, path, info in loose_objects(git.repo)
        if info.st_size >= heavy and info.st_mtime < now - rested
    }
    if sum(size for _, size in found.values()) < much:
        return ""
    walked = git.run("rev-list", "--objects", "--all", "--reflog", timeout=seconds).out.splitlines()
    named = {line[: line.find(b" ")] if b" " in line else line for line in walked}
    for oid in {*kept, *(item.decode("ascii") for item in named)}:
        found.pop(oid, None)
    for path, _ in found.values():
        path.unlink(missing_ok=True)
    freed = sum(size for _, size in found.values())
    if not found:
        return ""
    return f"{len(found)} large object{'s' * (len(found) > 1)} that nothing names any more: gone, {freed >> 20} MiB"


def loose_objects(repo: Path) -> Iterator[tuple[str, Path, os.stat_result]]:
    """(id, path, what `lstat` says) of every loose object of a repository."""
    for folder in os.scandir(repo / "objects"):
        if not _FOLDER.match(folder.name):
            continue
        for entry in os.scandir(folder.path):
            if _REST.match(entry.name):
                yield folder.name + entry.name, Path(entry.path), entry.stat(follow_symlinks=False)
