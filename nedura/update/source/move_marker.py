"""The move marker of a checkout: who moves the tree, from which commit to which (facts/update.md 5.5).

Text lines `name=value` in `<git dir>/nedura-update-pull`, written durably before git touches the first file and dropped only once HEAD
is the target and the tree is whole. Standard library only: recovery reads it when nothing else can be imported.
"""

from __future__ import annotations

import os
import re
import secrets
from typing import Final, NamedTuple

__all__ = ["MARKER", "RECOVERY", "MoveMarker", "drop_marker", "lock_identity", "read_marker", "write_marker"]

MARKER: Final = "nedura-update-pull"
RECOVERY: Final = "nedura-update-recovery"
LIMIT: Final = 64 * 1024
_ID: Final = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


class MoveMarker(NamedTuple):
    """What a move says about itself.

    Attributes:
        pid: its process.
        create_time: when that process was made, unix seconds with three decimals.
        pre: commit id before the move.
        target: commit id after it.
        ref: full name of the branch that HEAD names, or that it will name; empty when detached.
        stash: commit id of the autostash, may be empty.
        index_lock: identity of an `index.lock` that was there before, may be empty.
        rollback: `branch` or `detach` while a whole update is put back, else empty.
        git: absolute path of git.
    """

    pid: int
    create_time: str
    pre: str
    target: str
    ref: str = ""
    stash: str = ""
    index_lock: str = ""
    rollback: str = ""
    git: str = ""


def lock_identity(git_dir: str) -> str:
    """What tells one `index.lock` from another; empty when there is none."""
    try:
        info = os.lstat(os.path.join(git_dir, "index.lock"))
    except OSError:
        return ""
    return f"{info.st_dev}:{info.st_ino}:{info.st_mtime_ns}"


def _fsync_folder(folder: str) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_marker(git_dir: str, marker: MoveMarker) -> None:
    """Write the marker durably: temp file, fsync, rename, fsync of the folder.

    Raises:
        OSError: it cannot be written; nothing may be moved then.
        ValueError: a value has a line end.
    """
    values = marker._asdict()
    if any("\n" in str(value) or "\0" in str(value) for value in values.values()):
        raise ValueError("a value of the move marker has a line end")
    data = "".join(f"{name}={value}\n" for name, value in values.items()).encode("utf-8", "surrogateescape")
    temp = os.path.join(git_dir, f".{MARKER}.{os.getpid()}.{secrets.token_hex(4)}")
    handle = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(handle, view) :]
            os.fsync(handle)
        finally:
            os.close(handle)
        os.rename(temp, os.path.join(git_dir, MARKER))
    except OSError:
        os.unlink(temp)
        raise
    _fsync_folder(git_dir)


def read_marker(git_dir: str) -> MoveMarker | None:
    """The marker of a move that has not ended; None when there is none.

    Raises:
        OSError: it is there and cannot be read.
        ValueError: it makes no sense; never taken for "no move".
    """
    try:
        handle = os.open(
            os.path.join(git_dir, MARKER), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        )
    except FileNotFoundError:
        return None
    try:
        data = os.read(handle, LIMIT)
    finally:
        os.close(handle)
    pairs = dict(line.partition("=")[::2] for line in data.decode("utf-8", "surrogateescape").splitlines())
    if not (_ID.fullmatch(pairs.get("pre", "")) and _ID.fullmatch(pairs.get("target", ""))):
        raise ValueError("the move marker names no commits")
    if not pairs.get("pid", "").isdigit():
        raise ValueError("the move marker names no process")
    known = {name: pairs.get(name, "") for name in MoveMarker._fields if name != "pid"}
    return MoveMarker(pid=int(pairs["pid"]), **known)


def drop_marker(git_dir: str) -> None:
    """Remove the marker durably.

    Raises:
        OSError: it cannot be removed.
    """
    try:
        os.unlink(os.path.join(git_dir, MARKER))
    except FileNotFoundError:
        return
    _fsync_folder(git_dir)
