"""A live database's bytes, read without taking anybody's locks away.

POSIX drops every lock of a process on a file as soon as the process closes any descriptor of it ("How To Corrupt An SQLite Database
File", 2.2). So a descriptor of a file that this process has open elsewhere is kept and used again, never closed meanwhile.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from nedura.openers import FileKey

__all__ = ["is_open_here", "is_sqlite", "may_be_sqlite", "raw_file", "read_start"]

HEADER: Final = b"SQLite format 3\0"
SMALLEST_PAGE: Final = 512

OWN_FILES: Final = "/dev/fd"
_guard: Final = threading.Lock()
_kept: Final[dict[FileKey, list[int]]] = {}


def _key(info: os.stat_result) -> FileKey:
    return info.st_dev, info.st_ino


def _opened(key: FileKey) -> int | None:
    """How many descriptors of a file this process has; None where the system does not tell."""
    try:
        names = os.listdir(OWN_FILES)
    except OSError:
        return None
    found = 0
    for name in names:
        try:
            found += _key(os.fstat(int(name))) == key
        except (OSError, ValueError):  # the listing's own descriptor is gone by now
            continue
    return found


def is_open_here(path: Path) -> bool:
    """Whether this process has a file open by somebody else's hand; also true where that cannot be told.

    Raises:
        OSError: the file is not there.
    """
    key = _key(os.stat(path))
    with _guard:
        found = _opened(key)
        return found is None or found > len(_kept.get(key, ()))


@contextmanager
def raw_file(path: Path) -> Iterator[int]:
    """A descriptor for reading a file; use `os.pread`, since it may have been used before.

    Raises:
        OSError: it cannot be opened.
    """
    with _guard:
        kept = _kept.get(_key(os.stat(path)))
        handle = kept.pop() if kept else os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    key = _key(os.fstat(handle))
    try:
        yield handle
    finally:
        _let_go(handle, key)


def _let_go(handle: int, key: FileKey) -> None:
    with _guard:
        mine = [handle, *_kept.pop(key, ())]
        found = _opened(key)
        if found is None or found > len(mine):
            _kept[key] = mine
            return
        for each in mine:
            os.close(each)


def read_start(path: Path, size: int) -> bytes:
    """The first bytes of a file.

    Raises:
        OSError: it cannot be read.
    """
    with raw_file(path) as handle:
        return os.pread(handle, size, 0)


def is_sqlite(path: Path) -> bool:
    """Whether a regular file carries SQLite's header. Names prove nothing (case C011).

    Raises:
        OSError: it cannot be read.
    """
    return read_start(path, len(HEADER)) == HEADER


def may_be_sqlite(size: int) -> bool:
    """Whether a file of so many bytes can be a database: whole pages only. Spares most files the look at their header."""
    return size >= SMALLEST_PAGE and size % SMALLEST_PAGE == 0
