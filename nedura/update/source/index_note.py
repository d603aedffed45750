"""Whose an `index.lock` is: a note beside it while git writes the owner's index outside of a move (a move has its marker)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from nedura.errors import StoreError
from nedura.records import write_bytes
from nedura.update.ledger.owner import Owner, is_alive, myself
from nedura.update.source.move_marker import lock_identity
from nedura.update.source.source_git import SourceGitError

__all__ = ["NOTE", "at_the_index", "free_dead_index"]

NOTE: Final = "nedura-update-index"


@contextmanager
def at_the_index(git_dir: str) -> Iterator[None]:
    """While this runs an `index.lock` is ours unless it was there before; killed in the middle, the next update removes it.

    Raises:
        SourceGitError: the note cannot be written, as git's own lock could not; nothing was begun.
    """
    me, path = myself(), os.path.join(git_dir, NOTE)
    try:
        write_bytes(Path(path), f"{me.pid} {me.create_time!r} {lock_identity(git_dir)}".encode())
    except StoreError as error:
        raise SourceGitError("update-index", 1, error.message) from error
    try:
        yield
    finally:
        os.unlink(path)


def free_dead_index(git_dir: str) -> bool:
    """Remove the `index.lock` that a killed update's git left; True when there was one.

    Raises:
        OSError: it cannot be removed.
    """
    path = os.path.join(git_dir, NOTE)
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            words = file.read(400).split(" ")
    except FileNotFoundError:
        return False
    try:
        owner, before = Owner(pid=int(words[0]), create_time=float(words[1])), words[2]
    except (ValueError, IndexError):  # cut off by the kill: no git had begun
        os.unlink(path)
        return False
    if is_alive(owner):
        return False
    now = lock_identity(git_dir)
    if now and now != before:
        os.unlink(os.path.join(git_dir, "index.lock"))
    os.unlink(path)
    return bool(now and now != before)
