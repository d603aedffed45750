"""What is in a live tree, by path and hash: the product's files, the owner's, and the names that a swap itself needs."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from nedura.errors import UpdateError
from nedura.installs import RELEASE
from nedura.text import clean
from nedura.update.commit.zip_files import folded
from nedura.update.commit.zip_rules import MAX_COMPONENT, Fault, fault_of

__all__ = [
    "GRAFTS",
    "OLD",
    "PARTIAL",
    "PRESERVED",
    "STAGING",
    "STOP_CLASS",
    "SWAP",
    "changed_files",
    "gone_entries",
    "is_reserved",
    "local_work",
    "name_fault",
    "tree_hashes",
]

SWAP: Final = ".nedura-update-swap.json"
STAGING: Final = ".nedura-update-staging"
OLD: Final = ".nedura-update-old"
PRESERVED: Final = ("venv", "node_modules", ".git", ".env", "lost+found")
"""Top-level entries of the live tree that a swap never touches."""
GRAFTS: Final = ("apps/desktop/release", "apps/desktop/dist")
"""Built parts of the live tree that no archive brings along (#90495)."""
OWN: Final = (SWAP, f"{SWAP}.tries", RELEASE, ".nedura-update.lock", ".install_method")
"""Top-level files of ours in a live tree: nobody's edit (C044)."""
PARTIAL: Final = f".{SWAP}.tmp."
"""How a marker begins that was being written by a process that died."""
_AGAIN: Final = "Unpack the release that runs over the folder again, then try again."
STOP_CLASS: Final[Mapping[Fault, str]] = {
    Fault.IN_USE: "files_in_use",
    Fault.DENIED: "permission_denied",
    Fault.FULL: "disk_full",
    Fault.TOO_LONG: "checkout_move_failed",
    Fault.OTHER: "checkout_move_failed",
}
"""How a receipt calls what kept a tree from being swapped."""


def is_reserved(name: str) -> bool:
    """Whether a top-level name is the updater's own in a live tree, so that no archive may bring it."""
    folded = name.casefold()
    own = {known.casefold() for known in OWN if known != RELEASE}
    return folded in own or folded.startswith(PARTIAL) or folded.endswith((STAGING, OLD))


def name_fault(path: str) -> str:
    """Why a path of a release cannot be swapped on every system; empty when it can.

    Args:
        path: in the release's top folder, with `/`.
    """
    parts = path.split("/")
    if parts[0] not in PRESERVED and folded(parts[0]) in map(folded, PRESERVED):
        return f"is {folded(parts[0])} where letter case is not told apart, and that is the owner's"
    if is_reserved(parts[0]) or any(folded(part).endswith((STAGING, OLD)) for part in parts):
        return "has a name of the updater's own"
    if any(len(part.encode("utf-8", "surrogateescape")) + len(STAGING) > MAX_COMPONENT for part in parts):
        return f"has a name of more than {MAX_COMPONENT - len(STAGING)} bytes"
    return ""


def tree_hashes(tree: Path) -> dict[str, str]:
    """Path -> SHA-256 of every file of a tree, without what a swap preserves and compiled code; links by their target.

    Raises:
        UpdateError: something in it cannot be read.
    """
    found: dict[str, str] = {}
    for parent, folders, names in os.walk(tree, onerror=_unreadable):
        inside = Path(parent).relative_to(tree)
        top = inside == Path()
        folders[:] = [
            f for f in folders if f != "__pycache__" and not _is_ours(f) and not (top and f in PRESERVED)
        ]
        for name in [*names, *(f for f in folders if os.path.islink(os.path.join(parent, f)))]:
            if _is_ours(name) or (top and (name in PRESERVED or name in OWN or name.startswith(PARTIAL))):
                continue
            told = _told(os.path.join(parent, name), name)
            if told:
                found[(inside / name).as_posix()] = told
    return found


def _is_ours(name: str) -> bool:
    return name.endswith((STAGING, OLD))


def _told(path: str, name: str) -> str:
    """What one name is; empty for compiled code, and for what went away meanwhile."""
    if os.path.islink(path):
        return f"link:{os.readlink(path)}"
    if name.endswith((".pyc", ".pyo")):
        return ""
    if not os.path.isfile(path):
        return "special" if os.path.lexists(path) else ""
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return ""
    except OSError as error:
        _unreadable(error)
        raise


def _unreadable(error: OSError) -> None:
    raise UpdateError(
        f"{clean(str(error.filename), 200)} cannot be read: {error.strerror}.",
        stop_class=STOP_CLASS[fault_of(error)],
        advice="Nothing was changed.",
    ) from error


def changed_files(live: Path, installed: Mapping[str, str]) -> tuple[str, ...]:
    """Files of a live tree that are not as they were installed: edited, removed, or added. Added files count as user data.

    Raises:
        UpdateError: something in it cannot be read.
    """
    now = tree_hashes(live)
    grafted = tuple(f"{graft}/" for graft in GRAFTS)
    names = {path for path in {*now, *installed} if now.get(path) != installed.get(path)}
    return tuple(sorted(path for path in names if not path.startswith(grafted)))


def local_work(live: Path, installed: Mapping[str, str]) -> UpdateError | None:
    """What stops a swap of this tree, by kind: each has its own way out. None when the tree is as it was installed.

    Raises:
        UpdateError: something in it cannot be read.
    """
    changed = changed_files(live, installed)
    if not changed:
        return None
    lost = [path for path in changed if not os.path.lexists(live / path)]
    added = [path for path in changed if path not in installed]
    if len(added) == len(changed):
        what, advice = (
            "The tree has files of its own; an archive cannot carry them",
            "Move them out of the tree, then try again.",
        )
    elif len(lost) == len(changed):
        what, advice = "Files of this release are gone from the tree", _AGAIN
    else:
        what, advice = (
            "The tree has changes of its own; an archive cannot carry them",
            f"Keep a copy of what is yours elsewhere. {_AGAIN}",
        )
    more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
    return UpdateError(
        f"{what}: {clean(changed[0], 120)}{more}.",
        stop_class="local_changes_blocked",
        advice=advice,
    )


def gone_entries(live: Path, installed: Iterable[str], names: Iterable[str]) -> tuple[str, ...]:
    """Top-level entries that the installed release has in a live tree and the new one has not.

    On a file system that folds case or accents, a name that only differs in those is the very entry that the new one replaces.

    Args:
        live: the live tree.
        installed: paths of what was installed.
        names: top-level names of the new tree.
    """
    new = set(names)
    twins = {folded(name): name for name in new}
    tops = {path.split("/", 1)[0] for path in installed} - new - set(PRESERVED)
    return tuple(sorted(top for top in tops if not _is_same(live / top, live / twins.get(folded(top), top))))


def _is_same(one: Path, other: Path) -> bool:
    """Whether two different names lead to one entry."""
    if one == other or not (os.path.lexists(one) and os.path.lexists(other)):
        return False
    return os.path.samestat(one.lstat(), other.lstat())
