"""Files of the account stores: read as a whole or not at all, put aside when damaged, kept private."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from nedura.errors import RecordMissing, RefusedError, StoreError
from nedura.records import parse_json, read_bytes
from nedura.signin.authfile import check_document
from nedura.text import clean

__all__ = ["MAX_STORE", "check_owner", "read_store", "set_aside", "tighten"]

MAX_STORE: Final = 4 * 1024 * 1024
"""Largest store in bytes."""

log = logging.getLogger("nedura.signin")


def read_store(path: Path) -> Mapping[str, Any] | None:
    """The decoded store, None when there is none.

    Raises:
        RecordUnreadable, UnsafePath: never taken for an empty store (#75206).
        RecordCorrupt: its bytes make no sense.
    """
    try:
        data = read_bytes(path, MAX_STORE)
    except RecordMissing:
        return None
    return check_document(parse_json(data, clean(path.name)), clean(path.name))


def set_aside(path: Path) -> Path:
    """Move a damaged store to the next free `<name>.corrupt[.N]`, private; its bytes are never lost, also on a full disk.

    Raises:
        StoreError: it could not be moved; nothing may be written over it then.
    """
    for number in range(1000):
        target = path.with_name(f"{path.name}.corrupt" + (f".{number}" if number else ""))
        if os.path.lexists(target):
            continue
        try:
            if stat.S_ISREG(os.lstat(path).st_mode):
                os.chmod(path, 0o600)
            os.rename(path, target)
        except OSError as error:
            raise StoreError(
                f"{clean(path)} is damaged and cannot be put aside: {error.strerror}.",
                advice="Move it away by hand.",
            ) from error
        log.warning("%s was damaged and is kept as %s", clean(path), clean(target.name))
        return target
    raise StoreError(
        f"{clean(path)} is damaged and there are too many copies beside it.", advice="Move them away."
    )


def tighten(home: Path) -> None:
    """A home that holds credentials is for its owner alone; a folder that is somebody's user folder or a checkout stays."""
    try:
        info = os.stat(home)
        shared = (
            home == Path(home.anchor) or home == Path(os.path.expanduser("~")) or (home / ".git").exists()
        )
        if info.st_uid == os.geteuid() and info.st_mode & 0o077 and not shared:
            os.chmod(home, 0o700)
    except OSError as error:
        log.warning("%s cannot be made private: %s", clean(home), error.strerror)


def check_owner(home: Path) -> None:
    """Refuse to write as root into another user's home: its owner could not read what root leaves there (#15718).

    Raises:
        RefusedError: root acts on a home of somebody else.
    """
    if os.geteuid() != 0:
        return
    place = next((path for path in (home, *home.parents) if path.exists()), home)
    owner = os.stat(place).st_uid
    if owner != 0:
        raise RefusedError(
            f"{clean(home)} belongs to another user.", advice=f"Run it as its owner: sudo -u '#{owner}' ..."
        )
