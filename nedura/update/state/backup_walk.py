"""Which files of a root home a full backup takes: everything of the user's, nothing that can be made again (facts/update.md 4.2)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import attrs

from nedura.homes import PROFILE_NAME
from nedura.profiles import led_astray
from nedura.update.state.code_files import CodeFiles
from nedura.update.state.raw_file import is_sqlite
from nedura.update.state.snapshot_set import SNAPSHOT_SET, SQLITE_SIDES, holds, look

__all__ = [
    "MEMBERS",
    "SPECIAL",
    "STAGE",
    "Found",
    "is_followed",
    "is_runtime_name",
    "may_hold_ours",
    "walk_home",
]

ANYWHERE: Final = frozenset(
    {
        "__pycache__", ".git", "node_modules", "backups", "state-snapshots", "checkpoints", "browser-profiles",
        "browser-profile", ".venv", "venv", "site-packages", ".cache", ".tox", ".nox", ".pytest_cache", ".mypy_cache",
        ".ruff_cache",
    }
)  # fmt: skip
"""Folders left out wherever they are. Backups and snapshots are never inputs of a backup (case C013)."""
HOME_ONLY: Final = frozenset({"models", "runtimes", "node"})
"""Left out at the top of a home."""
ROOT_ONLY: Final = frozenset({"installs", "bin"})
"""Left out at the top of the root home: generations, environments and launchers are made by an install."""
CACHE_KEPT: Final = frozenset({"images", "audio", "videos", "documents", "screenshots", "citations"})
ENDINGS: Final = (".pyc", ".pyo", ".db-wal", ".db-shm", ".db-journal")
RUNTIME_ENDINGS: Final = (".lock", ".pid", ".sock")
OWN_FOLDERS: Final = frozenset(
    {"cron", "gateway", "kanban", "logs", "pairing", "platforms", "sessions", "shared", "skins"}
)
"""Folders of a home that we write ourselves; everywhere else a `poetry.lock` is somebody's file."""
NAMES: Final = frozenset({".backup.lock", ".restore-unfinished", "gateway.pid", "gateway.lock", "cron.pid"})
EMERGENCY: Final = "state.db.pre-update-emergency-"
STAGE: Final = re.compile(r"\.(?:nedura-backup|.+\.zip)\.([1-9][0-9]{0,9})\.[0-9a-f]{8}\.partial\Z")
"""Folder that a backup works in, or that a killed one left; its pid."""
_IMPORTING: Final = re.compile(r"\.import-[1-9][0-9]{0,9}-[0-9a-f]{8}\.partial\Z")
SPECIAL: Final = "not a regular file"
"""Why a pipe, a socket or a device is left out."""
TREES: Final = frozenset(member.path for member in SNAPSHOT_SET if member.tree)
MEMBERS: Final = frozenset(member.path for member in SNAPSHOT_SET if not member.tree)
"""Files of a home that the owner's own link may lead to, as in a quick snapshot."""


@attrs.frozen
class Found:
    """One thing a walk came by.

    Attributes:
        relative: path below the root home, with `/`.
        path: where it is.
        skip: why it cannot be taken; empty for a regular file.
        foreign: it is no part of the home, so that a backup without it is whole.
    """

    relative: str
    path: Path
    skip: str = ""
    foreign: bool = False


def is_runtime_name(parts: Sequence[str]) -> bool:
    """Whether a file is a lock, pid or socket of a running process of ours: by its name, where we keep such files.

    Args:
        parts: of its path below its home.
    """
    return parts[-1].endswith(RUNTIME_ENDINGS) and (len(parts) == 1 or parts[0] in OWN_FOLDERS)


def may_hold_ours(folder: str) -> bool:
    """Whether a folder may hold a database of ours, so that a backup without it is none: a home, all profiles, or where a home has one.

    Args:
        folder: relative to the root home; `.` for the root home itself.
    """
    parts = folder.removesuffix("/").split("/")
    if parts[0] == "profiles":
        if len(parts) == 1 or not PROFILE_NAME.fullmatch(parts[1]):
            return len(parts) == 1
        parts = parts[2:]
    below = "/".join(parts)
    return below in ("", ".") or any(path.startswith(f"{below}/") for path in MEMBERS if path.endswith(".db"))


def is_followed(folder: str) -> bool:
    """Whether the owner's own link in the place of a folder is followed, as quick snapshots do: the home of a profile, and what lies on
    the way to a member of the snapshot set.

    Args:
        folder: relative to the root home.
    """
    below = "/".join(_in_home("", folder))
    return may_hold_ours(folder) or any(f"{path}/".startswith(f"{below}/") for path in TREES)


def walk_home(root: Path, *, code: CodeFiles | None = None) -> Iterator[Found]:
    """Files of a root home and its profiles, in a stable order.

    Args:
        root: the root home.
        code: what in it is no file of the user's.
    """
    yield from _walk(root, "", root, CodeFiles() if code is None else code)


def _walk(folder: Path, relative: str, root: Path, code: CodeFiles) -> Iterator[Found]:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except FileNotFoundError:  # gone since it was listed: as if it had never been there
        return
    except OSError as error:
        yield Found(relative or ".", folder, error.strerror or "unreadable")
        return
    for entry in entries:
        name = f"{relative}{entry.name}"
        path = Path(entry.path)
        if _left_out(entry, relative, code):
            continue
        if relative == "profiles/" and entry.is_symlink() and (why := led_astray(path, root)):
            yield Found(name, path, why, foreign=True)
            continue
        member = "/".join(_in_home(relative, entry.name)) in MEMBERS
        if entry.is_symlink() and not _leads_on(name, path, root):
            yield _linked(name, path) if member else Found(name, path, "a link")
        elif entry.is_dir():
            yield from [Found(name, path, "a folder")] if member else _walk(path, f"{name}/", root, code)
        elif entry.is_file(follow_symlinks=False):
            yield Found(name, path)
        else:
            yield Found(name, path, SPECIAL)


def _leads_on(relative: str, path: Path, root: Path) -> bool:
    """Whether a link leads to a folder that is walked; never to one that the home itself lies in."""
    return is_followed(relative) and path.is_dir() and not holds(path, root)


def _linked(name: str, path: Path) -> Found:
    """A member of the snapshot set behind a link of the owner's own."""
    source = look(path, name)
    return Found(name, path, "gone") if source is None else Found(name, source.path, source.problem)


def _at_home(relative: str) -> bool:
    """Whether a folder prefix is the top of the root home or of a profile."""
    parts = relative.split("/")[:-1]
    return not parts or (len(parts) == 2 and parts[0] == "profiles")


def _left_out(entry: os.DirEntry[str], relative: str, code: CodeFiles) -> bool:
    name = entry.name
    if STAGE.match(name) or _IMPORTING.match(name):
        return True
    if entry.is_dir(follow_symlinks=False):
        if (
            name in ANYWHERE
            or (_at_home(relative) and name in HOME_ONLY)
            or (not relative and name in ROOT_ONLY)
        ):
            return True
        if (
            relative.endswith("cache/")
            and _at_home(relative.removesuffix("cache/"))
            and name not in CACHE_KEPT
        ):
            return True
        return bool(code.folders) and os.path.realpath(entry.path) in code.folders
    if f"{relative}{name}" in code.files:
        return True
    if name in NAMES or name.endswith(ENDINGS) or name.startswith((EMERGENCY, ".import-")):
        return True
    if is_runtime_name(_in_home(relative, name)) or _is_side(entry):
        return True
    return relative.endswith("cache/") and _at_home(relative.removesuffix("cache/"))


def _in_home(relative: str, name: str) -> list[str]:
    """Parts of a path as the home sees it that it belongs to."""
    parts = [*relative.split("/")[:-1], *name.split("/")]
    return parts[2:] if parts[0] == "profiles" and len(parts) > 2 else parts


def _is_side(entry: os.DirEntry[str]) -> bool:
    """Whether a file is the log of a database of any name: beside the consistent copy it would be replayed into it."""
    side = next((side for side in SQLITE_SIDES if entry.name.endswith(side)), "")
    base = Path(entry.path.removesuffix(side))
    try:
        return bool(side) and base.is_file() and is_sqlite(base)
    except OSError:  # unreadable: its log is of no use without it
        return True
