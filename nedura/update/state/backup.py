"""Full mode: one zip of the root home and all its profiles. It owns rollback of state; it contains credentials."""

from __future__ import annotations

import json
import os
import secrets
import threading
import time
import zipfile
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import attrs

from nedura._version import __version__
from nedura.clock import Clock, SystemClock, iso
from nedura.errors import StoreError
from nedura.fanin import Report, stream
from nedura.locks import locked
from nedura.records import fsync_folder, make_folder
from nedura.text import clean
from nedura.update.events import Progress
from nedura.update.events_snapshot import BackupFailed, BackupTaken
from nedura.update.generation.durable import fsync_file, own_folder, remove_tree
from nedura.update.generation.tree_rules import ascii_name
from nedura.update.state.archive import collides, name_problem
from nedura.update.state.backup_walk import Found, walk_home
from nedura.update.state.snapshot import in_thread
from nedura.update.state.snapshot_set import in_set
from nedura.update.state.snapshot_take import BACKUP_LOCK
from nedura.update.state.sqlite import BUSY_LIMIT, check_copy, copy_database, is_sqlite

__all__ = ["BACKUPS", "ZIP_NOTE", "BackupEvent", "take_backup", "write_backup"]

BACKUPS: Final = "backups"
ZIP_NOTE: Final = "nedura-backup.json"
"""Member that says what the archive is."""
LOCK_WAIT: Final = 0.25
FOREIGN_BUSY: Final = 2.0
"""Seconds that a database which is not ours (a browser's) is waited for (case C010)."""
ADD: Final = "w"
"""Mode that adds a member to an open archive."""
EARLIEST: Final = (1980, 1, 1, 0, 0, 0)

BackupEvent = BackupTaken | BackupFailed | Progress


@attrs.define
class _Writing:
    files: int = 0
    bytes_in: int = 0
    current: str = ""
    skipped: dict[str, str] = attrs.field(factory=dict)
    names: dict[str, tuple[str, bool]] = attrs.field(factory=dict)

    def skip(self, relative: str, why: str) -> None:
        """Name a file that is left out; odd names as what can be shown."""
        self.skipped[ascii_name(relative)] = why

    def problem(self, relative: str) -> str:
        """Why no import would take a file of this name, so that it must not be in the archive."""
        why = name_problem(relative)
        if not why and collides(self.names, relative.split("/")):
            why = "differs from another only in letter case"
        return why


async def take_backup(
    root: Path,
    *,
    label: str = "pre-update",
    keep: int | None = 5,
    target: Path | None = None,
    checkout: Path | None = None,
    clock: Clock | None = None,
) -> AsyncGenerator[BackupEvent, None]:
    """Zip the root home; the last event is `BackupTaken` or `BackupFailed`. A failure never stops an update.

    Args:
        root: root home, profiles included.
        label: first part of the file name; older ones with the same label are pruned.
        keep: how many of that label stay, at least 1; None keeps all.
        target: write here instead of into `<root>/backups`; nothing is pruned then.
        checkout: the code's folder when it lies in the home.
        clock: time.
    """
    clock = SystemClock() if clock is None else clock
    state, now = _Writing(), clock.time()

    def work(stop: threading.Event) -> BackupTaken:
        return write_backup(
            root, label=label, keep=keep, target=target, checkout=checkout, now=now, stop=stop, state=state
        )

    async def run(report: Report[BackupEvent]) -> None:
        def tick() -> None:
            report(Progress(stage="snapshot", label=f"full backup: {state.current}", done=state.bytes_in))

        try:
            report(await in_thread(work, tick))
        except StoreError as error:
            report(BackupFailed(reason=error.diagnostics()))
        except OSError as error:  # border: a full disk is told, and never ends the update
            report(BackupFailed(reason=error.strerror or type(error).__name__))

    yield Progress(stage="snapshot", label="full backup")
    async with aclosing(stream([run])) as events:
        async for event in events:
            yield event  # noqa: ASYNC119 - the fan-in is what owns the task, and it is closed with us


def write_backup(
    root: Path,
    *,
    label: str = "pre-update",
    keep: int | None = 5,
    target: Path | None = None,
    checkout: Path | None = None,
    now: float,
    stop: threading.Event | None = None,
    state: _Writing | None = None,
    busy_limit: float = BUSY_LIMIT,
    foreign_busy: float = FOREIGN_BUSY,
) -> BackupTaken:
    """The blocking half of `take_backup`.

    Raises:
        StoreError: nothing was made, and nothing older was touched.
    """
    stop, state = stop or threading.Event(), state or _Writing()
    folder = own_folder(root / BACKUPS) if target is None else target.parent
    if target is None:
        target = _free_name(folder, label, now)
    elif target.exists():
        raise StoreError(f"{clean(str(target), 300)} exists already.", advice="Name another file.")
    with locked(root / BACKUP_LOCK, LOCK_WAIT, "backup"):
        stage = make_folder(folder / f".{target.name}.{os.getpid()}.{secrets.token_hex(4)}.partial")
        try:
            partial = stage / "zip"
            _write(root, partial, stage, checkout, now, stop, state, busy_limit, foreign_busy)
            fsync_file(partial)
            os.rename(partial, target)
            fsync_folder(folder)
        except OSError as error:
            raise StoreError(
                f"The backup cannot be written: {error.strerror}.", advice="Free some space."
            ) from error
        finally:
            remove_tree(stage)
        pruned = _prune(folder, label, keep) if keep is not None and target.parent == root / BACKUPS else ()
    return BackupTaken(
        path=str(target),
        files=state.files,
        size=target.stat().st_size,
        skipped=dict(sorted(state.skipped.items())),
        pruned=pruned,
    )


def _free_name(folder: Path, label: str, now: float) -> Path:
    stamp = datetime.fromtimestamp(now, UTC).strftime("%Y%m%d-%H%M%S")
    path, number = folder / f"{label}-{stamp}.zip", 2
    while path.exists():
        path, number = folder / f"{label}-{stamp}-{number}.zip", number + 1
    return path


def _prune(folder: Path, label: str, keep: int) -> tuple[str, ...]:
    names = sorted(
        name for name in os.listdir(folder) if name.startswith(f"{label}-") and name.endswith(".zip")
    )
    gone = names[: -max(1, keep)]
    for name in gone:
        (folder / name).unlink(missing_ok=True)
    return tuple(gone)


def _write(
    root: Path,
    partial: Path,
    stage: Path,
    checkout: Path | None,
    now: float,
    stop: threading.Event,
    state: _Writing,
    busy_limit: float,
    foreign_busy: float,
) -> None:
    handle = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with (
        os.fdopen(handle, "w+b") as file,
        zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, allowZip64=True, compresslevel=6) as archive,
    ):
        for found in walk_home(root, checkout=checkout):
            if stop.is_set():
                raise StoreError("The backup was stopped.")
            why = found.skip or state.problem(found.relative)
            if why:
                state.skip(found.relative, why)
            else:
                _add(archive, found, stage, stop, state, busy_limit, foreign_busy)
        if not state.files:
            raise StoreError("There is nothing to back up.")
        note = {
            "schema": 1, "product": "nedura", "version": __version__, "created_at": iso(now), "files": state.files,
            "contains_credentials": True, "skipped": state.skipped,
        }  # fmt: skip
        archive.writestr(
            _entry(ZIP_NOTE, 0o600, time.gmtime(now)[:6]), json.dumps(note, indent=2, ensure_ascii=False)
        )


def _entry(name: str, mode: int, moment: tuple[int, ...]) -> zipfile.ZipInfo:
    year, month, day, hour, minute, second = max(moment, EARLIEST)
    info = zipfile.ZipInfo(name, (min(year, 2107), month, day, hour, minute, second))
    info.external_attr = (0o100000 | mode) << 16
    info.compress_type = zipfile.ZIP_DEFLATED
    return info


def _add(
    archive: zipfile.ZipFile,
    found: Found,
    stage: Path,
    stop: threading.Event,
    state: _Writing,
    busy_limit: float,
    foreign_busy: float,
) -> None:
    """Add one file. What is unreadable is left out and named; a database of ours that fails ends the whole backup."""
    state.current = found.relative
    ours = in_set(_in_profile(found.relative))
    try:
        source = found.path
        if is_sqlite(source):
            source = _database(found, stage, stop, busy_limit if ours else foreign_busy)
        elif ours and found.relative.endswith(".db") and found.path.stat().st_size:
            raise StoreError(f"{clean(found.relative, 120)} is not a SQLite database.")
        state.bytes_in += _pack(archive, source, found.relative)
        state.files += 1
    except StoreError as error:
        if ours:
            raise
        state.skip(found.relative, error.message)
    except FileNotFoundError:
        return  # gone since it was listed
    except OSError as error:
        if error.errno in (28, 122):  # ENOSPC, EDQUOT
            raise
        state.skip(found.relative, error.strerror or "unreadable")


def _in_profile(relative: str) -> str:
    """A path as the home sees it that it belongs to."""
    parts = relative.split("/")
    return "/".join(parts[2:]) if parts[0] == "profiles" and len(parts) > 2 else relative


def _database(found: Found, stage: Path, stop: threading.Event, busy_limit: float) -> Path:
    copy = stage / "database"
    copy.unlink(missing_ok=True)
    os.close(os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    copy_database(found.path, copy, stop=stop, busy_limit=busy_limit)
    check_copy(copy)
    return copy


def _pack(archive: zipfile.ZipFile, source: Path, name: str) -> int:
    """Deflate one file into the archive; returns its bytes."""
    handle = os.open(source, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(handle, "rb") as reading:
        info = os.fstat(handle)
        entry = _entry(name, 0o700 if info.st_mode & 0o100 else 0o600, time.gmtime(max(info.st_mtime, 0))[:6])
        entry.file_size = info.st_size
        size = 0
        with archive.open(entry, ADD, force_zip64=entry.file_size > 1024**3) as writing:
            while chunk := reading.read(1024 * 1024):
                size += len(chunk)
                writing.write(chunk)
    return size
