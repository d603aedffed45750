"""The one list of what a quick snapshot holds: the same for every profile, never partial or tiered (decision 15).

A set that differs between profiles or runs tears a restore across schema generations; add a member here or nowhere.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

import attrs

from nedura.update.generation.tree_rules import ascii_name
from nedura.update.state.raw_file import is_sqlite

__all__ = ["FILE_CAP", "SNAPSHOT_SET", "Member", "Source", "expand", "holds", "in_set", "look"]

FILE_CAP: Final = 1024**3
"""Largest file in bytes that a pre-update snapshot copies: 1 GiB; a file of exactly this size is copied."""
MAX_DEPTH: Final = 16


@attrs.frozen
class Member:
    """One entry of the set.

    Attributes:
        path: relative to the home, with `/`.
        tree: a folder taken with everything in it.
        without: folder names inside the tree that are left out.
    """

    path: str
    tree: bool = False
    without: frozenset[str] = frozenset()


SNAPSHOT_SET: Final[tuple[Member, ...]] = (
    Member("state.db"),
    Member("config.yaml"),
    Member(".env"),
    Member("auth.json"),
    Member("guest_handoff.json"),
    Member("cron/jobs.json"),
    Member("cron/executions.db"),
    Member("gateway_state.json"),
    Member("channel_directory.json"),
    Member("channel_aliases.json"),
    Member("processes.json"),
    Member("gateway/discord_message_recovery.db"),
    Member("projects.db"),
    Member("response_store.db"),
    Member("memory_store.db"),
    Member("verification_evidence.db"),
    Member("kanban.db"),
    Member("kanban/boards", tree=True, without=frozenset({"workspaces", "attachments"})),
    Member("pairing", tree=True),
    Member("platforms/pairing", tree=True),
    Member("feishu_comment_pairing.json"),
)
"""Members relative to a home (facts/update.md 4.1), and the hand-off record (decisions 10 and 33)."""

SQLITE_SIDES: Final = ("-wal", "-shm", "-journal")
"""Endings of files that belong to a database beside them; they are never members of their own."""


@attrs.frozen(kw_only=True)
class Source:
    """One thing found in a home that belongs to the set.

    Attributes:
        relative: path below the home, with `/`.
        path: where it is.
        size: bytes; a database's write-ahead log included.
        problem: why it cannot be taken, empty for a regular file.
        fatal: whether leaving it out makes the snapshot incomplete.
        any_name: its name says nothing: whether it is a database is told by its header.
    """

    relative: str
    path: Path
    size: int = 0
    problem: str = ""
    fatal: bool = True
    any_name: bool = False

    @property
    def database(self) -> bool:
        """Whether it must be a database."""
        return self.relative.endswith(".db")


def in_set(relative: str, members: tuple[Member, ...] = SNAPSHOT_SET) -> bool:
    """Whether a path from a manifest may be part of a snapshot at all: plain parts, in UTF-8, and covered by the set."""
    parts = relative.split("/")
    if any(
        "\ud800" <= ch <= "\udfff" for ch in relative
    ):  # bytes that are no UTF-8: JSON would write another name
        return False
    if not relative or any(part in ("", ".", "..") or "\0" in part or "\\" in part for part in parts):
        return False
    for member in members:
        if relative == member.path and not member.tree:
            return True
        if member.tree and relative.startswith(member.path + "/"):
            return member.without.isdisjoint(parts)
    return False


def expand(home: Path, members: tuple[Member, ...] = SNAPSHOT_SET) -> Iterator[Source]:
    """What of the set a home has, in a stable order; missing members are left out silently."""
    for member in members:
        path = home / member.path
        if member.tree and holds(path, home):
            yield Source(relative=member.path, path=path, problem="a link to a folder that the home lies in")
        elif member.tree:
            yield from _walk(path, member.path, member, 0)
        else:
            found = look(path, member.path)
            if found is not None:
                yield found


def holds(folder: Path, home: Path) -> bool:
    """Whether a home lies in a folder, which a link in the home may lead to: walking it would walk the home, and much else."""
    real = os.path.realpath(folder)
    return os.path.commonpath([real, os.path.realpath(home)]) == real


def look(path: Path, relative: str) -> Source | None:
    """A single member as it is in a home; None when it is not there. A link of the owner's own (dotfiles) is read through."""
    try:
        info = os.stat(path)
    except FileNotFoundError:
        broken = path.is_symlink()
        return Source(relative=relative, path=path, problem="a link that leads nowhere") if broken else None
    except OSError as error:
        return Source(relative=relative, path=path, problem=error.strerror or "unreadable")
    if not stat.S_ISREG(info.st_mode):
        return Source(relative=relative, path=path, problem="not a regular file")
    if info.st_uid not in (0, os.geteuid()):
        return Source(relative=relative, path=path, problem="belongs to another user")
    real = Path(os.path.realpath(path))
    return Source(relative=relative, path=real, size=info.st_size + _log_size(real))


def _log_size(path: Path) -> int:
    if not path.name.endswith(".db"):
        return 0
    try:
        return os.stat(f"{path}-wal").st_size
    except OSError:
        return 0


def _walk(folder: Path, relative: str, member: Member, depth: int) -> Iterator[Source]:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except FileNotFoundError:
        return
    except NotADirectoryError:
        yield Source(relative=relative, path=folder, problem="not a folder")
        return
    except OSError as error:
        yield Source(relative=relative, path=folder, problem=error.strerror or "unreadable")
        return
    names = {entry.name for entry in entries}
    for entry in entries:
        name = f"{relative}/{entry.name}"
        path = Path(entry.path)
        if entry.is_symlink():
            yield Source(relative=name, path=path, problem="a link", fatal=False)
        elif entry.is_dir(follow_symlinks=False):
            if entry.name in member.without:
                continue
            if depth >= MAX_DEPTH:
                yield Source(relative=name, path=path, problem="nested too deeply")
                continue
            yield from _walk(path, name, member, depth + 1)
        elif not _is_log(entry, names):
            try:
                found = _entry(entry, name, path)
            except FileNotFoundError:  # gone since it was listed: as if it had never been there
                continue
            yield found


def _is_log(entry: os.DirEntry[str], names: Collection[str]) -> bool:
    """Whether a file is the log of the database beside it, whatever that one is called."""
    side = next((side for side in SQLITE_SIDES if entry.name.endswith(side)), "")
    base = entry.name.removesuffix(side)
    if not side or base.endswith(".db") or base not in names:
        return bool(side) and base.endswith(".db")
    try:
        return is_sqlite(Path(entry.path).with_name(base))
    except OSError:  # the base is told as unreadable; its log is of no use without it
        return True


def _entry(entry: os.DirEntry[str], name: str, path: Path) -> Source:
    if not in_set(name):
        return Source(relative=ascii_name(name), path=path, problem="its name cannot be kept in a snapshot")
    if not entry.is_file(follow_symlinks=False):
        return Source(relative=name, path=path, problem="not a regular file", fatal=False)
    size = entry.stat(follow_symlinks=False).st_size
    return Source(relative=name, path=path, size=size + _log_size(path), any_name=True)
