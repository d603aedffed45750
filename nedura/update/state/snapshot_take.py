"""Taking one profile's snapshot: staged aside, made durable, checked, published by one rename, and only then older ones go.

Blocking code: it runs in a thread of its own, and stops between files when asked.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import attrs

from nedura.errors import StoreError
from nedura.locks import locked
from nedura.records import fsync_folder, make_folder, write_json
from nedura.text import clean
from nedura.update.generation.durable import own_folder, remove_tree, start_writing
from nedura.update.generation.environment import sync_filesystem
from nedura.update.state.raw_file import is_sqlite, may_be_sqlite
from nedura.update.state.snapshot_manifest import (
    FOLDER,
    MANIFEST,
    Manifest,
    list_snapshots,
    prunable,
    snapshot_name,
)
from nedura.update.state.snapshot_set import FILE_CAP, Source, expand
from nedura.update.state.sqlite import BUSY_LIMIT, check_copy, copy_database

__all__ = ["BACKUP_LOCK", "Taken", "Taking", "take_snapshot"]

BACKUP_LOCK: Final = ".backup.lock"
LOCK_WAIT: Final = 0.25
"""Seconds to wait for another backup of the same home."""
SPARE: Final = 64 * 1024 * 1024
"""Bytes of the disk that a snapshot leaves free."""
CHUNK: Final = 1024 * 1024


@attrs.frozen(kw_only=True)
class Taken:
    """A snapshot that is on disk.

    Attributes:
        manifest: what it holds.
        folder: where.
        pruned: ids of older ones that it replaced.
    """

    manifest: Manifest
    folder: Path
    pruned: tuple[str, ...] = ()


@attrs.define
class Taking:
    """How far a snapshot has come; written by its thread, read by whoever shows progress.

    Attributes:
        current: path below the home that is being copied.
        target: the growing copy.
        size: expected bytes of the current file.
    """

    current: str = ""
    target: Path | None = None
    size: int = 0

    def done(self) -> int:
        """Bytes of the current file that are there."""
        try:
            return self.target.stat().st_size if self.target is not None else 0
        except OSError:
            return 0


@attrs.define
class _Content:
    files: dict[str, int] = attrs.field(factory=dict)
    sha256: dict[str, str] = attrs.field(factory=dict)
    failed: dict[str, str] = attrs.field(factory=dict)
    failed_dbs: dict[str, str] = attrs.field(factory=dict)
    oversized: list[str] = attrs.field(factory=list)
    skipped: dict[str, str] = attrs.field(factory=dict)


@attrs.frozen
class _Database:
    """A copied database: its path below the home, the copy, and the copy's hash."""

    relative: str
    target: Path
    sha256: str


def take_snapshot(
    profile: str,
    home: Path,
    *,
    label: str,
    keep: int,
    cap: int | None = FILE_CAP,
    now: float,
    stop: threading.Event | None = None,
    taking: Taking | None = None,
    busy_limit: float = BUSY_LIMIT,
    monotonic: Callable[[], float] = time.monotonic,
) -> Taken | None:
    """Snapshot one home into its own `state-snapshots/`.

    Args:
        profile: name for the manifest.
        home: the profile's home.
        label: why; part of the id. Only snapshots with the same label are counted and pruned.
        keep: how many of that label stay.
        cap: largest file in bytes; None for no cap.
        now: unix seconds, for the id.
        stop: ends it between files and while waiting.
        taking: progress, filled in.
        busy_limit: seconds that locked databases are waited for, all together.
        monotonic: clock in seconds.

    Returns:
        What was taken; None when the home has nothing of the set.

    Raises:
        StoreError: no snapshot could be made; nothing older was touched.
    """
    stop = threading.Event() if stop is None else stop
    if not os.path.lexists(home / FOLDER) and next(expand(home), None) is None:
        return None  # and nothing is made there
    root = own_folder(home / FOLDER)
    with locked(home / BACKUP_LOCK, LOCK_WAIT, "backup"):
        _sweep(root)
        sources = list(expand(home))
        if not sources:
            return None
        _admit(root, sources, cap)
        stamp = datetime.fromtimestamp(now, UTC).strftime("%Y%m%d-%H%M%S")
        name = snapshot_name(os.listdir(root), stamp, label)
        stage = make_folder(root / f".{name}.{os.getpid()}.{secrets.token_hex(4)}.partial")
        try:
            had = taking or Taking()
            return _take(profile, stage, name, label, keep, sources, cap, stop, had, busy_limit, monotonic)
        except OSError as error:
            raise StoreError(
                f"The snapshot of {clean(profile, 80)} cannot be written: {error.strerror}.",
                advice="Check free space and permissions.",
            ) from error
        finally:
            if stage.exists():
                remove_tree(stage)


def _sweep(root: Path) -> None:
    """Remove what killed runs left; the lock says that nobody works in them."""
    for name in os.listdir(root):
        if name.startswith(".") and name.endswith(".partial"):
            with contextlib.suppress(StoreError):  # what cannot go stays; it costs this snapshot nothing
                remove_tree(root / name)


def _admit(root: Path, sources: list[Source], cap: int | None) -> None:
    """Refuse before the first byte when it cannot fit; sizes come from `stat` alone."""
    need = sum(source.size for source in sources if cap is None or source.size <= cap or source.problem)
    space = os.statvfs(root)
    free = space.f_bavail * space.f_frsize
    if need + SPARE > free:
        raise StoreError(
            f"The snapshot needs {need // 1_000_000 + SPARE // 1_000_000} MB and the disk has {free // 1_000_000} MB free.",
            advice="Free some space.",
        )


def _take(
    profile: str,
    stage: Path,
    name: str,
    label: str,
    keep: int,
    sources: list[Source],
    cap: int | None,
    stop: threading.Event,
    taking: Taking,
    busy_limit: float,
    monotonic: Callable[[], float],
) -> Taken | None:
    content, databases = _Content(), list[_Database]()
    patience = (
        busy_limit  # one for all: a holder of several must not cost its limit once for each (case C009)
    )
    for source in sources:
        if stop.is_set():
            raise StoreError("The snapshot was stopped.")
        if source.problem:
            _leave_out(content, source, source.problem)
        elif cap is not None and _bytes_now(source) > cap:
            content.oversized.append(source.relative)
        else:
            failed, began = len(content.failed) + len(content.failed_dbs), monotonic()
            _capture(source, stage, content, databases, stop, taking, patience, monotonic)
            if len(content.failed) + len(content.failed_dbs) > failed:
                patience = max(0.0, patience - (monotonic() - began))
    taking.current, taking.target = "checking", None
    _check(content, databases, stop)
    sync_filesystem(stage)
    if not content.files:
        return None
    manifest = Manifest(
        id=name,
        timestamp=name[:15],
        label=label,
        profile=profile,
        files=content.files,
        sha256=content.sha256,
        failed_dbs=tuple(sorted(content.failed_dbs)),
        oversized_skipped=tuple(sorted(content.oversized)),
        failed=content.failed | content.failed_dbs,
        skipped=content.skipped,
    )
    write_json(stage / MANIFEST, manifest.record())
    return _publish(stage, manifest, keep)


def _leave_out(content: _Content, source: Source, reason: str) -> None:
    if not source.fatal:
        content.skipped[source.relative] = reason
    elif source.database:
        content.failed_dbs[source.relative] = reason
    else:
        content.failed[source.relative] = reason


def _bytes_now(source: Source) -> int:
    try:
        return os.stat(source.path).st_size
    except OSError:
        return 0


def _capture(
    source: Source,
    stage: Path,
    content: _Content,
    databases: list[_Database],
    stop: threading.Event,
    taking: Taking,
    busy_limit: float,
    monotonic: Callable[[], float],
) -> None:
    """Copy one file; its failure is recorded and never ends the others."""
    target = stage / source.relative
    taking.current, taking.target, taking.size = source.relative, target, source.size
    try:
        make_folder(target.parent)
        if _as_database(source):
            os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            digest = hashlib.sha256()
            copy_database(
                source.path, target, stop=stop, busy_limit=busy_limit, monotonic=monotonic, digest=digest
            )
            start_writing(target)
            databases.append(_Database(source.relative, target, digest.hexdigest()))
        else:
            content.files[source.relative], content.sha256[source.relative] = copy_plain(source.path, target)
    except FileNotFoundError:  # gone since it was listed: as if it had never been there
        target.unlink(missing_ok=True)
    except (StoreError, OSError) as error:
        target.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno in (
            28,
            122,
        ):  # ENOSPC, EDQUOT: nothing else will fit either
            raise
        _leave_out(content, source, error.message if isinstance(error, StoreError) else str(error.strerror))


def _as_database(source: Source) -> bool:
    """Whether to use SQLite. An empty file is copied as it is; a member that should be a database and is none is a failure;
    a file of a tree is one when its header says so.

    Raises:
        StoreError: bytes without SQLite's header where a database must be (case C019).
    """
    size = os.stat(source.path).st_size if source.database or source.any_name else 0
    if not source.database:
        return may_be_sqlite(size) and is_sqlite(source.path)
    if size == 0:
        return False
    if not is_sqlite(source.path):
        raise StoreError(f"{clean(source.relative, 120)} is not a SQLite database.")
    return True


def copy_plain(source: Path, target: Path) -> tuple[int, str]:
    """Copy a regular file into a new private one; returns its bytes and hash.

    Raises:
        OSError: it cannot be read or written.
    """
    digest, size = hashlib.sha256(), 0
    reading = os.open(source, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        writing = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            os.fchmod(writing, 0o600)
            while chunk := os.read(reading, CHUNK):
                digest.update(chunk)
                size += len(chunk)
                view = memoryview(chunk)
                while view:
                    view = view[os.write(writing, view) :]
        finally:
            os.close(writing)
    finally:
        os.close(reading)
    return size, digest.hexdigest()


def _check(content: _Content, databases: list[_Database], stop: threading.Event) -> None:
    """`quick_check` every database copy; a bad copy is a failure and does not stay."""
    for database in databases:
        if stop.is_set():
            raise StoreError("The snapshot was stopped.")
        relative, target = database.relative, database.target
        try:
            check_copy(target)
        except StoreError as error:
            target.unlink(missing_ok=True)
            content.failed_dbs[relative] = error.message
        else:
            content.files[relative], content.sha256[relative] = target.stat().st_size, database.sha256


def _publish(stage: Path, manifest: Manifest, keep: int) -> Taken:
    root = stage.parent
    existing, _ = list_snapshots(root.parent)
    fsync_folder(stage)
    os.rename(stage, root / manifest.id)
    fsync_folder(root)
    pruned = []
    for name in prunable(existing, manifest, keep):
        try:
            remove_tree(root / name)
        except StoreError:  # what cannot go stays; the new one is whole
            continue
        pruned.append(name)
    return Taken(manifest=manifest, folder=root / manifest.id, pruned=tuple(pruned))
