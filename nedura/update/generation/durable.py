"""Making a whole folder durable in one go, and removing one without ever following a link."""

from __future__ import annotations

import ctypes
import functools
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from nedura.errors import StoreError, UnsafePath
from nedura.records import fsync_folder, make_folder
from nedura.text import clean

__all__ = ["fsync_file", "own_folder", "remove_tree", "start_writing", "sync_files"]

_SYNC_FILE_RANGE_WRITE: Final = 2


def fsync_file(path: str | Path) -> None:
    """Make one file durable.

    Raises:
        OSError: the disk refused; nothing may rely on the file.
    """
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@functools.cache
def _sync_file_range() -> Callable[..., int] | None:
    """The call, looked up once; None where the system has none."""
    call: Callable[..., int] | None = getattr(ctypes.CDLL(None), "sync_file_range", None)
    return call


def start_writing(path: str | Path) -> None:
    """Let the disk begin with a finished file while the processor does something else; only a hint, `sync_files` makes it durable."""
    call = _sync_file_range()
    if call is None:
        return
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        call(handle, ctypes.c_int64(0), ctypes.c_int64(0), _SYNC_FILE_RANGE_WRITE)
    finally:
        os.close(handle)


def sync_files(folder: Path) -> None:
    """Make every file and name below a folder durable. Blocks the thread: async code calls it through `asyncio.to_thread`.

    Not `syncfs`: that would wait for everybody else's writes too. All files begin first, so that one journal commit serves many.

    Raises:
        OSError: the disk refused; nothing may rely on the tree.
    """
    tree = [
        (parent, [path for name in names if not os.path.islink(path := f"{parent}/{name}")])
        for parent, _, names in os.walk(folder)
    ]  # a link is a name of its folder
    for _, files in tree:
        for path in files:
            start_writing(path)
    for parent, files in reversed(tree):
        for path in files:
            fsync_file(path)
        fsync_folder(Path(parent))


def own_folder(folder: Path) -> Path:
    """A private folder of ours at this very place, made when missing: never through a link, never another user's.

    Raises:
        UnsafePath: something else is in its place.
        StoreError: it cannot be made.
    """
    make_folder(folder)
    if folder.is_symlink():
        raise UnsafePath(f"{clean(str(folder), 300)} is a link.", advice="Move it away.")
    owner = folder.lstat().st_uid
    if owner != os.geteuid():
        advice = f"Run it as that user: sudo -u '#{owner}' ..." if os.geteuid() == 0 else "Move it away."
        raise UnsafePath(f"{clean(str(folder), 300)} belongs to another user.", advice=advice)
    os.chmod(folder, 0o700)
    return folder


def remove_tree(folder: Path) -> bool:
    """Remove a folder of ours and everything in it, by folder handles; False when it was not there.

    Raises:
        UnsafePath: a link or something else is in its place (CVE-2022-21658: a swapped link must not lead us away).
        StoreError: the system refused.
    """
    if not shutil.rmtree.avoids_symlink_attacks:
        raise StoreError("This platform cannot remove a folder safely.")
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise UnsafePath(f"{clean(str(folder), 300)} is not a folder.", advice="Move it away.")
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise StoreError(f"{clean(str(folder), 300)} cannot be removed: {error.strerror}.") from error
    return True
