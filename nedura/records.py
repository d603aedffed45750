"""Durable records: one opener, one writer, bounded reads.

Every file of ours is opened through a folder handle without following links, must be a regular file of ours with one name, and is
replaced whole: temp file in the same folder, fsync, rename, fsync of the folder. A record is complete or absent; a record that
cannot be read is an error, never "empty" (threats.md 3).
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from nedura.errors import (
    ForeignFolder,
    RecordCorrupt,
    RecordMissing,
    RecordUnreadable,
    StoreError,
    UnsafePath,
)
from nedura.text import clean

__all__ = [
    "MAX_RECORD",
    "append_line",
    "check_folder",
    "drop_temps",
    "fsync_folder",
    "make_folder",
    "open_ours",
    "parse_json",
    "read_bytes",
    "read_json",
    "remove",
    "write_bytes",
    "write_json",
    "write_new",
]

MAX_RECORD: Final = 1024 * 1024
"""Largest record in bytes that is read by default."""

_FLAGS: Final = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


def _name(path: Path) -> str:
    return clean(str(path), 300)


def check_folder(folder: Path) -> None:
    """Refuse a folder that another user could swap under us: a foreign owner, or group/other-writable without the sticky bit.

    Raises:
        UnsafePath: the folder is not ours alone.
        RecordUnreadable: it cannot be looked at.
    """
    try:
        info = os.stat(folder)
    except FileNotFoundError as error:
        raise RecordMissing(f"{_name(folder)} does not exist.") from error
    except OSError as error:
        raise RecordUnreadable(f"{_name(folder)} cannot be read: {error.strerror}.") from error
    if not stat.S_ISDIR(info.st_mode):
        raise UnsafePath(f"{_name(folder)} is not a folder.")
    if info.st_uid not in (0, os.geteuid()):
        raise UnsafePath(f"{_name(folder)} belongs to another user.", advice="Use a folder of your own.")
    if info.st_mode & 0o022 and not info.st_mode & stat.S_ISVTX:
        raise UnsafePath(
            f"{_name(folder)} can be written by other users.", advice=f"Run: chmod go-w {_name(folder)}"
        )


def _check_abroad(folder: Path, owner: int) -> None:
    """Root makes nothing in another user's folder: its owner could neither read nor replace it (threats.md 4, #15718).

    Raises:
        ForeignFolder: root would.
    """
    if owner != 0 and os.geteuid() == 0:
        raise ForeignFolder(
            f"{_name(folder)} belongs to user {owner}.", advice=f"Run it as that user: sudo -u '#{owner}' ..."
        )


def make_folder(folder: Path, mode: int = 0o700) -> Path:
    """Create a folder (and what is missing above it) with `mode` whatever the umask; an existing one is left as it is.

    Raises:
        StoreError: it cannot be made.
        ForeignFolder: root would make it in another user's folder.
    """
    missing = []
    probe = folder
    while not os.path.lexists(probe):
        missing.append(probe)
        probe = probe.parent
    try:
        if missing:
            _check_abroad(probe, os.stat(probe).st_uid)
        for path in reversed(missing):
            if os.path.lexists(
                path.parent / ".deleted" / path.name
            ):  # a tombstone: late writers bring nothing back (C158)
                raise StoreError(f"{_name(path)} was deleted.", advice="Nothing is written there any more.")
            try:
                os.mkdir(path, mode)
            except FileExistsError:
                continue
            os.chmod(path, mode)
    except OSError as error:
        raise StoreError(
            f"{_name(folder)} cannot be made: {error.strerror}.", advice="Check its owner and free space."
        ) from error
    if not folder.is_dir():
        raise UnsafePath(f"{_name(folder)} is not a folder.")
    return folder


@contextmanager
def _folder_handle(folder: Path) -> Iterator[int]:
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise RecordMissing(f"{_name(folder)} does not exist.") from error
    except OSError as error:
        raise RecordUnreadable(f"{_name(folder)} cannot be opened: {error.strerror}.") from error
    try:
        yield handle
    finally:
        os.close(handle)


def _check_file(handle: int, path: Path) -> os.stat_result:
    info = os.fstat(handle)
    if not stat.S_ISREG(info.st_mode):
        raise UnsafePath(f"{_name(path)} is not a regular file.", advice="Move it away.")
    if info.st_uid not in (0, os.geteuid()):
        raise UnsafePath(
            f"{_name(path)} belongs to another user.", advice="Move it away or run as its owner."
        )
    if info.st_nlink > 1:
        raise UnsafePath(f"{_name(path)} has a second name (hard link).", advice="Move it away.")
    return info


def open_ours(path: Path, flags: int = os.O_RDONLY, mode: int = 0o600) -> int:
    """Open a file of ours and return its descriptor: never through a link, never a FIFO or device, never truncated.

    With `os.O_CREAT` a missing file is made with exactly `mode`, whatever the umask.

    Raises:
        RecordMissing: not there (and not created).
        UnsafePath: a link, another kind of file, another owner, or a second name.
        RecordUnreadable: the system refused.
        ForeignFolder: root would make it in another user's folder.
    """
    with _folder_handle(path.parent) as folder:
        create = flags & os.O_CREAT
        base = (flags & ~os.O_CREAT & ~os.O_TRUNC) | _FLAGS
        try:
            try:
                handle = os.open(path.name, base, dir_fd=folder)
            except FileNotFoundError:
                if not create:
                    raise
                handle = _create(path, base, mode, folder)
        except FileNotFoundError as error:
            raise RecordMissing(f"{_name(path)} does not exist.") from error
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.EMLINK):
                raise UnsafePath(f"{_name(path)} is a link.", advice="Move it away.") from error
            if error.errno in (errno.ENXIO, errno.EISDIR):
                raise UnsafePath(f"{_name(path)} is not a regular file.", advice="Move it away.") from error
            raise RecordUnreadable(f"{_name(path)} cannot be opened: {error.strerror}.") from error
    try:
        _check_file(handle, path)
    except StoreError:
        os.close(handle)
        raise
    return handle


def _create(path: Path, base: int, mode: int, folder: int) -> int:
    _check_abroad(path.parent, os.fstat(folder).st_uid)
    try:
        handle = os.open(path.name, base | os.O_CREAT | os.O_EXCL, mode, dir_fd=folder)
    except FileExistsError:  # somebody else made it meanwhile
        return os.open(path.name, base, dir_fd=folder)
    os.fchmod(handle, mode)
    return handle


def read_bytes(path: Path, limit: int = MAX_RECORD) -> bytes:
    """Read a whole file of ours, at most `limit` bytes.

    Raises:
        RecordMissing: not there.
        RecordUnreadable: the system refused.
        RecordCorrupt: larger than `limit`.
        UnsafePath: not a plain file of ours.
    """
    handle = open_ours(path)
    try:
        chunks, size = [], 0
        while chunk := os.read(handle, min(1 << 20, limit + 1 - size)):
            chunks.append(chunk)
            size += len(chunk)
            if size > limit:
                raise RecordCorrupt(f"{_name(path)} is larger than {limit} bytes.")
    except OSError as error:
        raise RecordUnreadable(f"{_name(path)} cannot be read: {error.strerror}.") from error
    finally:
        os.close(handle)
    return b"".join(chunks)


def parse_json(data: bytes, what: str) -> Any:
    """Decode JSON that another process wrote: UTF-8 with or without BOM. The decoder itself bounds the depth.

    Raises:
        RecordCorrupt: it is no JSON, or nested too deeply.
    """
    try:
        return json.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise RecordCorrupt(f"{what} is not valid JSON.") from error


def read_json(path: Path, limit: int = MAX_RECORD) -> Any:
    """Read a JSON record.

    Raises:
        RecordMissing, RecordUnreadable, RecordCorrupt, UnsafePath: as `read_bytes`; corrupt also when it is no JSON.
    """
    return parse_json(read_bytes(path, limit), _name(path))


def fsync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _write_all(handle: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]


def write_new(path: Path, data: bytes, mode: int = 0o600) -> None:
    """A file that was not there before, in a folder that nobody else can write: no link is followed, nothing is replaced.

    Not durable by itself: for the parts of a tree that is made durable as a whole, and for scratch.

    Raises:
        OSError: something has the name already, or the disk refused.
    """
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FLAGS, mode)
    try:
        _write_all(handle, data)
    finally:
        os.close(handle)


def write_bytes(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Replace a file whole and durably: temp file, fsync, rename, fsync of the folder.

    Raises:
        StoreError: it could not be written; the old content stands.
        UnsafePath: something that is not a plain file of ours is in its place.
        ForeignFolder: root would write in another user's folder.
    """
    with _folder_handle(path.parent) as folder:
        _check_abroad(path.parent, os.fstat(folder).st_uid)
        _check_place(path, folder)
        temp = f".{path.name}.tmp.{os.getpid()}.{secrets.token_hex(6)}"
        try:
            handle = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FLAGS, mode, dir_fd=folder)
            try:
                os.fchmod(handle, mode)
                _write_all(handle, data)
                os.fsync(handle)
            finally:
                os.close(handle)
            os.rename(temp, path.name, src_dir_fd=folder, dst_dir_fd=folder)
            os.fsync(folder)
        except OSError as error:
            try:
                os.unlink(temp, dir_fd=folder)
            except OSError:
                pass
            raise StoreError(
                f"{_name(path)} cannot be written: {error.strerror}.",
                advice="Check free space and permissions.",
            ) from error


def drop_temps(path: Path) -> None:
    """Remove what killed writers of a record left half-written beside it; it may hold secrets.

    Only for who holds the lock that every writer of this record takes: no temp file of it is then anybody's work. Never raises.
    """
    try:
        with _folder_handle(path.parent) as folder:
            for name in os.listdir(folder):
                if name.startswith(f".{path.name}.tmp."):
                    os.unlink(name, dir_fd=folder)
    except (OSError, StoreError):  # the next holder of the lock tries again
        return


def _check_place(path: Path, folder: int) -> None:
    try:
        info = os.stat(path.name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return
    if not stat.S_ISREG(info.st_mode):
        raise UnsafePath(f"{_name(path)} is not a regular file.", advice="Move it away.")
    if info.st_uid not in (0, os.geteuid()):
        raise UnsafePath(
            f"{_name(path)} belongs to another user.", advice="Move it away or run as its owner."
        )


def write_json(
    path: Path, value: Any, mode: int = 0o600, *, indent: int | None = 2, sort_keys: bool = False
) -> None:
    """`write_bytes` of a JSON value with a final line end."""
    text = json.dumps(value, indent=indent, sort_keys=sort_keys, ensure_ascii=False)
    write_bytes(path, (text + "\n").encode("utf-8", "replace"), mode)


def append_line(path: Path, line: str, mode: int = 0o600) -> None:
    """Append one line to a log of ours; control characters and line ends inside it are made visible.

    Raises:
        StoreError: it cannot be written.
    """
    safe = "".join(ch if ch.isprintable() else f"\\x{ord(ch):02x}" for ch in line)
    handle = open_ours(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, mode)
    try:
        _write_all(handle, (safe + "\n").encode("utf-8", "replace"))
    except OSError as error:
        raise StoreError(f"{_name(path)} cannot be written: {error.strerror}.") from error
    finally:
        os.close(handle)


def remove(path: Path) -> bool:
    """Remove a record durably; False when it was not there.

    Raises:
        StoreError: the system refused.
    """
    try:
        with _folder_handle(path.parent) as folder:
            os.unlink(path.name, dir_fd=folder)
            os.fsync(folder)
    except (RecordMissing, FileNotFoundError):
        return False
    except OSError as error:
        raise StoreError(f"{_name(path)} cannot be removed: {error.strerror}.") from error
    return True
