"""State that a probe may see: a copy of the smallest profile, without anything that could be redeemed, claimed or polled (threats.md 2)."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from nedura.config import CONFIG_FILE, plain, read_config
from nedura.errors import NeduraError
from nedura.records import make_folder, write_bytes
from nedura.text import clean
from nedura.update.generation.disk import RESERVE
from nedura.update.state.snapshot_set import FILE_CAP, Source, expand
from nedura.update.state.snapshot_take import copy_plain
from nedura.update.state.sqlite import copy_database

__all__ = ["Copied", "blanked", "blanked_config", "copy_state", "smallest"]

NEVER: Final = ("auth.json", "guest_handoff.json", ".env", "gateway_state.json", "processes.json")
"""Credentials, and files by which a copy could be taken for a running member."""
SMALL: Final = 1 << 20
"""Bytes up to which nobody asks the disk."""
_SECRET_KEY: Final = re.compile(
    r"(?i)token|secret|password|passwd|api[_-]?key|credential|private[_-]?key|cookie"
)


def blanked(value: Any) -> Any:
    """Configuration data with every value of a secret-named key emptied."""
    if isinstance(value, Mapping):
        return {
            key: "" if isinstance(item, str) and _SECRET_KEY.search(str(key)) else blanked(item)
            for key, item in value.items()
        }
    return [blanked(item) for item in value] if isinstance(value, list) else value


@attrs.frozen
class _Sized:
    size: int
    name: str
    home: Path


def smallest(profiles: Sequence[tuple[str, Path]]) -> tuple[str, Path] | None:
    """The profile with the least state, by the sizes of its files; None without profiles."""
    sized = [_Sized(sum(s.size for s in expand(home)), name, home) for name, home in profiles]
    best = min(sized, key=lambda one: (one.size, one.name), default=None)
    return None if best is None else (best.name, best.home)


def _wanted(source: Source) -> bool:
    return not source.problem and source.relative not in NEVER and "pairing" not in source.relative


@attrs.frozen(kw_only=True)
class Copied:
    """What came of a copy of state.

    Attributes:
        names: what was copied.
        left: what was not, since it is larger than a snapshot takes or than the disk has room for: a check never ends an update,
            or fills a disk, for want of that.
    """

    names: tuple[str, ...] = ()
    left: tuple[str, ...] = ()

    @property
    def note(self) -> str:
        """For the receipt, behind what was proven; empty when all was copied."""
        return (
            f", without {', '.join(clean(name, 60) for name in self.left)} (too large to copy)"
            if self.left
            else ""
        )


def _room(folder: Path) -> int:
    info = os.statvfs(folder)
    return info.f_bavail * info.f_frsize


def copy_state(
    home: Path, target: Path, *, cap: int = FILE_CAP, room: Callable[[Path], int] = _room
) -> Copied:
    """Copy a profile's state into an own home of mode 0700, blanked.

    Args:
        home: the live profile; only read.
        target: folder to make.
        cap: bytes of the largest file that is copied, a snapshot's by default.
        room: seam; bytes that are free where a folder is.

    Returns:
        what was copied and what was not.

    Raises:
        NeduraError, OSError: a copy failed.
    """
    make_folder(target)
    copied, left = [], []
    for source in expand(home):
        if not _wanted(source):
            continue
        if source.size > cap or (source.size > SMALL and source.size + RESERVE > room(target)):
            left.append(source.relative)
            continue
        place = target / source.relative
        make_folder(place.parent)
        if source.relative == CONFIG_FILE:
            write_bytes(place, blanked_config(home))
        elif source.database:
            os.close(
                os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            )
            copy_database(source.path, place)
        else:
            copy_plain(source.path, place)
        copied.append(source.relative)
    return Copied(names=tuple(copied), left=tuple(left))


def blanked_config(home: Path) -> bytes:
    """The configuration without secrets; JSON is YAML too. One that this version cannot read is no reason to stop an update."""
    try:
        data = dict(read_config(home).data)
    except NeduraError:
        return b"{}\n"
    return json.dumps(blanked(plain(data)), default=str).encode() + b"\n"
