"""The calls of a swap, behind one seam: what a system does with names, and the few of them that it has to be asked in its own way."""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import time
import unicodedata
from collections.abc import Iterable
from pathlib import Path, PurePath
from typing import Any, Final, Protocol

import attrs

from nedura.records import fsync_folder, read_json, remove, write_json
from nedura.update.commit.zip_rules import POSIX, WINDOWS, Patience, SwapRules
from nedura.update.generation.durable import remove_tree

__all__ = ["HERE", "OsCalls", "SwapFiles", "System", "folded"]

MAX_MARKER: Final = 1024 * 1024
_EXCHANGE: Final = 2
"""Flag RENAME_EXCHANGE of renameat2."""
_AT_CWD: Final = -100


class System(Protocol):
    """What an operating system is asked. Paths are spelled as it wants them; every failure is an OSError."""

    def rename(self, source: str, target: str) -> None:
        """Give an entry another name."""

    def exchange(self, one: str, other: str) -> bool:
        """Exchange two names in one step; False where it cannot."""

    def lstat(self, path: str) -> os.stat_result:
        """What stands there, links not followed."""

    def listdir(self, folder: str) -> list[str]:
        """Names in a folder."""

    def read(self, path: str) -> bytes:
        """A plain file's content."""

    def remove(self, path: str) -> None:
        """Remove an entry of any kind with everything in it; nothing there is fine."""

    def sync(self, folder: str) -> None:
        """Make the names in a folder durable."""

    def write_record(self, path: str, value: Any) -> None:
        """Replace a JSON record durably.

        Raises:
            StoreError: the old one stands.
        """

    def read_record(self, path: str) -> Any:
        """A JSON record.

        Raises:
            StoreError: it is not there, or cannot be read.
        """

    def remove_record(self, path: str) -> None:
        """Remove a record durably.

        Raises:
            StoreError: it stays.
        """

    def mounts(self) -> Iterable[str]:
        """Places where something is mounted, as far as can be told."""

    def sleep(self, seconds: float) -> None:
        """Wait."""


class OsCalls:
    """The running system."""

    def rename(self, source: str, target: str) -> None:
        """As `System`."""
        os.rename(source, target)

    def exchange(self, one: str, other: str) -> bool:
        """As `System`."""
        call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None) if os.name == "posix" else None
        if call is None:
            return False
        if call(_AT_CWD, os.fsencode(one), _AT_CWD, os.fsencode(other), _EXCHANGE) == 0:
            return True
        number = ctypes.get_errno()
        if number in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):
            return False
        raise OSError(number, os.strerror(number), one)

    def lstat(self, path: str) -> os.stat_result:
        """As `System`."""
        return os.lstat(path)

    def listdir(self, folder: str) -> list[str]:
        """As `System`."""
        return os.listdir(folder)

    def read(self, path: str) -> bytes:
        """As `System`."""
        return Path(path).read_bytes()

    def remove(self, path: str) -> None:
        """As `System`."""
        place = Path(path)
        if place.is_dir() and not place.is_symlink():
            remove_tree(place)
        else:
            place.unlink(missing_ok=True)

    def sync(self, folder: str) -> None:
        """As `System`."""
        fsync_folder(Path(folder))

    def write_record(self, path: str, value: Any) -> None:
        """As `System`."""
        write_json(Path(path), value)

    def read_record(self, path: str) -> Any:
        """As `System`."""
        return read_json(Path(path), MAX_MARKER)

    def remove_record(self, path: str) -> None:
        """As `System`."""
        remove(Path(path))

    def mounts(self) -> Iterable[str]:
        """From Linux' own list; other systems are not asked."""
        try:
            with open("/proc/self/mountinfo", "rb") as file:
                rows = file.read().splitlines()
        except OSError:
            return []
        return [os.fsdecode(row.split()[4].decode("unicode_escape").encode("latin-1")) for row in rows]

    def sleep(self, seconds: float) -> None:
        """As `System`."""
        time.sleep(seconds)


def folded(name: str) -> str:
    """A name as file systems compare it that tell neither case nor accents' composition apart."""
    return unicodedata.normalize("NFC", name).casefold()


@attrs.frozen
class SwapFiles:
    """The files of a swap under one system's rules.

    Args:
        system: the system.
        rules: its rules.
    """

    system: System = attrs.field(factory=OsCalls)
    rules: SwapRules = WINDOWS if os.name == "nt" else POSIX

    def at(self, path: PurePath) -> str:
        """A path as the system wants it."""
        return self.rules.spell(str(path))

    def patience(self) -> Patience:
        """Waits of one swap or undo."""
        return Patience(self.rules, self.system.sleep)

    def info(self, path: PurePath) -> os.stat_result | None:
        """What stands there; None for nothing."""
        try:
            return self.system.lstat(self.at(path))
        except (FileNotFoundError, NotADirectoryError):
            return None

    def is_there(self, path: PurePath) -> bool:
        """Whether anything stands there."""
        return self.info(path) is not None

    def is_folder(self, path: PurePath) -> bool:
        """Whether a folder stands there, not a link to one."""
        info = self.info(path)
        return info is not None and stat.S_ISDIR(info.st_mode)

    def inode(self, path: PurePath) -> int:
        """By what an entry is known whatever its name; 0 for nothing."""
        info = self.info(path)
        return 0 if info is None else info.st_ino

    def names(self, folder: PurePath) -> list[str]:
        """Names in a folder, sorted."""
        return sorted(self.system.listdir(self.at(folder)))

    def spelling(self, path: PurePath) -> str:
        """The last name of a path as the folder itself writes it: an undo must not change its case where case is not told apart."""
        names = self.names(path.parent)
        if path.name in names:
            return path.name
        return next((name for name in names if folded(name) == folded(path.name)), path.name)

    def is_same_file(self, one: PurePath, other: PurePath) -> bool:
        """Whether two plain files have the same bytes; False when that cannot be told."""
        infos = self.info(one), self.info(other)
        if any(info is None or not stat.S_ISREG(info.st_mode) for info in infos):
            return False
        try:
            return self.system.read(self.at(one)) == self.system.read(self.at(other))
        except OSError:
            return False

    def rename(self, patience: Patience, source: PurePath, target: PurePath) -> None:
        """Rename, with patience for what is in use."""
        patience.rename(lambda: self.system.rename(self.at(source), self.at(target)))

    def exchange(self, patience: Patience, one: PurePath, other: PurePath) -> bool:
        """Exchange two names; False where the system cannot."""
        done = False

        def move() -> None:
            nonlocal done
            done = self.system.exchange(self.at(one), self.at(other))

        patience.rename(move)
        return done

    def discard(self, path: PurePath) -> None:
        """Remove what stands there.

        Raises:
            OSError, StoreError: some of it stays.
        """
        self.system.remove(self.at(path))

    def mounted(self, folder: PurePath) -> list[PurePath]:
        """Mount points in a folder: what is mounted there is somebody's, and removing an old copy would empty it."""
        real = PurePath(os.path.realpath(folder))
        return [
            folder / place.relative_to(real)
            for place in map(PurePath, self.system.mounts())
            if real in place.parents
        ]


HERE: Final = SwapFiles()
"""This system."""
