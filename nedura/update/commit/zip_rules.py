"""Rules of a swap that differ between systems, as data: which failures pass, how long to wait, which paths can be opened. Pure.

Windows' codes and limits are those of Microsoft's "System Error Codes", "Naming Files, Paths, and Namespaces" and `MoveFileEx`: a
folder cannot be renamed while anything below it is open, a file not while somebody has it open without sharing its deletion, and a
running program can be renamed but not removed.
"""

from __future__ import annotations

import enum
import errno
import ntpath
from collections.abc import Callable, Iterable, Mapping
from pathlib import PurePath
from typing import Final, Literal

import attrs

__all__ = [
    "MAX_COMPONENT",
    "POSIX",
    "WINDOWS",
    "Fault",
    "Patience",
    "SwapRules",
    "as_windows_opens_it",
    "fault_of",
]

MAX_COMPONENT: Final = 255
"""Most bytes (POSIX) or UTF-16 units (Windows) of one name."""


class Fault(enum.Enum):
    """What a refused call of the file system means for a swap."""

    IN_USE = "in use"
    DENIED = "denied"
    FULL = "full"
    TOO_LONG = "too long"
    OTHER = "other"


_WINERROR: Final[Mapping[int, Fault]] = {
    5: Fault.IN_USE,  # ERROR_ACCESS_DENIED: something below a folder is open, a program runs; also a real denial
    32: Fault.IN_USE,  # ERROR_SHARING_VIOLATION
    33: Fault.IN_USE,  # ERROR_LOCK_VIOLATION
    145: Fault.IN_USE,  # ERROR_DIR_NOT_EMPTY: a removed file in it is still open
    170: Fault.IN_USE,  # ERROR_BUSY
    303: Fault.IN_USE,  # ERROR_DELETE_PENDING
    1224: Fault.IN_USE,  # ERROR_USER_MAPPED_FILE
    19: Fault.DENIED,  # ERROR_WRITE_PROTECT
    1314: Fault.DENIED,  # ERROR_PRIVILEGE_NOT_HELD
    39: Fault.FULL,  # ERROR_HANDLE_DISK_FULL
    112: Fault.FULL,  # ERROR_DISK_FULL
    1295: Fault.FULL,  # ERROR_DISK_QUOTA_EXCEEDED
    206: Fault.TOO_LONG,  # ERROR_FILENAME_EXCED_RANGE
}
_ERRNO: Final[Mapping[int, Fault]] = {
    errno.EBUSY: Fault.IN_USE,
    errno.ETXTBSY: Fault.IN_USE,
    errno.EACCES: Fault.DENIED,
    errno.EPERM: Fault.DENIED,
    errno.EROFS: Fault.DENIED,
    errno.ENOSPC: Fault.FULL,
    errno.EDQUOT: Fault.FULL,
    errno.ENAMETOOLONG: Fault.TOO_LONG,
}


def fault_of(error: OSError) -> Fault:
    """What a failure means. Windows' own code counts where there is one: its errno says EACCES for a file in use, too."""
    code = getattr(error, "winerror", None)
    if isinstance(code, int):
        return _WINERROR.get(code, Fault.OTHER)
    return _ERRNO.get(error.errno or 0, Fault.OTHER)


def as_windows_opens_it(path: str) -> str:
    r"""The spelling under which Windows opens an absolute path of any length: `\\?\C:\...`, `\\?\UNC\server\share\...`.

    Short ones too: what is below a folder that is removed or copied may be long. A relative path or one in that form is left as it
    is. The long form takes every name literally, so `.`, `..` and `/` are resolved first.
    """
    if path.startswith(("\\\\?\\", "\\\\.\\")):
        return path
    drive, rest = ntpath.splitdrive(path)
    if not drive or not rest.startswith(("\\", "/")):
        return path
    plain = ntpath.normpath(path)
    return f"\\\\?\\UNC\\{plain[2:]}" if plain.startswith("\\\\") else f"\\\\?\\{plain}"


def _units(text: str) -> int:
    """UTF-16 units of a text: how Windows counts."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogateescape"))


def _as_it_is(path: str) -> str:
    return path


@attrs.frozen(kw_only=True)
class SwapRules:
    """How a system treats a tree that is swapped while others may use it.

    Attributes:
        name: the system.
        waits: seconds between the tries of one rename that is refused because something is in use.
        patience: most seconds that one swap, or one undo, waits in all.
        opens_folders: a folder that cannot be renamed is swapped name by name, so that one open file does not hold the others.
        longest: most characters of a full path that other programs open.
        count: how it counts them.
        spell: how a path is given to it.
    """

    name: Literal["posix", "windows"]
    waits: tuple[float, ...]
    patience: float
    opens_folders: bool
    longest: int
    count: Callable[[str], int]
    spell: Callable[[str], str]

    def too_long(self, live: PurePath, paths: Iterable[str]) -> tuple[str, int] | None:
        """The longest path of a release that nobody could open in a live tree, and its length there; None when all can be.

        Args:
            live: the live tree.
            paths: of the release's files, with `/`.
        """
        size, path = max(((self.count(str(live / path)), path) for path in paths), default=(0, ""))
        return (path, size) if size > self.longest else None


POSIX: Final = SwapRules(
    name="posix", waits=(0.05, 0.1, 0.2, 0.4), patience=3.0, opens_folders=False, longest=4000, count=_bytes, spell=_as_it_is
)  # fmt: skip
"""`longest` leaves room below PATH_MAX for the names that a swap makes."""
WINDOWS: Final = SwapRules(
    name="windows",
    waits=(0.05, 0.1, 0.2, 0.4, 0.8, 1.6),
    patience=12.0,
    opens_folders=True,
    longest=259,
    count=_units,
    spell=as_windows_opens_it,
)
"""Virus scanners and indexers let go within a second or two; whoever holds a file longer is named. Our own calls have no limit of 259."""


@attrs.define
class Patience:
    """The waits of one swap or one undo; a rename that is refused at once costs only its own.

    Args:
        rules: of the system.
        sleep: time seam, in seconds.
    """

    rules: SwapRules
    sleep: Callable[[float], None]
    spent: float = 0.0

    def rename(self, move: Callable[[], None]) -> None:
        """Try a rename until it works, fails otherwise than by being in use, or patience ends.

        Raises:
            OSError: its last failure.
        """
        for wait in self.rules.waits:
            try:
                move()
                return
            except OSError as error:
                if fault_of(error) is not Fault.IN_USE or self.spent + wait > self.rules.patience:
                    raise
            self.sleep(wait)
            self.spent += wait
        move()
