"""Replacing a tree without git, on any platform: staged beside, renamed entry by entry under a marker, rolled back whole on any error.

A killed swap is found by its marker: before all entries were in place everything goes back, afterwards only the old copies go. Where the
system can exchange two names (Linux), no entry is ever missing: what mends a killed swap is itself code of one of these entries.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import os
import shutil
import stat
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from nedura.errors import RecordMissing, StoreError, UpdateError
from nedura.installs import RELEASE
from nedura.records import fsync_folder, read_json, remove, write_json
from nedura.text import clean
from nedura.update.generation.durable import fsync_file, remove_tree, sync_files
from nedura.update.ledger.owner import Owner, is_alive, myself

__all__ = [
    "GRAFTS",
    "PRESERVED",
    "SWAP",
    "changed_files",
    "check_room",
    "gone_entries",
    "is_reserved",
    "recover_swap",
    "swap_tree",
    "tree_hashes",
]

SWAP: Final = ".nedura-update-swap.json"
STAGING: Final = ".nedura-update-staging"
OLD: Final = ".nedura-update-old"
PRESERVED: Final = ("venv", "node_modules", ".git", ".env")
"""Top-level entries of the live tree that a swap never touches."""
GRAFTS: Final = ("apps/desktop/release", "apps/desktop/dist")
"""Built parts of the live tree that no archive brings along (#90495)."""
OWN: Final = (SWAP, RELEASE, ".nedura-update.lock", ".install_method")
"""Top-level files of ours in a live tree: nobody's edit (C044)."""
_PARTIAL: Final = f".{SWAP}.tmp."
"""How a marker begins that was being written by a process that died."""
ROOM: Final = 1.2
MAX_MARKER: Final = 1024 * 1024
_EXCHANGE: Final = 2
"""Flag RENAME_EXCHANGE of renameat2."""
_AT_CWD: Final = -100


@attrs.frozen
class _Names:
    live: Path
    name: str

    @property
    def now(self) -> Path:
        return self.live / self.name

    @property
    def staged(self) -> Path:
        return self.live / f"{self.name}{STAGING}"

    @property
    def old(self) -> Path:
        return self.live / f"{self.name}{OLD}"


@attrs.frozen
class _Known:
    """What the marker tells of an entry: whether there was one, and its inode (0: not told), by which it is known after an exchange."""

    was_there: bool
    before: int = 0


def is_reserved(name: str) -> bool:
    """Whether a top-level name is the updater's own in a live tree, so that no archive may bring it."""
    folded = name.casefold()
    own = {known.casefold() for known in OWN if known != RELEASE}
    return folded in own or folded.startswith(_PARTIAL) or folded.endswith((STAGING, OLD))


def _exchange(a: Path, b: Path) -> bool:
    """Exchange two names in one step; False where this system or file system cannot.

    Raises:
        OSError: it can, and it failed.
    """
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None) if os.name == "posix" else None
    if call is None:
        return False
    if call(_AT_CWD, os.fsencode(a), _AT_CWD, os.fsencode(b), _EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):
        return False
    raise OSError(number, os.strerror(number), str(a))


def tree_hashes(tree: Path) -> dict[str, str]:
    """Path -> SHA-256 of every file of a tree, without what a swap preserves and compiled code; links by their target."""
    found: dict[str, str] = {}
    for parent, folders, names in os.walk(tree):
        inside = Path(parent).relative_to(tree)
        top = inside == Path()
        folders[:] = [
            f
            for f in folders
            if f != "__pycache__" and not (top and (f in PRESERVED or f.endswith((STAGING, OLD))))
        ]
        for name in names:
            path = Path(parent, name)
            relative = (inside / name).as_posix()
            if top and (
                name in PRESERVED or name in OWN or name.startswith(_PARTIAL) or name.endswith((STAGING, OLD))
            ):
                continue
            if path.is_symlink():
                found[relative] = f"link:{os.readlink(path)}"
            elif path.is_file() and not name.endswith((".pyc", ".pyo")):
                with open(path, "rb") as file:
                    found[relative] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


def changed_files(live: Path, installed: Mapping[str, str]) -> tuple[str, ...]:
    """Files of a live tree that are not as they were installed: edited, removed, or added. Added files count as user data."""
    now = tree_hashes(live)
    grafted = tuple(f"{graft}/" for graft in GRAFTS)
    names = {path for path in {*now, *installed} if now.get(path) != installed.get(path)}
    return tuple(sorted(path for path in names if not path.startswith(grafted)))


def _size(tree: Path) -> int:
    return sum((Path(parent) / name).lstat().st_size for parent, _, names in os.walk(tree) for name in names)


def gone_entries(live: Path, installed: Iterable[str], names: Iterable[str]) -> tuple[str, ...]:
    """Top-level entries that the installed release has in a live tree and the new one has not.

    On a file system that folds case or accents, a name that only differs in those is the very entry that the new one replaces.

    Args:
        live: the live tree.
        installed: paths of what was installed.
        names: top-level names of the new tree.
    """
    new = set(names)
    twins = {_folded(name): name for name in new}
    tops = {path.split("/", 1)[0] for path in installed} - new - set(PRESERVED)
    return tuple(sorted(top for top in tops if not _is_same(live / top, live / twins.get(_folded(top), top))))


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()


def _is_same(one: Path, other: Path) -> bool:
    """Whether two different names lead to one entry."""
    if one == other or not (os.path.lexists(one) and os.path.lexists(other)):
        return False
    return os.path.samestat(one.lstat(), other.lstat())


def check_room(new: Path, live: Path) -> None:
    """Refuse before the first write when the staged tree would not fit (1.2 times its size).

    Raises:
        UpdateError: it would not.
    """
    need, space = int(_size(new) * ROOM), os.statvfs(live)
    free = space.f_bavail * space.f_frsize
    if need > free:
        raise UpdateError(
            f"The new tree needs {need // 1_000_000} MB and the disk has {free // 1_000_000} MB free.",
            stop_class="disk_full",
            advice="Free some space.",
        )


def _discard(paths: Iterable[Path]) -> None:
    for path in paths:
        if path.is_dir() and not path.is_symlink():
            remove_tree(path)
        else:
            path.unlink(missing_ok=True)


def _ready(
    new: Path, live: Path, names: list[_Names], leaving: list[str], installed: Mapping[str, str] | None
) -> tuple[dict[str, _Known], set[str]]:
    """Stage everything and note it in the marker: what stands where, and the names that go. Nothing live is touched."""
    try:
        _stage(new, live, names)
        if installed is not None and (dirty := changed_files(live, installed)):
            raise UpdateError(
                f"Files were changed meanwhile, for example {clean(dirty[0], 120)}.",
                stop_class="local_changes_blocked",
            )
        going = {name for name in leaving if not os.path.lexists(_Names(live, name).staged)}
        known = {name.name: _look(name) for name in names}
        _mark(live, known, "swapping")
        return known, going
    except (OSError, shutil.Error, StoreError, UpdateError) as error:
        _discard(name.staged for name in names)
        if isinstance(error, UpdateError):
            raise
        raise UpdateError(
            f"The new tree cannot be staged: {clean(error, 200)}.", stop_class="disk_full"
        ) from error


def swap_tree(
    new: Path,
    live: Path,
    *,
    check: Iterable[str] | None = None,
    gone: Iterable[str] = (),
    installed: Mapping[str, str] | None = None,
    discard: Callable[[Iterable[Path]], None] = _discard,
) -> None:
    """Put every top-level entry of a new tree in place of the live one's. All of them, or none.

    Args:
        new: whole new tree, judged and complete.
        live: the live tree.
        check: names to swap; default every entry of `new` that is not preserved.
        gone: names of the live tree that go with the swap, from `gone_entries`; last, so that whoever mends a killed swap finds either
            the old code with everything it needs, or the new code.
        installed: hashes of what was installed; the tree is compared with them once more just before the first rename.
        discard: removes the old copies; what it leaves is known to the marker and goes at the next recovery.

    Raises:
        UpdateError: nothing is different from before.
        StoreError: the marker cannot be written.
    """
    recover_swap(live)
    _drop_marker(live)
    names = [_Names(live, name) for name in sorted(check or os.listdir(new)) if name not in PRESERVED]
    if not names:
        raise UpdateError("The new tree is empty.", stop_class="checkout_move_failed")
    leaving = sorted(set(gone) - set(PRESERVED))
    names += [_Names(live, name) for name in leaving]
    check_room(new, live)
    known, going = _ready(new, live, names, leaving, installed)
    try:
        for name in names:
            _put(name, name.name in going)
        fsync_folder(live)
        _mark(live, known, "done")
    except (OSError, StoreError) as error:
        _undo(live, names, known)
        if isinstance(error, StoreError):
            raise
        raise UpdateError(
            f"The new tree cannot be put in place: {error.strerror}.",
            stop_class="permission_denied" if error.errno in (1, 13) else "checkout_move_failed",
            advice="Everything is as it was.",
        ) from error
    _finish(live, names, discard)


def _look(name: _Names) -> _Known:
    there = os.path.lexists(name.now)
    return _Known(there, name.now.lstat().st_ino if there else 0)


def _put(name: _Names, goes: bool) -> None:
    """One entry: the new one in its place, the old one aside; of one that `goes` there is no new one."""
    if goes:
        os.rename(name.now, name.old)
    elif not os.path.lexists(name.now):
        os.rename(name.staged, name.now)
    elif _exchange(name.staged, name.now):
        os.rename(name.staged, name.old)
    else:
        os.rename(name.now, name.old)
        os.rename(name.staged, name.now)


def _stage(new: Path, live: Path, names: Sequence[_Names]) -> None:
    _discard(name.staged for name in names)
    for name in names:
        source = new / name.name
        if source.is_dir() and not source.is_symlink():
            shutil.copytree(source, name.staged, symlinks=True)
        elif os.path.lexists(source):
            shutil.copy2(source, name.staged, follow_symlinks=False)
    _graft(live, {name.name: name.staged for name in names})
    readers = stat.S_IMODE(live.stat().st_mode) & 0o055
    for name in names:
        if not os.path.lexists(name.staged):
            continue  # it goes
        _open_to(name.staged, readers)
        if name.staged.is_dir() and not name.staged.is_symlink():
            sync_files(name.staged)
        elif not name.staged.is_symlink():
            fsync_file(name.staged)
    fsync_folder(live)


def _graft(live: Path, staged: Mapping[str, Path]) -> None:
    """Bring along what was built in the live tree, also into an entry of which a newer release has nothing any more."""
    for graft in GRAFTS:
        top, _, rest = graft.partition("/")
        built, base = live / graft, staged.get(top)
        if base is None or not built.is_dir() or (os.path.lexists(base) and not base.is_dir()):
            continue
        place = base / rest
        if not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copytree(built, place, symlinks=True)


def _open_to(staged: Path, readers: int) -> None:
    """Give group and others what they have of the live tree: an archive is unpacked for its owner alone. Nobody else may write."""
    inside = (Path(parent, name) for parent, folders, names in os.walk(staged) for name in (*folders, *names))
    for path in (staged, *inside):
        mode = path.lstat().st_mode
        if stat.S_ISDIR(mode) or (stat.S_ISREG(mode) and mode & 0o100):
            path.chmod(mode & 0o700 | readers)
        elif stat.S_ISREG(mode):
            path.chmod(mode & 0o700 | readers & 0o044)


def _mark(live: Path, known: Mapping[str, _Known], phase: str) -> None:
    me = myself()
    entries = [{"name": name, **attrs.asdict(entry)} for name, entry in known.items()]
    write_json(
        live / SWAP,
        {"schema": 1, "pid": me.pid, "create_time": me.create_time, "phase": phase, "entries": entries},
    )


def _undo(live: Path, names: Sequence[_Names], known: Mapping[str, _Known]) -> None:
    """Every entry as it was, the last one first. Running it again is safe."""
    for name in reversed(names):
        entry = known[name.name]
        if os.path.lexists(name.old):
            if os.path.lexists(name.now):
                os.rename(name.now, name.staged)
            os.rename(name.old, name.now)
        elif not entry.was_there:
            if not os.path.lexists(name.staged) and os.path.lexists(name.now):
                os.rename(name.now, name.staged)  # it was new
        elif entry.before and os.path.lexists(name.staged) and name.staged.lstat().st_ino == entry.before:
            os.rename(name.staged, name.old)  # exchanged, and not yet set aside
            os.rename(name.now, name.staged)
            os.rename(name.old, name.now)
    fsync_folder(live)
    _discard(name.staged for name in names)
    _drop_marker(live)


def _drop_marker(live: Path) -> None:
    for partial in live.glob(f"{_PARTIAL}*"):
        partial.unlink(missing_ok=True)
    remove(live / SWAP)


def _finish(
    live: Path, names: Sequence[_Names], discard: Callable[[Iterable[Path]], None] = _discard
) -> bool:
    """Remove the old copies; whether all of them went. What stays changes nothing: the new tree is whole."""
    try:
        discard(name.old for name in names)
        discard(name.staged for name in names)
        _drop_marker(live)
    except (OSError, StoreError):
        return False
    return True


def recover_swap(live: Path, *, discard: Callable[[Iterable[Path]], None] = _discard) -> str:
    """Finish or undo a swap whose process is gone; returns what was done.

    Args:
        live: the live tree.
        discard: removes the old copies of a swap that was over.

    Returns:
        `none`, `busy`, `undone`, `finished`, or `left`: the new tree is whole and old copies could not be removed.

    Raises:
        StoreError: the marker makes no sense, or the tree cannot be mended; the marker stays.
    """
    try:
        record: Any = read_json(live / SWAP, MAX_MARKER)
    except RecordMissing:
        return "none"
    try:
        owner = Owner(pid=int(record["pid"]), create_time=float(record["create_time"]))
        known = {
            str(entry["name"]): _Known(bool(entry["was_there"]), int(entry.get("before", 0)))
            for entry in record["entries"]
        }
        phase = str(record["phase"])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise StoreError(
            f"{clean(str(live / SWAP), 300)} makes no sense.", advice="Restore the tree by hand."
        ) from error
    if any(name in ("", ".", "..") or "/" in name or name in PRESERVED for name in known):
        raise StoreError(f"{clean(str(live / SWAP), 300)} names an entry that no swap has.")
    if owner.pid != os.getpid() and is_alive(owner):
        return "busy"
    names = [_Names(live, name) for name in known]
    try:
        if phase == "done":
            return "finished" if _finish(live, names, discard) else "left"
        _undo(live, names, known)
    except OSError as error:
        raise StoreError(
            f"An interrupted swap of {clean(str(live), 200)} cannot be undone: {error.strerror}."
        ) from error
    return "undone"
