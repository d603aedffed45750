"""Putting a checked copy where a live file is: whole, durable, and never beside a database log that belongs to another content."""

from __future__ import annotations

import contextlib
import errno
import math
import os
import secrets
import time
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from nedura.errors import NeduraError, RefusedError, StoreError
from nedura.openers import FileKey, open_files
from nedura.records import fsync_folder, make_folder, remove
from nedura.text import clean
from nedura.update.generation.durable import fsync_file
from nedura.update.state.raw_file import raw_file
from nedura.update.state.snapshot_set import SQLITE_SIDES
from nedura.update.state.snapshot_take import copy_plain
from nedura.update.state.sqlite import DamagedDatabase, check_live, holders, overwrite

__all__ = [
    "Openers",
    "cut_off",
    "free_bytes",
    "judge_place",
    "place_database",
    "place_file",
    "refuse_if_held",
    "set_aside",
]

ASIDE: Final = ".corrupt-"
STAYS: Final = "it stays as it is"
ASIDE_KEEP: Final = 2
"""Sets of damaged files that stay beside a database (case C013: repairs in a loop must not fill the disk)."""


class Openers:
    """What processes have open: one look at all of them answers for many databases, for as long as it is fresh.

    A database that it calls held is looked at again by itself.
    """

    FRESH: Final = 1.0
    """Seconds."""

    def __init__(
        self,
        look: Callable[[], Mapping[FileKey, Collection[int]] | None] = open_files,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._look, self._monotonic = look, monotonic
        self._seen: Mapping[FileKey, Collection[int]] | None = None
        self._until = -math.inf

    def seen(self) -> Mapping[FileKey, Collection[int]] | None:
        """Who has which file open; None where only each file can be asked about."""
        if self._monotonic() >= self._until:
            self._seen = self._look()
            self._until = self._monotonic() + self.FRESH
        return self._seen


def free_bytes(folder: Path) -> int:
    """Bytes that a folder's disk has left for this user."""
    space = os.statvfs(folder)
    return space.f_bavail * space.f_frsize


def judge_place(live: Path, *, database: bool = False, openers: Openers | None = None) -> None:
    """Whether a file can be put in a place at all, so that many can be judged before the first one is changed.

    Args:
        live: where it would be; the owner's own link is followed.
        database: nobody may have it open then.
        openers: answers for many databases; None asks about this one alone.

    Raises:
        RefusedError: a process has it open.
        StoreError: something else is in its place, or its folder cannot be written.
    """
    try:
        target = Path(os.path.realpath(live)) if live.is_symlink() else live
        if os.path.lexists(target) and not target.is_file():
            raise StoreError(
                f"{clean(str(target), 300)} is not a regular file; nothing was changed.",
                advice="Move it away.",
            )
        folder = target.parent
        while not os.path.lexists(folder):
            folder = folder.parent
        if not folder.is_dir():
            raise StoreError(
                f"{clean(str(folder), 300)} is not a folder; nothing was changed.", advice="Move it away."
            )
        if not os.access(folder, os.W_OK | os.X_OK):
            raise StoreError(
                f"{clean(str(folder), 300)} cannot be written; nothing was changed.",
                advice="Check its owner and mode.",
            )
    except OSError as error:  # a folder on the way that may not be entered
        raise StoreError(
            f"{clean(str(live), 300)} cannot be reached: {error.strerror}; nothing was changed.",
            advice="Check the owner and mode of its folder.",
        ) from error
    if database:
        refuse_if_held(live, openers=openers)


def place_file(copy: Path, live: Path, mode: int = 0o600) -> None:
    """Replace a file by a copy of another: temp file, fsync, rename, fsync of the folder. The owner's own link is written through.

    Raises:
        StoreError: it cannot be written; the old content stands.
    """
    target = Path(os.path.realpath(live)) if live.is_symlink() else live
    if target.exists() and not target.is_file():
        raise StoreError(f"{clean(str(target), 300)} is not a regular file.", advice="Move it away.")
    make_folder(target.parent)
    temp = (
        target.parent / f".placed.tmp.{os.getpid()}.{secrets.token_hex(6)}"
    )  # fits where the longest name does
    try:
        copy_plain(copy, temp)
        os.chmod(temp, mode)
        fsync_file(temp)
        os.rename(temp, target)
        fsync_folder(target.parent)
    except OSError as error:
        temp.unlink(missing_ok=True)
        raise StoreError(
            f"{clean(str(target), 300)} cannot be written: {error.strerror}.",
            advice="Check free space and permissions.",
        ) from error


def refuse_if_held(live: Path, then: str = "nothing was changed", openers: Openers | None = None) -> None:
    """Refuse to touch a database that a process has open.

    Args:
        live: the database.
        then: what is true of it afterwards.
        openers: answers for many databases; None asks about this one alone.

    Raises:
        RefusedError: names the processes.
    """
    with contextlib.suppress(OSError), raw_file(live):
        pass  # lets go of a descriptor that a copy kept while this process had the file open (raw_file.py)
    opened = openers.seen() if openers is not None else None
    found = holders(live) if opened is None or holders(live, opened=opened) else []
    if found:
        seen = ", ".join(str(pid) for pid in found[:5] if pid)
        where = f"in process {seen}" if seen else "in a process of another container or machine"
        raise RefusedError(
            f"{clean(live.name)} is open {where}; {then}.",
            advice="Stop it first, for example: nedura gateway stop",
        )


def cut_off(error: NeduraError | OSError, done: int, total: int) -> NeduraError:
    """What is told when one of many files could not be put in place.

    Args:
        error: why.
        done: files that are in place.
        total: files in all.
    """
    if done == 0 and isinstance(error, NeduraError):
        return error
    why = error.message if isinstance(error, NeduraError) else f"{error.strerror or type(error).__name__}."
    return StoreError(
        f"{why} {done} of {total} files are in place already, the others are as they were.",
        advice="Put that right and do it again.",
    )


def place_database(copy: Path, live: Path, *, now: float, openers: Openers | None = None) -> Path | None:
    """Give a database the content of a checked copy.

    A link of the owner's own is written through: side files lie beside the file that it leads to.
    A healthy one is overwritten in one transaction of SQLite's own, which also deals with a left-over log. A damaged one is set aside
    byte for byte first. Where there is none, left-over side files are removed before the copy appears, because SQLite would replay
    a foreign log into it.

    Returns:
        Where a damaged one is kept; None when there was none.

    Raises:
        RefusedError: a process has it open.
        StoreError: it cannot be done; the old content stands.
    """
    live = Path(os.path.realpath(live))
    refuse_if_held(live, STAYS, openers)
    aside = None
    if live.exists():
        try:
            check_live(live)
            overwrite(live, copy)
            check_live(live)
        except DamagedDatabase:
            refuse_if_held(live, STAYS)
            aside = set_aside(live, now=now)
        else:
            return None
    for side in SQLITE_SIDES:
        remove(live.with_name(live.name + side))
    place_file(copy, live)
    return aside


def set_aside(live: Path, *, now: float) -> Path:
    """Keep a damaged database and its side files byte for byte under another name; only the newest two sets stay.

    The database itself stays in place as a second name until the caller renames over it, so it is never missing.

    Raises:
        StoreError: it cannot be kept; nothing was moved.
    """
    live = Path(os.path.realpath(live))
    aside = _free_aside(live, datetime.fromtimestamp(now, UTC).strftime("%Y%m%d-%H%M%S"))
    moved: list[tuple[Path, Path]] = []
    try:
        _second_name(live, aside)  # first: what cannot be kept keeps its log, too
        for side in SQLITE_SIDES:
            path, there = live.with_name(live.name + side), aside.with_name(aside.name + side)
            if path.exists():
                os.rename(path, there)
                moved.append((path, there))
        fsync_folder(live.parent)
    except OSError as error:
        for path, there in moved:
            os.rename(there, path)
        aside.unlink(missing_ok=True)
        raise StoreError(
            f"{clean(live.name)} cannot be set aside: {error.strerror}.",
            advice="Check its owner and the free space.",
        ) from error
    _prune_aside(live)
    return aside


def _free_aside(live: Path, stamp: str) -> Path:
    path, number = live.with_name(f"{live.name}{ASIDE}{stamp}"), 2
    while os.path.lexists(path):
        path, number = live.with_name(f"{live.name}{ASIDE}{stamp}-{number}"), number + 1
    return path


def _second_name(live: Path, aside: Path) -> None:
    """A hard link, or a copy where the file system or the file's owner allows none."""
    try:
        os.link(live, aside)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS):
            raise
        try:
            copy_plain(live, aside)
            fsync_file(aside)
        except OSError:
            aside.unlink(missing_ok=True)
            raise


def _prune_aside(live: Path) -> None:
    """Only the newest sets stay; what cannot go stays, too."""
    prefix = live.name + ASIDE
    stamp_length = len("YYYYMMDD-HHMMSS")
    names = [name for name in os.listdir(live.parent) if name.startswith(prefix)]
    stamps = sorted({name[len(prefix) : len(prefix) + stamp_length] for name in names})
    for name in names:
        if name[len(prefix) : len(prefix) + stamp_length] in stamps[:-ASIDE_KEEP]:
            with contextlib.suppress(OSError):
                (live.parent / name).unlink()
