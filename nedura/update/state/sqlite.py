"""SQLite files: told by their header, copied, checked, and asked who holds them.

A stepped copy never ends beside a busy writer and a plain copy is torn (decision 15, facts/platform.md). So a copy is made by the online
backup API in one step; where no log waits, the bytes are copied while a read transaction of SQLite's own keeps them as they are.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import sqlite3
import struct
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Final

from nedura.errors import StoreError
from nedura.openers import FileKey, file_key, openers_of
from nedura.text import clean
from nedura.update.state.raw_file import is_open_here, is_sqlite, raw_file, read_start

__all__ = [
    "BUSY_LIMIT",
    "DamagedDatabase",
    "DatabaseError",
    "check_copy",
    "check_live",
    "copy_database",
    "holders",
    "is_sqlite",
    "overwrite",
]

BUSY_LIMIT: Final = 10.0
"""Seconds of continuous BUSY or LOCKED after which a copy gives up."""
BUSY_SLEEP: Final = 0.05
STILL: Final = "still"
"""Way to open a write-ahead database where we can make no file beside it: as one that nobody changes, which is checked afterwards."""
PIECE: Final = 256 * 1024
"""Bytes that are read, hashed and written while they are in the processor's own cache; a copy may stop between two."""
_BUSY_CODES: Final = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_FICLONE: Final = 0x40049409  # ioctl_ficlone(2)
_LOCK_START: Final = 0x40000000  # SQLite's PENDING_BYTE; the shared range follows it
_LOCK_LENGTH: Final = 512


class DatabaseError(StoreError):
    """Raised when a database cannot be copied, checked or replaced."""

    code = "database"


class DamagedDatabase(DatabaseError):
    """Raised when the bytes are no whole database. Every other fault (locked, no rights, a full disk) says nothing about them."""


_DAMAGE: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_UNFINISHED: Final = (sqlite3.SQLITE_READONLY_ROLLBACK, sqlite3.SQLITE_READONLY_RECOVERY)
"""A crashed writer left a journal; whoever opens the database next rolls it back, so we may as well."""
_FAULTS: Final = (sqlite3.Error, OSError, UnicodeDecodeError)
"""The last: SQLite names what is wrong in a schema, and Python cannot decode the bytes of that name."""


def _code(error: BaseException) -> int:
    """SQLite's extended code; 0 for what Python's own module found."""
    return getattr(error, "sqlite_errorcode", None) or 0


def _says_damage(error: BaseException) -> bool:
    """Whether SQLite found the bytes wrong; also when the file ends within a page."""
    if isinstance(error, UnicodeDecodeError):
        return True
    code = _code(error)
    return code & 0xFF in _DAMAGE or code == sqlite3.SQLITE_IOERR_SHORT_READ


def _why(error: BaseException) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "its schema is damaged"
    return clean(error.strerror if isinstance(error, OSError) and error.strerror else error)


def _uri(path: Path, query: str) -> str:
    return f"{Path(os.path.abspath(path)).as_uri()}?{query}"


def _open_source(path: Path, mode: str) -> sqlite3.Connection:
    query = "mode=ro&immutable=1" if mode == STILL else f"mode={mode}"
    connection = sqlite3.connect(_uri(path, query), uri=True, timeout=0, check_same_thread=False)
    connection.execute("PRAGMA query_only=1")
    return connection


def _source_mode(path: Path) -> str:
    """Read-only, except for a write-ahead database that nobody has open: a read-only reader would leave its side files behind, or
    could not read it at all where it can make no file (a disk that was mounted read-only after a fault).
    """
    header = read_start(path, 20)
    unopened = header[18:19] == b"\x02" and not os.path.lexists(f"{path}-wal")
    if not unopened:
        return "ro"
    if os.statvfs(path).f_flag & os.ST_RDONLY or not os.access(path.parent, os.W_OK):
        return STILL
    return "rw" if os.access(path, os.W_OK) else "ro"


def copy_database(
    source: Path,
    target: Path,
    *,
    stop: threading.Event | None = None,
    busy_limit: float = BUSY_LIMIT,
    monotonic: Callable[[], float] = time.monotonic,
    digest: hashlib._Hash | None = None,
) -> None:
    """Copy a live database consistently into a new file, whatever writers do meanwhile. Blocks the thread.

    Args:
        source: the live file.
        target: must exist, empty, private and ours; removed by the caller on failure.
        stop: ends the waiting for a locked source.
        busy_limit: seconds of continuous lock after which it gives up.
        monotonic: clock in seconds.
        digest: fed with the copy's bytes.

    Raises:
        DatabaseError: not a database, locked for too long, damaged, changed where no lock can be taken, or no room.
    """
    try:
        try:
            before, mode = os.stat(source), _source_mode(source)
            _copy(source, target, mode, stop, busy_limit, monotonic, digest)
            if mode == STILL and not _is_as_before(source, before):
                raise DatabaseError(f"{clean(source.name)} was changed while it was copied.")
        except sqlite3.OperationalError as error:
            if _code(error) not in _UNFINISHED:
                raise
            _copy(source, target, "rw", stop, busy_limit, monotonic, digest)
    except _FAULTS as error:
        raise DatabaseError(f"{clean(source.name)} cannot be copied: {_why(error)}.") from error


def _is_as_before(source: Path, before: os.stat_result) -> bool:
    now = os.stat(source)
    same = (now.st_ino, now.st_size, now.st_mtime_ns) == (before.st_ino, before.st_size, before.st_mtime_ns)
    return same and not os.path.lexists(f"{source}-wal")


def _copy(
    source: Path,
    target: Path,
    mode: str,
    stop: threading.Event | None,
    busy_limit: float,
    monotonic: Callable[[], float],
    digest: hashlib._Hash | None,
) -> None:
    if _copy_at_rest(source, target, mode, stop, digest):
        return
    started = monotonic()

    def progress(status: int, remaining: int, total: int) -> None:
        _go_on(stop)
        if status in _BUSY_CODES and monotonic() - started > busy_limit:
            how_long = f"stayed locked for more than {busy_limit:.0f} s" if busy_limit >= 1 else "is locked"
            raise DatabaseError(f"{clean(source.name)} {how_long}.")

    with (
        closing(_open_source(source, mode)) as reading,
        closing(sqlite3.connect(target, isolation_level=None, timeout=0)) as writing,
    ):
        # Pages pass through once: small caches stay in the processor's own (a fifth faster than the defaults).
        try:
            reading.execute("PRAGMA cache_size=-64")
        except sqlite3.OperationalError:  # locked just now: only a hint, and the copy below waits properly
            pass
        # A private file that is fsynced and checked afterwards needs no journal of its own.
        for pragma in ("journal_mode=OFF", "synchronous=OFF", "locking_mode=EXCLUSIVE", "cache_size=-64"):
            writing.execute(f"PRAGMA {pragma}")
        reading.backup(writing, pages=-1, progress=progress, sleep=BUSY_SLEEP)
    _feed(target, digest)


def _feed(path: Path, digest: hashlib._Hash | None) -> None:
    if digest is not None:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW), "rb") as file:
            hashlib.file_digest(file, lambda: digest)


def _go_on(stop: threading.Event | None) -> None:
    if stop is not None and stop.is_set():
        raise DatabaseError("The copy was stopped.")


def _copy_at_rest(
    source: Path, target: Path, mode: str, stop: threading.Event | None, digest: hashlib._Hash | None
) -> bool:
    """Copy the file itself while a read transaction holds it still; False when only the backup API can, and nothing was copied.

    In rollback mode the shared lock keeps every writer out of the file. In write-ahead mode writers go to the log, and only a checkpoint
    moves pages into the file: with an empty log at the start of our transaction it may move none before we end. The descriptor is opened
    before SQLite locks the file and let go of after, and not used at all where this process has a connection of its own (raw_file.py).
    Half the work of the backup API's pages, and none on a file system that shares blocks.
    """
    if is_open_here(source):
        return False
    with raw_file(source) as handle, closing(_open_source(source, mode)) as reading:
        try:
            reading.execute("BEGIN")
            reading.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except (sqlite3.Error, UnicodeDecodeError):
            # locked, a hot journal, damaged: the backup API waits for it or says what it is
            return False
        if _log_waits(source):
            return False
        writing = os.open(target, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            if _share_blocks(handle, writing):
                _feed(target, digest)
            else:
                _copy_bytes(handle, writing, stop, digest)
        finally:
            os.close(writing)
        return True


def _log_waits(source: Path) -> bool:
    try:
        return os.stat(f"{source}-wal").st_size > 0
    except FileNotFoundError:
        return False


def _share_blocks(reading: int, writing: int) -> bool:
    """Let a file share another's blocks until one of them changes (XFS, Btrfs); False where that cannot be, and nothing was written."""
    if sys.platform != "linux":
        return False
    try:
        fcntl.ioctl(writing, _FICLONE, reading)
    except OSError:  # only a shortcut: copying says what is wrong, if anything is
        return False
    return True


def _copy_bytes(
    reading: int, writing: int, stop: threading.Event | None, digest: hashlib._Hash | None
) -> None:
    """Write all bytes of a file that nobody changes, and feed them to a hash on their way.

    Raises:
        OSError: no room, the disk failed, or the file ended early.
    """
    piece = memoryview(bytearray(PIECE))
    size, done = os.fstat(reading).st_size, 0
    while done < size:
        _go_on(stop)
        part = piece[: os.preadv(reading, [piece], done)]
        if not part:
            raise OSError(errno.EIO, "it became shorter while it was read")
        if digest is not None:
            digest.update(part)
        done += len(part)
        while part:
            part = part[os.write(writing, part) :]


def check_copy(path: Path) -> None:
    """`quick_check` and a read of the schema on a private, finished copy; leaves no side files. Blocks the thread.

    Raises:
        DamagedDatabase: the copy is not whole.
        DatabaseError: it could not be read.
    """
    with _checking(path), closing(sqlite3.connect(_uri(path, "mode=ro&immutable=1"), uri=True)) as connection:
        _quick_check(connection, path)


def check_live(path: Path, *, busy: float = 2.0) -> None:
    """The same for a database in use. Blocks the thread.

    Raises:
        DamagedDatabase: it is not whole.
        DatabaseError: it could not be read, which says nothing about it.
    """
    path = Path(os.path.realpath(path))  # its log lies beside the real file
    with _checking(path):
        if not is_sqlite(path) and path.stat().st_size:
            raise DamagedDatabase(f"{clean(path.name)} is not a SQLite database.")
        try:
            _check_open(path, _source_mode(path), busy)
        except sqlite3.OperationalError as error:
            if _code(error) not in _UNFINISHED:
                raise
            _check_open(path, "rw", busy)


def _check_open(path: Path, mode: str, busy: float) -> None:
    with closing(_open_source(path, mode)) as connection:
        connection.execute(f"PRAGMA busy_timeout={int(busy * 1000)}")
        _quick_check(connection, path)


def _quick_check(connection: sqlite3.Connection, path: Path) -> None:
    connection.execute("PRAGMA cache_size=-256")  # pages pass by in a row: a small cache is a tenth faster
    connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    rows = connection.execute("PRAGMA quick_check(1)").fetchall()
    if rows != [("ok",)]:
        raise DamagedDatabase(f"{clean(path.name)} is damaged: {clean(rows[0][0] if rows else 'no answer')}.")


class _checking:
    """Turns the library's and the system's errors into ours."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, _FAULTS):
            if _says_damage(error):
                raise DamagedDatabase(f"{clean(self.path.name)} is damaged: {_why(error)}.") from error
            raise DatabaseError(f"{clean(self.path.name)} cannot be checked: {_why(error)}.") from error


def overwrite(live: Path, copy: Path, *, busy: float = 2.0) -> None:
    """Put a checked copy's content into a live database in one transaction of SQLite's own: a left-over log is handled by it.

    Raises:
        DatabaseError: locked or damaged; the live content stands.
    """
    try:
        with (
            closing(sqlite3.connect(_uri(copy, "mode=ro&immutable=1"), uri=True)) as reading,
            closing(
                sqlite3.connect(_uri(live, "mode=rw"), uri=True, isolation_level=None, timeout=busy)
            ) as writing,
        ):
            writing.execute("PRAGMA synchronous=FULL")
            writing.execute(
                "SELECT count(*) FROM sqlite_master"
            ).fetchone()  # meet damage before anything is written
            if _page_size(reading) != _page_size(writing):  # no log can change the size of pages
                writing.execute("PRAGMA journal_mode=DELETE").fetchall()
            deadline = time.monotonic() + busy

            def progress(status: int, remaining: int, total: int) -> None:
                if status in _BUSY_CODES and time.monotonic() > deadline:
                    raise DatabaseError(f"{clean(live.name)} is in use.")

            reading.backup(writing, pages=-1, progress=progress, sleep=BUSY_SLEEP)
            writing.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    except _FAULTS as error:
        raise DatabaseError(f"{clean(live.name)} cannot be replaced: {_why(error)}.") from error


def _page_size(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA page_size").fetchone()[0])


def holders(
    path: Path, *, proc: Path = Path("/proc"), opened: Mapping[FileKey, Collection[int]] | None = None
) -> list[int]:
    """Pids of processes that have a database or one of its side files open, this process included. A link is followed, as SQLite does.

    Two nets: open descriptors where the system shows them, and the locks that SQLite's own connections hold. A holder whose pid cannot
    be seen from here (another container, another machine) is 0.

    Args:
        path: the database.
        proc: where the system shows descriptors.
        opened: what processes had open a moment ago; None looks now.
    """
    path = Path(os.path.realpath(path))
    sides = (file_key(f"{path}{side}") for side in ("", "-wal", "-shm", "-journal"))
    keys = {key for key in sides if key is not None}
    if opened is None:
        found = openers_of(keys, proc=proc)
    else:
        found = {pid for key in keys for pid in opened.get(key, ())}
        found |= {os.getpid()} if path.exists() and is_open_here(path) else set()
    if os.getpid() not in found:  # opening and closing the file would drop this process's own locks on it
        found |= set(_lock_owner(path))
    return sorted(found)


def _lock_owner(path: Path) -> Iterator[int]:
    """Pid of a process whose SQLite connection locks the file (POSIX `F_GETLK`: asks, never takes); 0 for one of another pid namespace."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return
    try:
        if sys.platform != "linux":  # the record's layout differs; descriptors answered already
            return
        question = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, _LOCK_START, _LOCK_LENGTH, 0)
        kind, _, _, _, pid = struct.unpack("hhqqi4x", fcntl.fcntl(handle, fcntl.F_GETLK, question))
        if kind != fcntl.F_UNLCK:
            yield max(pid, 0)
    except OSError:
        return
    finally:
        os.close(handle)
