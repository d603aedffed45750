"""Which processes have a file open: asked of the kernel, never guessed from names."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from pathlib import Path

__all__ = ["FileKey", "file_key", "open_files", "openers_of"]

FileKey = tuple[int, int]
"""Device and inode."""


def file_key(path: str | os.PathLike[str]) -> FileKey | None:
    """What tells one file from another; None when it is not there."""
    try:
        info = os.stat(path, follow_symlinks=False)
    except OSError:
        return None
    return info.st_dev, info.st_ino


def openers_of(files: Collection[FileKey], *, proc: Path = Path("/proc")) -> set[int]:
    """Pids that have one of the files open, this process included. Processes of other users that hide their files are not seen."""
    if not files:
        return set()
    try:
        names = [name for name in os.listdir(proc) if name.isdigit()]
    except OSError:
        return set(_elsewhere(files))
    return {int(name) for name in names if _has_open(f"{proc}/{name}/fd", files)}


def open_files(*, proc: Path = Path("/proc")) -> dict[FileKey, set[int]] | None:
    """Every file that some process has open, and who: one look for many questions. None where only `openers_of` can tell."""
    found: dict[FileKey, set[int]] = {}
    try:
        names = [name for name in os.listdir(proc) if name.isdigit()]
    except OSError:
        return None
    for name in names:
        for key in _opened(f"{proc}/{name}/fd"):
            found.setdefault(key, set()).add(int(name))
    return found


def _opened(folder: str) -> Iterator[FileKey]:
    try:
        links = os.listdir(folder)
    except OSError:  # gone, or another user's
        return
    for link in links:
        key = _key(f"{folder}/{link}")
        if key is not None:
            yield key


def _has_open(folder: str, files: Collection[FileKey]) -> bool:
    return any(key in files for key in _opened(folder))


def _key(link: str) -> FileKey | None:
    try:
        info = os.stat(link)
    except OSError:
        return None
    return info.st_dev, info.st_ino


def _elsewhere(files: Collection[FileKey]) -> Iterator[int]:
    """The same where there is no /proc."""
    import psutil

    for process in psutil.process_iter():
        try:
            opened = [file.path for file in process.open_files()]
        except (psutil.Error, OSError):
            continue
        if any(_key(path) in files for path in opened):
            yield process.pid
