"""Our repository stays small: many packs and loose objects become one pack, at the very end of an update. What goes, goes in unused.py.

Not `git gc`: it leaves out what the owner's repository holds as well, and what the owner then throws away would be gone for parked
edits, too. Every fetch leaves a pack or some loose objects; both cost every later git process a look.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from nedura.errors import UpdateError
from nedura.records import fsync_folder
from nedura.update.source.git import Git, commit_id
from nedura.update.source.unused import HEAVY, loose_objects

__all__ = ["LOOSE", "PACKS", "TIDY_SECONDS", "tidy"]

LOOSE: Final = 2000
PACKS: Final = 20
"""From so many loose objects, or so many packs, on."""
TIDY_SECONDS: Final = 60.0
LARGE: Final = 256 << 20
"""Bytes from which on a pack stays as it is, so that the work is bounded by what came since."""
_KINDS: Final = (".idx", ".rev", ".bitmap", ".mtimes", ".pack")
_HOW: Final = ("-c", "pack.threads=1", "-c", "pack.windowMemory=64m")  # the fleet works beside it


def tidy(
    git: Git, *, loose: int = LOOSE, packs: int = PACKS, large: int = LARGE, seconds: float = TIDY_SECONDS
) -> str:
    """Put packs and loose objects together when it is worth it. Blocks; the caller holds the install lock.

    Large objects stay loose: in a pack nothing could drop them one by one later, and most of them are yesterday's edits tomorrow.

    Args:
        git: our repository.
        loose: number of loose objects from which it is worth it.
        packs: number of packs from which it is worth it.
        large: bytes from which on a pack is left alone.
        seconds: longest time; git is ended after it, the repository is whole, and the next update tries again.

    Returns:
        what was done, empty when there was nothing to do.

    Raises:
        UpdateError: git failed, took too long, or made a pack that lacks something. Nothing was removed then.
        OSError: the disk refused.
    """
    folder = git.repo / "objects" / "pack"
    old = [pack for pack in sorted(folder.glob("pack-*.pack")) if _may_go(pack, large)]
    small = [oid for oid, _, info in loose_objects(git.repo) if info.st_size < HEAVY]
    count = len(small)
    if count < loose and len(old) < packs:
        return ""
    wanted = frozenset(small).union(*(_objects(git, pack) for pack in old))
    listed = "".join(f"{oid}\n" for oid in sorted(wanted)).encode()
    made = git.run(
        *_HOW, "pack-objects", "--quiet", str(folder / "pack"), stdin=listed, timeout=seconds,
    ).text  # fmt: skip
    fresh = folder / f"pack-{commit_id(made)}.pack"
    fsync_folder(folder)
    there = _objects(git, fresh)
    for pack in old:
        if pack != fresh and not _objects(git, pack) <= there:
            raise UpdateError(
                "The new pack of our repository lacks objects; the old ones stay.", stop_class="git"
            )
    for pack in old:
        if pack != fresh:
            _remove(pack)
    git.run("prune-packed", "--quiet")
    return f"{len(old)} packs and {count} loose objects became one pack of {fresh.stat().st_size >> 10} KiB"


def _may_go(pack: Path, large: int) -> bool:
    return pack.stat().st_size < large and not pack.with_suffix(".keep").exists()


def _objects(git: Git, pack: Path) -> frozenset[str]:
    """Ids of the objects in a pack, from its index."""
    listed = git.run("show-index", stdin=pack.with_suffix(".idx").read_bytes()).text
    return frozenset(line.split()[1] for line in listed.splitlines())


def _remove(pack: Path) -> None:
    """The index first: a pack without one is not looked at, an index without its pack is an error."""
    for kind in _KINDS:
        pack.with_suffix(kind).unlink(missing_ok=True)
