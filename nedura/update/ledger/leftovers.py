"""What dead processes of ours left behind: half-written temp files in the homes, and the folders of updaters that were killed.

Both may hold secrets, so they do not stay. Only what is provably ours, old and ownerless goes: named by our own rule, a plain file or
a folder of this user alone, its writer gone, and untouched for a while (a home may be shared with another pid namespace, where a
living writer looks dead).
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import attrs

from nedura.product import NEDURA, Product
from nedura.text import counted
from nedura.update.ledger.obligations import restart_folder
from nedura.update.ledger.owner import is_gone

__all__ = ["Swept", "scratch_owner", "scratch_prefix", "sweep", "sweep_folder", "temp_owner"]

FILE_AGE: Final = 600.0
"""Seconds a temp file must have been untouched; it normally lives for milliseconds."""
SCRATCH_AGE: Final = 3 * 3600.0
"""The same for an updater's folder: longer than a completion may take (decision 35)."""
UNSIGNED_AGE: Final = 86_400.0
"""The same for a folder whose name states no pid, as older versions made them."""
MAX_DEPTH: Final = 5
MAX_ENTRIES: Final = 50_000
NOT_OURS: Final = frozenset(
    {".git", "__pycache__", "envs", "generations", "node_modules", "repo.git", "venv"}
)
"""Folders that hold no records, whatever their files are called."""

_TEMP: Final = re.compile(r"\..+\.tmp\.([1-9][0-9]{0,9})\.(?:[0-9a-f]{12}|[0-9]{1,20})\Z")
_SCRATCH: Final = re.compile(
    r"(?:(?:completion|takeover)-(?:([1-9][0-9]{0,9})-)?|check-([1-9][0-9]{0,9})-)[a-z0-9_]{8}\Z"
)


@attrs.frozen
class Swept:
    """What a sweep did.

    Attributes:
        files: temp files removed.
        folders: updaters' folders removed.
    """

    files: int = 0
    folders: int = 0

    def __str__(self) -> str:
        return f"{counted(self.files, 'temp file')} and {counted(self.folders, 'folder')} of dead processes removed"

    def __bool__(self) -> bool:
        return bool(self.files or self.folders)


def temp_owner(name: str) -> int | None:
    """The pid in the name of a temp file of ours; None for any other name."""
    found = _TEMP.match(name)
    return int(found[1]) if found else None


def scratch_prefix(command: str, purpose: str = "completion") -> str:
    """Start of the name of an updater's private folder: whose it is can be told when that process is gone.

    Args:
        command: the product's.
        purpose: `completion` or `check`.
    """
    return f"{command}-{purpose}-{os.getpid()}-"


def scratch_owner(name: str, command: str) -> int | None:
    """The pid in the name of an updater's folder, 0 when an older version made it; None for any other name."""
    found = _SCRATCH.match(name.removeprefix(f"{command}-")) if name.startswith(f"{command}-") else None
    return int(found[1] or found[2] or 0) if found else None


def sweep(
    root: Path,
    environ: Mapping[str, str],
    now: float,
    *,
    product: Product = NEDURA,
    scratch: Path | None = None,
) -> Swept:
    """Remove left-overs below a root home, in the folders of records outside it, and of dead updaters. Blocks; never raises.

    Args:
        root: the root home.
        environ: names the folders outside.
        now: unix seconds.
        product: names.
        scratch: where updaters make their folders; default the temp folder.
    """
    files = sum(_drop_temps(names, handle, now) for names, handle in _folders(root))
    shared = product.setting(environ, "SHARED_AUTH_DIR")
    outside = [restart_folder(environ, product), *([Path(os.path.expanduser(shared))] if shared else [])]
    files += sum(sweep_folder(folder, now) for folder in outside)
    import tempfile  # not at every launch

    place = Path(tempfile.gettempdir()) if scratch is None else scratch
    return Swept(files=files, folders=_drop_scratch(place, product.command, now))


def sweep_folder(folder: Path, now: float) -> int:
    """Remove left-over temp files of one folder; returns how many. Never raises."""
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return 0
    try:
        return _drop_temps(os.listdir(handle), handle, now)
    except OSError:
        return 0
    finally:
        os.close(handle)


def _folders(root: Path) -> Iterator[tuple[Sequence[str], int]]:
    """Folders of ours below a home with the names of their files; links are not followed, checkouts not entered."""
    top, seen = os.path.realpath(root), 0
    try:
        for parent, folders, names, handle in os.fwalk(top, follow_symlinks=False):
            seen += len(folders) + len(names)
            if seen > MAX_ENTRIES:
                return
            yield names, handle
            depth = 0 if parent == top else os.path.relpath(parent, top).count(os.sep) + 1
            checkout = ".git" in folders or ".git" in names
            folders[:] = [] if depth >= MAX_DEPTH or checkout else [f for f in folders if f not in NOT_OURS]
    except OSError:
        return


def _drop_temps(names: Sequence[str], handle: int, now: float) -> int:
    gone = 0
    for name in names:
        pid = temp_owner(name)
        if pid is None:
            continue
        try:
            info = os.stat(name, dir_fd=handle, follow_symlinks=False)
            if _is_plain(info) and _is_old(info, now, FILE_AGE) and is_gone(pid, info.st_ctime):
                os.unlink(name, dir_fd=handle)
                gone += 1
        except OSError:  # somebody else was faster, or may do it and we may not
            continue
    return gone


def _is_plain(info: os.stat_result) -> bool:
    return stat.S_ISREG(info.st_mode) and info.st_uid == os.geteuid() and info.st_nlink == 1


def _is_old(info: os.stat_result, now: float, age: float) -> bool:
    """By the time of the last change, which no copy tool sets back."""
    return now - info.st_ctime > age


def _drop_scratch(place: Path, command: str, now: float) -> int:
    import shutil

    try:
        with os.scandir(place) as found:
            owned = [(entry.path, scratch_owner(entry.name, command)) for entry in found]
    except OSError:
        return 0
    dead = [path for path, pid in owned if pid is not None and _is_dead(path, pid, now)]
    used = _command_lines() if dead else ""
    gone = 0
    for path in dead:
        if os.path.basename(path) in used:
            continue
        try:
            shutil.rmtree(path)
            gone += 1
        except OSError:
            continue
    return gone


def _is_dead(path: str, pid: int, now: float) -> bool:
    try:
        info = os.lstat(path)
        if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid() or info.st_mode & 0o077:
            return False
        with os.scandir(path) as found:
            last = max([info.st_ctime, *(entry.stat(follow_symlinks=False).st_ctime for entry in found)])
    except OSError:
        return False
    if now - last <= (SCRATCH_AGE if pid else UNSIGNED_AGE):
        return False
    return pid == 0 or is_gone(pid, info.st_ctime)


def _command_lines() -> str:
    """Words of every process: a completion that outlives its updater names its folder there."""
    import psutil

    lines = []
    for process in psutil.process_iter():
        try:
            lines.append("\0".join(process.cmdline()))
        except (psutil.Error, OSError):
            continue
    return "\0".join(lines)
