"""Verifying a snapshot and putting its files back: everything is judged before the first live file is touched."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from nedura.errors import NeduraError, RecordCorrupt, RecordMissing, StoreError
from nedura.locks import locked
from nedura.records import parse_json, read_bytes, remove, write_bytes
from nedura.update.events_snapshot import SnapshotRestored
from nedura.update.state.place import Openers, cut_off, free_bytes, judge_place, place_database, place_file
from nedura.update.state.raw_file import is_sqlite, may_be_sqlite
from nedura.update.state.restore_rules import merge_accounts
from nedura.update.state.snapshot_manifest import Manifest, read_manifest, snapshot_folder
from nedura.update.state.snapshot_take import BACKUP_LOCK, take_snapshot
from nedura.update.state.sqlite import check_copy

__all__ = ["SAFETY", "UNFINISHED", "damages", "restore_snapshot", "verify_snapshot"]

LOCK_WAIT = 5.0
UNFINISHED: Final = ".restore-unfinished"
"""File of a home into which a restore began to put files and did not come to its end."""
SAFETY: Final = ("pre-restore", "pre-restore-again", "pre-restore-more")
"""Labels of what a restore saves first: as many as there are copies that one more must not prune, and one."""
MAX_STORE = 16 * 1024 * 1024
LIVE_STAYS: Final = {
    "guest_handoff.json": "kept: the live record knows what was moved since",
    "gateway_state.json": "kept: the live record says which process runs, or how it ended",
    "processes.json": "kept: the live record says which processes run",
}
"""Records that a restore brings back only where there is none that can be read: an old one would tell of what is no more."""


def damages(folder: Path, manifest: Manifest) -> dict[str, str]:
    """What is wrong with the copies of a snapshot: path -> reason. Empty means every byte is as it was saved. Blocks the thread."""
    found: dict[str, str] = {}
    for relative, size in manifest.files.items():
        path = folder / relative
        try:
            if path.is_symlink() or not path.is_file():
                found[relative] = "missing"
            elif path.stat().st_size != size:
                found[relative] = "its size has changed"
            elif _digest(path) != manifest.sha256[relative]:
                found[relative] = "its content has changed"
            elif may_be_sqlite(size) and is_sqlite(path):
                check_copy(path)
        except StoreError as error:
            found[relative] = error.message
        except OSError as error:
            found[relative] = error.strerror or "unreadable"
    return found


def _digest(path: Path) -> str:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(handle, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def verify_snapshot(home: Path, name: str) -> tuple[Manifest, dict[str, str]]:
    """Check a snapshot against its manifest. Blocks the thread.

    Raises:
        UsageError: the name is no snapshot id.
        StoreError: there is no such snapshot, or its manifest cannot be trusted.
    """
    folder = snapshot_folder(home, name)
    if not folder.is_dir():
        raise RecordMissing(
            f"There is no snapshot {name} of this profile.", advice="See: nedura snapshot list"
        )
    manifest = read_manifest(folder)
    return manifest, damages(folder, manifest)


def restore_snapshot(
    home: Path,
    name: str,
    *,
    profile: str,
    now: float,
    free: Callable[[Path], int] = free_bytes,
    openers: Openers | None = None,
    safety: bool = True,
) -> SnapshotRestored:
    """Put every file of a snapshot back. Blocks the thread.

    Refused while a process has one of the databases open. Newer grants of the same account stay, and a live hand-off record stays,
    because a closed one is never opened again.

    Args:
        home: the profile's home.
        name: snapshot id.
        profile: its name, for the event.
        now: unix seconds.
        free: bytes that a folder's disk has left.
        openers: who has which file open.
        safety: first take a snapshot of what is there; without it a disk needs no room for one.

    Raises:
        UsageError, RefusedError, StoreError: nothing was changed, except where a StoreError says how many files are in place already.
    """
    with locked(home / BACKUP_LOCK, LOCK_WAIT, "backup"):  # no other run prunes it meanwhile
        manifest, wrong = verify_snapshot(home, name)
        if wrong:
            path, why = next(iter(sorted(wrong.items())))
            raise RecordCorrupt(f"Snapshot {name} is damaged ({path}: {why}); nothing was changed.")
        folder, openers = snapshot_folder(home, name), openers or Openers()
        databases = _judge(folder, manifest, home, free, openers)
        saved = _save_first(home, profile, manifest, now) if safety else None
        if saved is not None:
            _need_room(home, manifest, free)
            write_bytes(home / UNFINISHED, b"")
        kept = _put_back(folder, manifest, databases, home, now, openers)
        remove(home / UNFINISHED)
    return SnapshotRestored(
        profile=profile,
        snapshot_id=name,
        restored=tuple(path for path in sorted(manifest.files) if not kept.get(path, "").startswith("kept")),
        kept=kept,
        safety=saved.id if saved is not None else "",
        unsaved=saved.missing if saved is not None else (),
    )


def _save_first(home: Path, profile: str, restored: Manifest, now: float) -> Manifest | None:
    """A snapshot of what is there, under a label that prunes neither the one that comes back nor, after a restore that did not end, the
    one from before that. None where there is nothing.
    """
    stay = {restored.label, SAFETY[0] if os.path.lexists(home / UNFINISHED) else ""}
    label = next(label for label in SAFETY if label not in stay)
    try:
        taken = take_snapshot(profile, home, label=label, keep=1, cap=None, now=now)
    except StoreError as error:
        raise StoreError(
            f"What is there now cannot be saved first: {error.message} Nothing was changed.",
            advice=f"{error.advice} Or restore without that copy: --no-safety".strip(),
        ) from error
    return taken.manifest if taken is not None else None


def _judge(
    folder: Path, manifest: Manifest, home: Path, free: Callable[[Path], int], openers: Openers
) -> list[str]:
    """Judge every place; returns the paths that are databases."""
    databases = [
        path for path, size in manifest.files.items() if may_be_sqlite(size) and is_sqlite(folder / path)
    ]
    for relative in manifest.files:
        judge_place(home / relative, database=relative in databases, openers=openers)
    _need_room(home, manifest, free)
    return databases


def _put_back(
    folder: Path, manifest: Manifest, databases: list[str], home: Path, now: float, openers: Openers
) -> dict[str, str]:
    """Put every file in its place; returns path -> what newer live data stayed."""
    kept: dict[str, str] = {}
    done = 0
    try:
        for relative in databases:
            place_database(folder / relative, home / relative, now=now, openers=openers)
            done += 1
        for relative in sorted(set(manifest.files) - set(databases)):
            why = _restore_file(folder, relative, home)
            kept.update({relative: why} if why else {})
            done += 1
    except (NeduraError, OSError) as error:
        raise cut_off(error, done, len(manifest.files)) from error
    return kept


def _need_room(home: Path, manifest: Manifest, free: Callable[[Path], int]) -> None:
    """Refuse before the first file when the disk cannot take them: each lies there twice for a moment."""
    growth = sum(max(0, size - _size(home / path)) for path, size in manifest.files.items())
    need, left = max(manifest.files.values(), default=0) + growth, free(home)
    if need > left:
        raise StoreError(
            f"The restore needs {need // 1_000_000 + 1} MB and the disk has {left // 1_000_000} MB free; nothing was changed.",
            advice="Free some space.",
        )


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _restore_file(folder: Path, relative: str, home: Path) -> str:
    """Put one plain file back; returns what of the live one stayed."""
    copy, live = folder / relative, home / relative
    if relative in LIVE_STAYS and _readable(live) is not None:
        return LIVE_STAYS[relative]
    if relative == "auth.json" and (current := _readable(live)) is not None:
        return restore_accounts(copy, live, current)
    place_file(copy, live)
    return ""


def _readable(path: Path) -> Any | None:
    """Content of a live JSON record; None when there is none to respect."""
    try:
        return parse_json(read_bytes(path, MAX_STORE), path.name)
    except (RecordMissing, RecordCorrupt):
        return None


def restore_accounts(copy: Path, live: Path, current: Any) -> str:
    """Merge a saved account store into the live one, under the profile's own lock."""
    with locked(live.with_name("auth.lock"), what="the sign-in file"):
        latest = _readable(live)
        saved = parse_json(read_bytes(copy, MAX_STORE), copy.name)
        try:
            merged, kept = merge_accounts(saved, latest if latest is not None else current)
        except ValueError:
            place_file(copy, live)
            return ""
        write_bytes(live, (json.dumps(merged, indent=2, ensure_ascii=False) + "\n").encode())
    return f"newer sign-in of {', '.join(kept)} stayed" if kept else ""
