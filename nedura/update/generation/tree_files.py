"""The files of a tree on disk: read and hashed, and linked from generation to generation without reading them twice.

Every path is looked up from a handle of the tree's top folder: thousands of look-ups of a long path cost more than the reading.
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import attrs

from nedura.update.generation.tree_rules import Entry

__all__ = ["Base", "Seen", "folder_handle", "hash_files", "link_entries", "link_name", "read_files"]

MISSING: Final = "missing"
_CHUNK: Final = 1 << 20
_SETTLED_NS: Final = 50_000_000
_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
Stamp = tuple[int, int, int, int, int]


class Seen(NamedTuple):
    """A file as it was read.

    Attributes:
        oid: blob id of its bytes, `missing` when it is not there or of another kind.
        stamp: what the file system said just before (device, inode, size, mtime, ctime in ns). The same again means the same
            bytes: nothing but the clock sets a ctime. None when the last change was too fresh to tell it from the next one.
    """

    oid: str
    stamp: Stamp | None = None


@attrs.frozen(kw_only=True)
class Base:
    """The generation that unchanged files are linked from.

    Attributes:
        tree: its tree.
        files: path -> (git mode, blob id) of what may be linked.
        tag: cache tag of its bytecode.
        seen: what this run has read of it already.
    """

    tree: Path
    files: Mapping[str, tuple[str, str]]
    tag: str
    seen: Mapping[str, Seen] = attrs.field(factory=dict)


@contextmanager
def folder_handle(folder: str | Path) -> Iterator[int]:
    """An open handle of a folder.

    Raises:
        OSError: there is none.
    """
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield handle
    finally:
        os.close(handle)


def _stamp(info: os.stat_result) -> Stamp:
    return info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns


def read_files(folder: Path, entries: Sequence[Entry]) -> dict[str, Seen]:
    """Read every byte of some files and hash it, by path. A large file is never in memory as a whole."""
    algorithm = hashlib.sha256 if entries and len(entries[0].oid) == 64 else hashlib.sha1
    found = {}
    try:
        with folder_handle(folder) as top:
            settled = time.time_ns() - _SETTLED_NS
            for entry in entries:
                found[entry.path] = _read(top, entry, algorithm, settled)
    except OSError:  # no such folder; a single file's error is its own
        return {entry.path: Seen(MISSING) for entry in entries}
    return found


def _read(top: int, entry: Entry, algorithm: Callable[[bytes], Any], settled: int) -> Seen:
    try:
        if entry.mode == "120000":
            info = os.lstat(entry.path, dir_fd=top)
            data = os.fsencode(os.readlink(entry.path, dir_fd=top))
            digest = algorithm(b"blob %d\0" % len(data) + data)
        else:
            handle = os.open(entry.path, _FLAGS, dir_fd=top)
            try:
                info = os.fstat(handle)
                if not stat.S_ISREG(info.st_mode):
                    return Seen(MISSING)
                digest = algorithm(b"blob %d\0" % info.st_size)
                while data := os.read(handle, min(info.st_size + 1, _CHUNK)):
                    digest.update(data)
            finally:
                os.close(handle)
    except OSError:
        return Seen(MISSING)
    return Seen(digest.hexdigest(), _stamp(info) if info.st_ctime_ns < settled else None)


def hash_files(folder: Path, entries: Sequence[Entry]) -> dict[str, str]:
    """Blob ids of what is on disk, by path; a file that is missing or of another kind has the id `missing`."""
    return {path: seen.oid for path, seen in read_files(folder, entries).items()}


def link_name(source: int, target: int, name: str) -> bool:
    """Hard-link one file between two open folders; False where it must be written instead (EPERM, EMLINK, EXDEV, gone)."""
    try:
        os.link(name, name, src_dir_fd=source, dst_dir_fd=target, follow_symlinks=False)
    except OSError:
        return False
    return True


def link_entries(base: Base, entries: Sequence[Entry], folder: Path) -> tuple[list[str], set[str]]:
    """Link files of the base that are the same in a new tree, whose folders are there.

    Args:
        base: where from.
        entries: files that its manifest has with the same content and mode.
        folder: the new tree.

    Returns:
        (paths that could not be linked, paths of linked files that need no reading: read-only, read by this run as what they
        should be, and not touched since).

    Raises:
        OSError: the new tree is not there.
    """
    failed, proven = [], set()
    try:
        source = os.open(base.tree, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return [entry.path for entry in entries], set()
    try:
        with folder_handle(folder) as target:
            for entry in entries:
                known = _is_known(base, source, entry)
                if not link_name(source, target, entry.path):
                    failed.append(entry.path)
                elif known:
                    proven.add(entry.path)
    finally:
        os.close(source)
    return failed, proven


def _is_known(base: Base, top: int, entry: Entry) -> bool:
    """Asked just before the link, which sets a new ctime."""
    seen = base.seen.get(entry.path)
    if seen is None or seen.stamp is None or seen.oid != entry.oid:
        return False
    try:
        info = os.lstat(entry.path, dir_fd=top)
    except OSError:
        return False
    return _stamp(info) == seen.stamp and (entry.mode == "120000" or not info.st_mode & 0o222)
