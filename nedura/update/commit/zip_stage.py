"""Staging a new tree beside the live one: copied, given to who could read the old one, durable. Nothing live is touched."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from nedura.errors import UpdateError
from nedura.records import fsync_folder
from nedura.update.commit.zip_tree import GRAFTS
from nedura.update.generation.durable import fsync_file, sync_files

__all__ = ["check_room", "stage_tree"]

ROOM: Final = 1.2


def _size(tree: Path) -> int:
    return sum((Path(parent) / name).lstat().st_size for parent, _, names in os.walk(tree) for name in names)


def check_room(new: Path, live: Path) -> None:
    """Refuse before the first write when the staged tree would not fit (1.2 times its size).

    Raises:
        UpdateError: it would not.
    """
    need, space = int(_size(new) * ROOM), os.statvfs(live)
    free = space.f_bavail * space.f_frsize
    if need > free:
        raise UpdateError(
            f"The new tree needs {need // 1_000_000} MB and the disk has {free // 1_000_000} MB free.",
            stop_class="disk_full",
            advice="Free some space.",
        )


def stage_tree(new: Path, live: Path, places: Mapping[str, Path]) -> None:
    """Copy the entries of a new tree to their staging places; an entry that the new tree has not gets only what was built in it.

    Args:
        new: the whole new tree.
        live: the live tree.
        places: entry -> where it is staged.

    Raises:
        UpdateError: it would not fit.
        OSError: the disk refused; what was staged stays for the caller to remove.
    """
    check_room(new, live)
    for name, staged in places.items():
        source = new / name
        if source.is_dir() and not source.is_symlink():
            shutil.copytree(source, staged, symlinks=True)
        elif os.path.lexists(source):
            shutil.copy2(source, staged, follow_symlinks=False)
    _graft(live, places)
    readers = stat.S_IMODE(live.stat().st_mode) & 0o055
    for staged in places.values():
        if not os.path.lexists(staged):
            continue  # it goes
        _open_to(staged, readers)
        if staged.is_dir() and not staged.is_symlink():
            sync_files(staged)
        elif not staged.is_symlink():
            fsync_file(staged)
    fsync_folder(live)


def _graft(live: Path, staged: Mapping[str, Path]) -> None:
    """Bring along what was built in the live tree, also into an entry of which a newer release has nothing any more."""
    for graft in GRAFTS:
        top, _, rest = graft.partition("/")
        built, base = live / graft, staged.get(top)
        if base is None or not built.is_dir() or (os.path.lexists(base) and not base.is_dir()):
            continue
        place = base / rest
        if not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copytree(built, place, symlinks=True)


def _open_to(staged: Path, readers: int) -> None:
    """Give group and others what they have of the live tree: an archive is unpacked for its owner alone. Nobody else may write."""
    inside = (Path(parent, name) for parent, folders, names in os.walk(staged) for name in (*folders, *names))
    for path in (staged, *inside):
        mode = path.lstat().st_mode
        if stat.S_ISDIR(mode) or (stat.S_ISREG(mode) and mode & 0o100):
            path.chmod(mode & 0o700 | readers)
        elif stat.S_ISREG(mode):
            path.chmod(mode & 0o700 | readers & 0o044)
