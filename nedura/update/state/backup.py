"""Full mode: one zip of the root home and all its profiles. It owns rollback of state; it contains credentials."""

from __future__ import annotations

import json
import os
import re
import secrets
import threading
import time
import zipfile
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractContextManager, aclosing, nullcontext
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
from nedura.update.ledger.owner import is_gone
from nedura.update.state.archive import collides, name_problem
from nedura.update.state.backup_walk import SPECIAL, STAGE, Found, may_hold_ours, walk_home
from nedura.update.state.code_files import CodeFiles, code_in
from nedura.update.state.place import free_bytes
from nedura.update.state.snapshot import in_thread
from nedura.update.state.snapshot_set import in_set
from nedura.update.state.snapshot_take import BACKUP_LOCK, SPARE
from nedura.update.state.sqlite import BUSY_LIMIT, check_copy, copy_database, is_sqlite

__all__ = ["BACKUPS", "ZIP_NOTE", "BackupEvent", "take_backup", "write_backup"]

BACKUPS: Final = "backups"
ZIP_NOTE: Final = "nedura-backup.json"
"""Member that says what the archive is."""
LOCK_WAIT: Final = 0.25
FOREIGN_BUSY: Final = 2.0
"""Seconds that databases which are not ours (a browser's) are waited for, all together (case C010)."""
ADD: Final = "w"
"""Mode that adds a member to an open archive."""
EARLIEST: Final = (1980, 1, 1, 0, 0, 0)
LATEST: Final = 4_354_819_198.0
"""Last moment that a zip can tell; a file system may hold later ones."""
_NUMBERED: Final = re.compile(r"-(\d{8}-\d{6})(?:-(\d{1,9}))?\.zip\Z")

BackupEvent = BackupTaken | BackupFailed | Progress


@attrs.define
class _Writing:
    files: int = 0
    bytes_in: int = 0
    current: str = ""
    skipped: dict[str, str] = attrs.field(factory=dict)
    names: dict[str, tuple[str, bool]] = attrs.field(factory=dict)
    foreign_left: float = FOREIGN_BUSY

    def skip(self, relative: str, why: str) -> None:
        """Name a file that is left out; odd names as what can be shown."""
        self.skipped[ascii_name(relative)] = why

    def problem(self, relative: str) -> str:
        """Why no import would take a file of this name, so that it must not be in the archive."""
        why = name_problem(relative)
        if not why and collides(self.names, relative.split("/")):
            why = "differs from another only in letter case"
        return why


class _Ended(StoreError):
    """The backup is over: it was stopped, or the disk is nearly full and nothing else will fit either."""


@attrs.frozen
class _Means:
    """What one backup works with."""

    stage: Path
    stop: threading.Event
    state: _Writing
    busy_limit: float
    free: Callable[[Path], int]

    def need_room(self, size: int) -> None:
        """Raises before the disk is full: others still have to write on it."""
        left = self.free(self.stage)
        if left < size + SPARE:
            raise _Ended(f"The disk has only {left // 1_000_000} MB free.", advice="Free some space.")


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
    free: Callable[[Path], int] = free_bytes,
) -> BackupTaken:
    """The blocking half of `take_backup`.

    Args:
        root: root home, profiles included.
        label: first part of the file name.
        keep: how many of that label stay; None keeps all.
        target: write here instead.
        checkout: the code's folder when it lies in the home.
        now: unix seconds.
        stop: ends it between files and while waiting.
        state: progress, filled in.
        busy_limit: seconds that a database of ours is waited for.
        foreign_busy: seconds that all others are waited for together.
        free: bytes that a folder's disk has left.

    Raises:
        StoreError: nothing was made, and nothing older was touched.
    """
    stop, state = stop or threading.Event(), state or _Writing()
    state.foreign_left = foreign_busy
    folder = own_folder(root / BACKUPS) if target is None else target.parent
    if target is None:
        target = _free_name(folder, label, now)
    elif os.path.lexists(target):
        raise StoreError(f"{clean(str(target), 300)} exists already.", advice="Name another file.")
    with _lock(root):
        _sweep(make_folder(folder))
        stage = folder / f".nedura-backup.{os.getpid()}.{secrets.token_hex(4)}.partial"
        means = _Means(stage, stop, state, busy_limit, free)
        size = _stage(root, target, code_in(root, checkout), now, means)
        pruned = _prune(target, label, keep) if keep is not None and target.parent == root / BACKUPS else ()
    return BackupTaken(
        path=str(target),
        files=state.files,
        size=size,
        skipped=dict(sorted(state.skipped.items())),
        pruned=pruned,
    )


def _lock(root: Path) -> AbstractContextManager[None]:
    """The lock of a home; none where nobody can write: what a failing disk still holds can be saved elsewhere."""
    if root.is_dir() and os.statvfs(root).f_flag & os.ST_RDONLY:
        return nullcontext()
    return locked(root / BACKUP_LOCK, LOCK_WAIT, "backup")


def _stage(root: Path, target: Path, code: CodeFiles, now: float, means: _Means) -> int:
    """Write the archive aside and give it its name; returns its bytes."""
    try:
        means.stage.mkdir(0o700)  # also in a folder of another user that root was told to use
        partial = means.stage / "zip"
        _write(root, partial, code, now, means)
        fsync_file(partial)
        size = partial.stat().st_size
        os.rename(partial, target)
        fsync_folder(target.parent)
    except OSError as error:
        raise StoreError(
            f"The backup cannot be written: {error.strerror}.", advice="Free some space."
        ) from error
    finally:
        remove_tree(means.stage)
    return size


def _free_name(folder: Path, label: str, now: float) -> Path:
    """The name of a new backup: numbered behind every one of the same second, so that names tell their order."""
    stamp = datetime.fromtimestamp(now, UTC).strftime("%Y%m%d-%H%M%S")
    last = max((number for at, number, _ in _made(folder, label) if at == stamp), default=0)
    path = folder / (f"{label}-{stamp}-{last + 1}.zip" if last else f"{label}-{stamp}.zip")
    while os.path.lexists(path):
        last += 1
        path = folder / f"{label}-{stamp}-{last + 1}.zip"
    return path


def _made(folder: Path, label: str) -> list[tuple[str, int, str]]:
    """Backups of a label, told by the names that we give: stamp, number and name, oldest first."""
    found = []
    for name in os.listdir(folder):
        numbered = _NUMBERED.match(name.removeprefix(label)) if name.startswith(label) else None
        if numbered:
            found.append((numbered[1], int(numbered[2] or 1), name))
    return sorted(found)


def _sweep(folder: Path) -> None:
    """Remove what killed backups left; in a folder of the owner's own others may be at work."""
    for name in os.listdir(folder):
        found, stage = STAGE.match(name), folder / name
        try:
            if found and is_gone(int(found[1]), stage.lstat().st_ctime):
                remove_tree(stage)
        except (StoreError, OSError):  # what cannot go stays; it costs this backup nothing
            continue


def _prune(new: Path, label: str, keep: int) -> tuple[str, ...]:
    """Remove older backups of a label; the new one stays whatever the clock said when the others were made."""
    older = [name for *_, name in _made(new.parent, label) if name != new.name]
    gone: list[str] = []
    for name in older[: len(older) - (max(1, keep) - 1)]:
        try:
            (new.parent / name).unlink()
        except OSError:  # what cannot go stays; the new one is whole
            continue
        gone.append(name)
    return tuple(gone)


def _write(root: Path, partial: Path, code: CodeFiles, now: float, means: _Means) -> None:
    state = means.state
    handle = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with (
        os.fdopen(handle, "w+b") as file,
        zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, allowZip64=True, compresslevel=6) as archive,
    ):
        for found in walk_home(root, code=code):
            if means.stop.is_set():
                raise StoreError("The backup was stopped.")
            if found.skip and _may_hide_ours(found):
                raise StoreError(
                    f"{ascii_name(found.relative)} cannot be saved: {found.skip}.",
                    advice="Put it right, or move it away.",
                )
            why = found.skip or state.problem(found.relative) or _older_backup(found.path)
            if why:
                state.skip(found.relative, why)
            else:
                _add(archive, found, means)
        if not state.files:
            raise StoreError("There is nothing to back up.")
        note = {
            "schema": 1, "product": "nedura", "version": __version__, "created_at": iso(now), "files": state.files,
            "contains_credentials": True, "skipped": state.skipped,
        }  # fmt: skip
        archive.writestr(_entry(ZIP_NOTE, 0o600, now), json.dumps(note, indent=2, ensure_ascii=False))


def _entry(name: str, mode: int, moment: float) -> zipfile.ZipInfo:
    year, month, day, hour, minute, second = max(time.gmtime(min(max(moment, 0.0), LATEST))[:6], EARLIEST)
    info = zipfile.ZipInfo(name, (year, month, day, hour, minute, second))
    info.external_attr = (0o100000 | mode) << 16
    info.compress_type = zipfile.ZIP_DEFLATED
    return info


def _older_backup(path: Path) -> str:
    """Why a file is left out that is a full backup itself: each would hold all before it, and double with every one (case C013)."""
    if path.suffix.lower() != ".zip":
        return ""
    try:
        with zipfile.ZipFile(path) as archive:
            return "a full backup of before" if ZIP_NOTE in archive.NameToInfo else ""
    except (
        zipfile.BadZipFile,
        OSError,
        ValueError,
        NotImplementedError,
    ):  # some other file, or one that the next step names
        return ""


def _may_hide_ours(found: Found) -> bool:
    """Whether what is left out is a database of ours, or may lead to one."""
    if found.foreign:
        return False
    return _is_our_database(found.relative) or (found.skip != SPECIAL and may_hold_ours(found.relative))


def _is_our_database(relative: str) -> bool:
    """Whether a backup without this file would be none."""
    return relative.endswith(".db") and in_set(_in_profile(relative))


def _add(archive: zipfile.ZipFile, found: Found, means: _Means) -> None:
    """Add one file. What is unreadable is left out and named; a database of ours that fails ends the whole backup."""
    state = means.state
    state.current = found.relative
    ours = in_set(_in_profile(found.relative))
    try:
        source = found.path
        if is_sqlite(source):
            source = _database(found, means, ours)
        elif _is_our_database(found.relative) and found.path.stat().st_size:
            raise StoreError(f"{clean(found.relative, 120)} is not a SQLite database.")
        _pack(archive, source, found.relative, means)
        state.files += 1
    except StoreError as error:
        if ours or isinstance(error, _Ended):
            raise
        state.skip(found.relative, error.message)
    except FileNotFoundError:
        return  # gone since it was listed
    except OSError as error:
        if error.errno in (28, 122):  # ENOSPC, EDQUOT
            raise
        why = error.strerror or "unreadable"
        if _is_our_database(found.relative):
            raise StoreError(f"{clean(found.relative, 120)} cannot be saved: {why}.") from error
        state.skip(found.relative, why)


def _in_profile(relative: str) -> str:
    """A path as the home sees it that it belongs to."""
    parts = relative.split("/")
    return "/".join(parts[2:]) if parts[0] == "profiles" and len(parts) > 2 else relative


def _database(found: Found, means: _Means, ours: bool) -> Path:
    copy = means.stage / "database"
    copy.unlink(missing_ok=True)
    os.close(os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    means.need_room(found.path.stat().st_size)
    started = time.monotonic()
    try:
        copy_database(
            found.path,
            copy,
            stop=means.stop,
            busy_limit=means.busy_limit if ours else means.state.foreign_left,
        )
    except StoreError:
        if not ours:  # most likely it waited for a lock: the next ones have only what is left
            means.state.foreign_left = max(0.0, means.state.foreign_left - (time.monotonic() - started))
        raise
    check_copy(copy)
    return copy


def _pack(archive: zipfile.ZipFile, source: Path, name: str, means: _Means) -> None:
    """Deflate one file into the archive, told byte by byte since it may take minutes; of one that grows what it had at the start.

    A file that cannot be read to its end is not listed in the archive: half of it would come back as the whole.
    """
    handle = os.open(source, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(handle, "rb") as reading:
        info = os.fstat(handle)
        entry = _entry(name, 0o700 if info.st_mode & 0o100 else 0o600, info.st_mtime)
        entry.file_size = left = info.st_size
        try:
            with archive.open(entry, ADD, force_zip64=left > 1024**3) as writing:
                while left and (chunk := reading.read(min(left, 1024 * 1024))):
                    if means.stop.is_set():
                        raise _Ended("The backup was stopped.")
                    means.need_room(len(chunk))
                    writing.write(chunk)
                    means.state.bytes_in += len(chunk)
                    left -= len(chunk)
        except (StoreError, OSError):
            archive.filelist[:] = [each for each in archive.filelist if each is not entry]
            archive.NameToInfo.pop(name, None)
            raise
