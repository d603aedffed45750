"""The one extractor of zip archives that came from elsewhere: judged whole before the first byte, counted while it is read (threats.md 7).

Only plain files and folders come out, below one new private folder, through folder handles that follow no link.
"""

from __future__ import annotations

import errno
import os
import stat
import unicodedata
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import attrs

from nedura.errors import StoreError
from nedura.records import make_folder
from nedura.text import clean

__all__ = [
    "IMPORT_LIMITS",
    "Entry",
    "Limits",
    "UnsafeArchive",
    "collides",
    "extract",
    "judge",
    "name_problem",
    "open_archive",
]

CHUNK: Final = 1024 * 1024


class UnsafeArchive(StoreError):
    """Raised when an archive is empty, damaged or not safe to unpack; nothing was written outside its stage folder."""

    code = "unsafe_archive"


@attrs.frozen(kw_only=True)
class Limits:
    """What an archive may cost.

    Attributes:
        members: most entries.
        size: most unpacked bytes.
        ratio: most unpacked bytes for each packed one, for files over a megabyte.
        depth: most folders in a path.
        advice: what the owner of a larger archive can do.
    """

    members: int = 20_000
    size: int = 2 * 1024**3
    ratio: int = 200
    depth: int = 32
    advice: str = ""


IMPORT_LIMITS: Final = Limits(advice="If you made it yourself and trust it, say --large.")


@attrs.frozen(kw_only=True)
class Entry:
    """One file of a judged archive.

    Attributes:
        path: relative, with `/`.
        size: declared bytes.
        executable: whether its owner may run it.
        info: the archive's own record.
    """

    path: str
    size: int
    executable: bool
    info: zipfile.ZipInfo


@contextmanager
def open_archive(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open a zip file for reading.

    Raises:
        UnsafeArchive: it is no zip file, or not a regular file.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise UnsafeArchive(f"{clean(str(path), 300)} cannot be opened: {error.strerror}.") from error
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise UnsafeArchive(f"{clean(str(path), 300)} is not a regular file.")
    with os.fdopen(handle, "rb") as file:
        try:
            archive = zipfile.ZipFile(file)
        except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, RuntimeError) as error:
            broken = (
                isinstance(error, OSError) and error.errno == errno.EIO
            )  # others are offsets of a damaged one
            what = "cannot be read: Input/output error" if broken else "is no zip archive, or a damaged one"
            raise UnsafeArchive(f"{clean(path.name)} {what}.") from error
        with closing(archive):
            yield archive


def judge(archive: zipfile.ZipFile, limits: Limits = IMPORT_LIMITS) -> tuple[Entry, ...]:
    """Every file of an archive, or a refusal that names the first bad entry. Reads no content.

    Raises:
        UnsafeArchive: empty, too big, or an entry that must not be unpacked.
    """
    infos = archive.infolist()
    if len(infos) > limits.members:
        raise UnsafeArchive(
            f"The archive has {len(infos)} entries, more than {limits.members}.", advice=limits.advice
        )
    entries: list[Entry] = []
    seen: dict[str, tuple[str, bool]] = {}
    total = 0
    for info in infos:
        parts = _parts(info, limits)
        if not parts:
            continue  # "./": the archive's own root
        if collides(seen, parts, info.is_dir()):
            raise UnsafeArchive(f"'{clean(info.filename, 120)}' collides with another entry of the archive.")
        if info.is_dir():
            continue
        total += info.file_size
        if total > limits.size:
            raise UnsafeArchive(
                f"The archive unpacks to more than {limits.size // 1_000_000} MB.", advice=limits.advice
            )
        if info.file_size > CHUNK and info.file_size > max(1, info.compress_size) * limits.ratio:
            raise UnsafeArchive(
                f"'{clean(info.filename, 120)}' is packed more than {limits.ratio} times: a bomb.",
                advice=limits.advice,
            )
        executable = bool((info.external_attr >> 16) & 0o100)
        entries.append(Entry(path="/".join(parts), size=info.file_size, executable=executable, info=info))
    if not entries:
        raise UnsafeArchive("The archive is empty.")
    return tuple(entries)


def _bad(info: zipfile.ZipInfo, why: str) -> UnsafeArchive:
    return UnsafeArchive(f"'{clean(info.orig_filename, 120)}' in the archive {why}.")


def _parts(info: zipfile.ZipInfo, limits: Limits) -> tuple[str, ...]:
    """Parts of an entry's path, validated."""
    name = info.orig_filename
    why = name_problem(name.removesuffix("/") if info.is_dir() and name != "/" else name, limits)
    if why:
        raise _bad(info, why)
    kind = stat.S_IFMT(info.external_attr >> 16)
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR) or (kind == stat.S_IFDIR and not info.is_dir()):
        raise _bad(info, "is not a plain file or folder")
    if info.flag_bits & 0x1:
        raise _bad(info, "is encrypted")
    return _split(name.removesuffix("/"))


def _split(name: str) -> tuple[str, ...]:
    parts = name.split("/")
    return tuple(part for part in parts if part != ".") if parts[0] == "." else tuple(parts)


def name_problem(name: str, limits: Limits = IMPORT_LIMITS) -> str:
    """Why a file of this name is never unpacked; empty when it may be. What makes archives asks, too, so that they can be read again.

    Args:
        name: path below the archive's root, with `/`.
        limits: how deep it may lie.
    """
    if not name or not all(ch.isprintable() for ch in name):
        return "has control characters or undecodable bytes in its name"
    if name.startswith("/") or "\\" in name or ":" in name.split("/")[0]:
        return "names an absolute path or a drive"
    parts = _split(name)
    if any(part in ("", ".", "..") or len(part.encode()) > 255 for part in parts):
        return "leaves its folder or has an impossible name"
    return "is nested too deeply" if len(parts) > limits.depth else ""


def collides(seen: dict[str, tuple[str, bool]], parts: Sequence[str], is_folder: bool = False) -> bool:
    """Whether an entry is a duplicate, differs from another only in case or composition, or is a file where another has a folder.

    Args:
        seen: what came before; the entry is added.
        parts: of its path.
        is_folder: it is a folder itself.
    """
    for length in range(1, len(parts) + 1):
        path = "/".join(parts[:length])
        folder = length < len(parts) or is_folder
        key = unicodedata.normalize("NFC", path).casefold()
        known = seen.get(key)
        if known is not None and (known != (path, folder) or not folder):
            return True
        seen[key] = (path, folder)
    return False


def extract(
    archive: zipfile.ZipFile, entries: Sequence[Entry], stage: Path, limits: Limits = IMPORT_LIMITS
) -> None:
    """Unpack judged entries below a new private folder, counting what really comes out. Blocks the thread.

    Raises:
        UnsafeArchive: damaged, or larger than it said.
        OSError: no room, or the folder cannot be written.
    """
    make_folder(stage)
    root = os.open(stage, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    left = limits.size
    try:
        for entry in entries:
            left -= _unpack(archive, entry, root, left)
    finally:
        os.close(root)


def _damaged(entry: Entry, error: Exception) -> UnsafeArchive:
    return UnsafeArchive(f"'{clean(entry.path, 120)}' is damaged: {clean(error)}.")


def _unpack(archive: zipfile.ZipFile, entry: Entry, root: int, left: int) -> int:
    folder = _descend(root, entry.path.split("/")[:-1])
    try:
        mode = 0o700 if entry.executable else 0o600
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        handle = os.open(entry.path.rsplit("/", 1)[-1], flags, mode, dir_fd=folder)
    finally:
        os.close(folder)
    written = 0
    try:
        os.fchmod(handle, mode)
        with archive.open(entry.info) as content:
            while chunk := content.read(CHUNK):
                written += len(chunk)
                if written > min(entry.size, left):
                    raise UnsafeArchive(f"'{clean(entry.path, 120)}' unpacks to more than it says.")
                view = memoryview(chunk)
                while view:
                    view = view[os.write(handle, view) :]
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        raise _damaged(entry, error) from error
    except OSError as error:
        if error.errno != errno.EINVAL:  # a place before the archive's beginning: parts of it are missing
            raise
        raise _damaged(entry, error) from error
    finally:
        os.close(handle)
    if written != entry.size:
        raise UnsafeArchive(f"'{clean(entry.path, 120)}' is shorter than it says.")
    return written


def _descend(root: int, parts: Sequence[str]) -> int:
    """Handle of a folder below the stage, made when missing; follows no link."""
    current = os.dup(root)
    for part in parts:
        try:
            try:
                os.mkdir(part, 0o700, dir_fd=current)
            except FileExistsError:
                pass
            inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=current)
        finally:
            os.close(current)
        current = inner
    return current
