"""Bringing a backup into a home: unpacked aside, judged, then put in place file by file with the rules of a restore."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Final

import attrs

from nedura.errors import ConfigError, NeduraError, RefusedError, StoreError
from nedura.homes import PROFILE_NAME
from nedura.locks import locked
from nedura.records import fsync_folder, make_folder, remove, write_bytes
from nedura.text import clean
from nedura.update.generation.durable import remove_tree
from nedura.update.state.archive import IMPORT_LIMITS, Entry, Limits, extract, judge, open_archive
from nedura.update.state.backup import ZIP_NOTE
from nedura.update.state.backup_walk import MEMBERS, is_followed, is_runtime_name
from nedura.update.state.import_rules import keep_own_trust
from nedura.update.state.place import Openers, cut_off, judge_place, place_database, place_file
from nedura.update.state.restore import restore_accounts
from nedura.update.state.snapshot_set import SQLITE_SIDES
from nedura.update.state.snapshot_take import BACKUP_LOCK, take_snapshot
from nedura.update.state.sqlite import check_copy, is_sqlite

__all__ = ["LARGE", "Imported", "drop_reason", "import_backup"]

LARGE: Final = attrs.evolve(IMPORT_LIMITS, members=2_000_000, size=1024**4, ratio=2000, advice="")
"""Limits for a backup that its owner vouches for; zeros deflate about 1,030 times."""
LOCK_WAIT: Final = 5.0
RUNTIME: Final = frozenset(
    {
        "gateway.pid", "gateway.lock", "gateway_state.json", "gateway.sock", "gateway.sock.path", "chat.sock", "cron.pid",
        "processes.json", "spawn-ledger.json", ".update_prompt.json", ".update_response", ".update_exit_code",
        "fleet_restart_pending", "desktop-build-stamp.json", ".backup.lock",
    }
)  # fmt: skip
"""Records about processes of the machine that made the archive: never taken over."""
TRUST: Final = frozenset({"auth.json", ".env", "guest_handoff.json", "plugins", "shared", "hooks"})
"""What decides whom this home trusts or which code it runs: only on request."""
UNFINISHED: Final = ".import-unfinished"
"""File of a root home into which an import began to put files and did not come to its end."""
NEVER: Final = frozenset({"installs", "bin", "backups", "state-snapshots", "logs"})


@attrs.frozen(kw_only=True)
class Imported:
    """What an import did.

    Attributes:
        files: paths that were put in place.
        dropped: path -> why it was left out.
        safety: home -> snapshot that was taken before.
        kept: path -> what newer live data stayed.
    """

    files: tuple[str, ...]
    dropped: dict[str, str]
    safety: dict[str, str] = attrs.field(factory=dict)
    kept: dict[str, str] = attrs.field(factory=dict)


def drop_reason(path: str, *, trust: bool) -> str:
    """Why a member of an archive is not taken into a home; empty when it is.

    Args:
        path: relative to the root home, validated.
        trust: the caller vouches for credentials and code in it.
    """
    parts = path.split("/")
    if parts[0] == "profiles":
        if len(parts) < 3 or not PROFILE_NAME.fullmatch(parts[1]) or parts[1] == "default":
            return "is in no profile"
        parts = parts[2:]
    elif path == ZIP_NOTE:
        return "describes the archive"
    if any("/".join(parts[:length]) in MEMBERS for length in range(1, len(parts))):
        return "lies below the name of a file"
    name, top = parts[-1], parts[0]
    if top in NEVER:
        return "belongs to an install, not to a home"
    if parts == [".env"]:
        return "" if trust else "holds credentials"
    hidden = any(part.startswith(".") for part in parts)
    if name in RUNTIME or hidden or is_runtime_name(parts) or _is_log(name):
        return "is a record of running processes, or hidden"
    if top in TRUST and not trust:
        return "decides what this home trusts"
    return ""


def _is_log(name: str) -> bool:
    """Whether a name is the log of a database (`x.sqlite-wal`), and not somebody's `daily-journal`."""
    side = next((side for side in SQLITE_SIDES if name.endswith(side)), "")
    return bool(side) and "." in name.removesuffix(side)


def import_backup(
    archive: Path, root: Path, *, now: float, trust: bool = False, limits: Limits = IMPORT_LIMITS
) -> Imported:
    """Put the files of a backup into a root home and its profiles. Blocks the thread.

    Args:
        archive: the zip.
        root: root home.
        now: unix seconds.
        trust: also take credentials, `.env`, plugins and hooks.
        limits: what it may cost.

    Raises:
        StoreError: unsafe or damaged archive, no room: nothing in the home was changed.
        RefusedError: a process has one of the databases open: nothing was changed.
    """
    make_folder(root)
    stage = root / f".import-{os.getpid()}-{secrets.token_hex(4)}.partial"
    with locked(root / BACKUP_LOCK, LOCK_WAIT, "backup"):
        _sweep(root)
        try:
            with open_archive(archive) as opened:
                entries = judge(opened, limits)
                dropped = {e.path: why for e in entries if (why := drop_reason(e.path, trust=trust))}
                chosen = [entry for entry in entries if entry.path not in dropped]
                if not chosen:
                    raise StoreError("Nothing in the archive belongs into a home.")
                _admit(root, chosen)
                extract(opened, chosen, stage, limits)
            databases = _databases(stage, root, chosen)
            _inside(root, chosen, trust=trust)
            openers = Openers()
            for entry in chosen:
                judge_place(root / entry.path, database=entry.path in databases, openers=openers)
        except OSError as error:
            raise StoreError(
                f"The archive cannot be unpacked: {error.strerror}.", advice="Free some space."
            ) from error
        else:
            kept = {} if trust else _own_trust(stage, root, chosen)
            return _put_all(stage, root, chosen, databases, dropped, now, kept, openers)
        finally:
            remove_tree(stage)


def _sweep(root: Path) -> None:
    for name in os.listdir(root):
        if name.startswith(".import-") and name.endswith(".partial"):
            remove_tree(root / name)


def _admit(root: Path, entries: list[Entry]) -> None:
    need = (
        sum(entry.size for entry in entries) * 2
    )  # unpacked aside, then once more where a database is overwritten
    space = os.statvfs(root)
    if need > space.f_bavail * space.f_frsize:
        raise StoreError(f"The import needs {need // 1_000_000} MB.", advice="Free some space.")


def _inside(root: Path, entries: list[Entry], *, trust: bool) -> None:
    """Refuse when a link that is already in the home would lead a file out of it. The owner's own links to members of the snapshot set
    are written through, as a restore does; those that a backup follows, when the owner vouches for it.
    """
    real = os.path.realpath(root)
    for entry in entries:
        parts = entry.path.split("/")
        for length in range(1, len(parts) + 1):
            path = "/".join(parts[:length])
            if (
                not (root / path).is_symlink()
                or _in_profile(entry.path) in MEMBERS
                or (trust and is_followed(path))
            ):
                continue
            if os.path.commonpath([real, os.path.realpath(root / path)]) != real:
                raise RefusedError(
                    f"{clean(entry.path, 120)} would be written outside the home, through a link; nothing was changed.",
                    advice="Move the link away.",
                )


def _databases(stage: Path, root: Path, entries: list[Entry]) -> list[str]:
    """Paths that are databases; each must be whole, and nothing else may take the place of one.

    Raises:
        StoreError: one is damaged, or a file that is none would replace a live one or be taken for one.
    """
    found = [entry.path for entry in entries if entry.size and is_sqlite(stage / entry.path)]
    for entry in entries:
        live, path = root / entry.path, _in_profile(entry.path)
        if entry.path not in found and entry.size and path in MEMBERS and path.endswith(".db"):
            raise StoreError(f"{clean(entry.path, 120)} in the archive is not a SQLite database.")
        if entry.path not in found and live.is_file() and is_sqlite(live):
            raise StoreError(
                f"{clean(entry.path, 120)} in the archive is not a SQLite database, as the live one is."
            )
    for path in found:
        check_copy(stage / path)
    return found


def _own_trust(stage: Path, root: Path, entries: list[Entry]) -> dict[str, str]:
    """Path -> what of the live config stays; one that cannot be made harmless does not come in at all."""
    kept: dict[str, str] = {}
    for entry in [entry for entry in entries if entry.path.rpartition("/")[2] == "config.yaml"]:
        home = _home_of(root, entry.path)
        if home / "config.yaml" != root / entry.path:
            continue  # somebody's file of that name, in a folder of a home
        try:
            why = keep_own_trust((stage / entry.path).parent, home)
        except ConfigError as error:
            entries.remove(entry)
            why = f"left out: {error.message}; to take it as it is, say --trust"
        if why:
            kept[entry.path] = why
    return kept


def _put_all(
    stage: Path,
    root: Path,
    entries: list[Entry],
    databases: list[str],
    dropped: dict[str, str],
    now: float,
    kept: dict[str, str],
    openers: Openers,
) -> Imported:
    safety = _save_first(root, entries, now)
    write_bytes(root / UNFINISHED, b"")
    done = 0
    try:
        for path in databases:
            make_folder((root / path).parent)
            place_database(stage / path, root / path, now=now, openers=openers)
            done += 1
        for entry in entries:
            if entry.path not in databases:
                why = _put(stage / entry.path, root / entry.path, entry.executable)
                kept.update({entry.path: why} if why else {})
                done += 1
    except (NeduraError, OSError) as error:
        raise cut_off(error, done, len(entries)) from error
    fsync_folder(root)
    remove(root / UNFINISHED)
    return Imported(
        files=tuple(sorted(entry.path for entry in entries)),
        dropped=dict(sorted(dropped.items())),
        safety=safety,
        kept=kept,
    )


def _save_first(root: Path, entries: list[Entry], now: float) -> dict[str, str]:
    """A snapshot of every home that is changed. After an import that did not end it takes another label: the snapshot from before
    that one is the only copy of what was there, and stays.
    """
    label = "pre-import-again" if os.path.lexists(root / UNFINISHED) else "pre-import"
    safety: dict[str, str] = {}
    for home in sorted({_home_of(root, entry.path) for entry in entries}):
        if not home.is_dir():
            make_folder(home)
            continue
        name = "default" if home == root else home.name
        taken = take_snapshot(name, home, label=label, keep=1, cap=None, now=now)
        if taken is not None:
            safety[str(home)] = taken.manifest.id
    return safety


def _home_of(root: Path, path: str) -> Path:
    parts = path.split("/")
    return root / "profiles" / parts[1] if parts[0] == "profiles" else root


def _in_profile(path: str) -> str:
    """A path as the home sees it that it belongs to."""
    return path.split("/", 2)[2] if path.startswith("profiles/") else path


def _put(copy: Path, live: Path, executable: bool) -> str:
    if live.name == "auth.json" and live.exists():
        return restore_accounts(copy, live, None)
    place_file(copy, live, 0o700 if executable else 0o600)
    return ""
