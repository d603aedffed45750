"""What a newer version expects in every profile: its folders, its `.env`, and that nobody else can read that file."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from nedura.errors import StoreError
from nedura.profiles import ENV_HEADER, FOLDERS
from nedura.records import make_folder, write_bytes

__all__ = ["sync_profile"]

PRIVATE = 0o600


def sync_profile(home: Path) -> tuple[str, ...]:
    """Add what is missing; what is there stays, links of the owner's own included.

    Returns:
        what was added or corrected, in words.

    Raises:
        StoreError, OSError: it cannot be made.
    """
    done = []
    for name in FOLDERS:
        if not os.path.lexists(home / name):
            make_folder(home / name)
            done.append(f"folder {name}")
        elif (home / name).exists() and not (home / name).is_dir():
            raise StoreError(f"{name} is a file where a folder belongs.", advice="Move it away.")
    env = home / ".env"
    if not os.path.lexists(env):
        write_bytes(env, ENV_HEADER)
        done.append(".env")
    elif _closed(env):
        done.append(".env is private now")
    return tuple(done)


def _closed(env: Path) -> bool:
    """Take group's and others' rights away from a regular file of ours; a link or another's file is left alone."""
    info = os.lstat(env)
    if not stat.S_ISREG(info.st_mode) or info.st_uid != os.geteuid() or not info.st_mode & 0o077:
        return False
    handle = os.open(env, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        os.fchmod(handle, PRIVATE)
    finally:
        os.close(handle)
    return True
