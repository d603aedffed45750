"""Where copies of a sign-in lie that a sign-out does not reach (threats.md 6): its snapshots and the full backups of its root home."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import attrs

from nedura.update.state.backup import BACKUPS
from nedura.update.state.snapshot_manifest import FOLDER

__all__ = ["SignInCopies", "sign_in_copies"]

STORE: Final = "auth.json"


@attrs.frozen(kw_only=True)
class SignInCopies:
    """Copies of a profile's account store.

    Attributes:
        snapshots: ids of snapshots of this profile that hold one.
        backups: names of full backups, which hold every profile's.
    """

    snapshots: tuple[str, ...] = ()
    backups: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.snapshots or self.backups)


def sign_in_copies(home: Path, root: Path) -> SignInCopies:
    """Find them by name alone, so that a sign-out never waits for a large archive. Never raises: what cannot be listed holds none
    that this user could read.

    Args:
        home: the profile that signs out.
        root: its root home.
    """
    snapshots = [name for name in _names(home / FOLDER) if os.path.isfile(home / FOLDER / name / STORE)]
    backups = [name for name in _names(root / BACKUPS) if name.endswith(".zip")]
    return SignInCopies(snapshots=tuple(snapshots), backups=tuple(backups))


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []
