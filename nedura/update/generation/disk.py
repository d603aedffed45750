"""Room on the disk, asked for before anything is written (generations.md 7). The sum is pure."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import attrs

from nedura.errors import UpdateError
from nedura.update.generation.tree_rules import Entry

__all__ = ["Need", "admit", "check_room", "tree_need"]

BYTECODE_FACTOR: Final = 2.1
RESERVE: Final = 64 << 20
BLOCK: Final = 4096


@attrs.frozen(kw_only=True)
class Need:
    """Bytes and files that a step will take."""

    size: int = 0
    files: int = 0

    def __add__(self, other: Need) -> Need:
        return Need(size=self.size + other.size, files=self.files + other.files)


def tree_need(entries: Iterable[Entry], have: Mapping[str, tuple[str, str]]) -> Need:
    """What writing a tree takes: the changed files, in whole blocks, times 2.1 for bytecode; linked ones take a name only."""
    changed = [entry for entry in entries if have.get(entry.path) != (entry.mode, entry.oid)]
    size = sum(-(-entry.size // BLOCK) * BLOCK for entry in changed)
    return Need(size=int(size * BYTECODE_FACTOR), files=2 * len(changed) + 64)


def admit(need: Need, *, free: int, free_files: int, total_files: int) -> str:
    """Why there is not enough room; empty when there is.

    Args:
        need: what will be written.
        free: bytes that an ordinary user may take.
        free_files: inodes that an ordinary user may take.
        total_files: inodes in all; 0 where the file system does not count them.
    """
    if need.size + RESERVE > free:
        return f"{(need.size + RESERVE) >> 20} MB are needed, {free >> 20} MB are free"
    if total_files and need.files > free_files:
        return f"{need.files} files are needed, the file system takes only {free_files} more"
    return ""


def check_room(folder: Path, need: Need) -> None:
    """Ask the file system before the first write.

    Raises:
        UpdateError: there is not enough room.
    """
    info = os.statvfs(folder)
    why = admit(need, free=info.f_bavail * info.f_frsize, free_files=info.f_favail, total_files=info.f_files)
    if why:
        raise UpdateError(
            f"The disk is too full for the new version: {why}.",
            stop_class="disk_full",
            advice="Free some space; `nedura pm gc` removes generations that nobody uses.",
        )
