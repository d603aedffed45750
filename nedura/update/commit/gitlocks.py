"""What blocks every git command in a checkout: left-over locks and unwritable folders.

Old and ownerless locks are moved aside, a live one never is.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from nedura.errors import RefusedError, StoreError
from nedura.openers import file_key, openers_of
from nedura.text import clean
from nedura.update.source.index_note import free_dead_index

__all__ = ["check_writable", "clear_stale_locks", "sweep_packs"]

Walk = Callable[[Path], Iterable[tuple[str, list[str], list[str]]]]

STALE_AFTER: Final = 600.0
"""Seconds after which a lock that nobody has open belongs to a process that died."""
PATIENCE: Final = 0.3
"""Seconds for a live lock to go by itself."""
PACK_AGE: Final = 86_400.0
_HALF: Final = ("tmp_pack_", "tmp_idx_", "tmp_rev_", "tmp_mtimes_", "tmp_bitmap_", "tmp_obj_", "tmp_objdir-")
MAX_SHOWN: Final = 5


OWN_STALE_AFTER: Final = 60.0
"""The same in our own repository: we hold the install's lock, so only a child of a killed update could still be at work there."""


def _locks(git_dir: Path, common_dir: Path, branch: str, own: bool) -> Iterator[Path]:
    seen: set[str] = set()
    for folder in (git_dir, common_dir):
        for name in sorted(os.listdir(folder)):
            path = folder / name
            real = os.path.realpath(path)
            if (
                name.endswith(".lock")
                and not name.startswith("nedura-")
                and path.is_file()
                and real not in seen
            ):
                seen.add(real)
                yield path
    if own:
        found = (Path(folder) / name for folder, _, names in os.walk(common_dir / "refs") for name in names)
        yield from sorted(path for path in found if path.name.endswith(".lock"))
        return
    for ref in (*([f"heads/{branch}"] if branch else []), "stash"):
        path = common_dir / "refs" / f"{ref}.lock"
        if path.is_file():
            yield path


def clear_stale_locks(
    git_dir: Path, common_dir: Path, *, branch: str = "", now: float | None = None, own: bool = False
) -> list[str]:
    """Move locks of dead processes aside; returns their names. What a killed update of ours left at the index goes at once.

    Args:
        git_dir: git folder of the checkout.
        common_dir: folder of its repository.
        branch: branch whose lock counts.
        now: unix seconds; default the clock's.
        own: it is our own repository and the install's lock is held: every lock of a ref counts.

    Raises:
        RefusedError: a lock is fresh or somebody has it open; nothing was moved.
        StoreError: one cannot be moved.
        OSError: what a killed update left cannot be removed.
    """
    now = time.time() if now is None else now
    free_dead_index(str(git_dir))
    locks = _dead_locks(git_dir, common_dir, branch, now, own)
    moved = []
    stamp = datetime.fromtimestamp(now, UTC).strftime("%Y%m%d-%H%M%S")
    for path in locks:
        try:
            os.rename(path, _aside(path, common_dir, stamp))
        except FileNotFoundError:
            continue
        except OSError as error:
            raise StoreError(f"{clean(str(path), 300)} cannot be moved aside: {error.strerror}.") from error
        moved.append(path.name)
    return moved


def _dead_locks(git_dir: Path, common_dir: Path, branch: str, now: float, own: bool) -> list[Path]:
    """All locks, once none of them is a live one: a check beside us, or an editor that looks at its status, has one for a moment.

    Raises:
        RefusedError: one stays.
    """
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return [path for path in _locks(git_dir, common_dir, branch, own) if _is_dead(path, now, own)]
        except RefusedError:
            if time.monotonic() >= end:
                raise
            time.sleep(PATIENCE / 10)


def _aside(path: Path, common_dir: Path, stamp: str) -> Path:
    """Where a lock goes: beside its place, but for those of refs, where any file is a ref to git (a broken one, or a new branch)."""
    name = f"{path.name}.stale-{stamp}"
    refs = common_dir / "refs"
    if refs not in path.parents:
        return path.with_name(name)
    return common_dir / "-".join(("refs", *path.parent.relative_to(refs).parts, name))


def _is_dead(path: Path, now: float, own: bool) -> bool:
    """Whether a lock is a dead process's; not when it went away just now: the next one of that name is a living process's.

    Raises:
        RefusedError: it is a live one.
    """
    where = "this install's own repository" if own else "the checkout"
    key = file_key(path)
    if key is None:
        return False
    holders = sorted(openers_of({key}))
    if holders:
        raise RefusedError(
            f"{clean(path.name)} is held by process {holders[0]}: git is at work in {where}.",
            advice="Try again when it has finished.",
        )
    try:
        age = now - path.stat().st_mtime
    except FileNotFoundError:
        return False
    if age < (OWN_STALE_AFTER if own else STALE_AFTER):
        raise RefusedError(
            f"{clean(path.name)} is {max(age, 0):.0f} s old: git may be at work in {where}.",
            advice=f"Try again later, or remove {clean(str(path), 300)} if you know that no git runs.",
        )
    return True


def sweep_packs(common_dir: Path, now: float, *, age: float = PACK_AGE) -> int:
    """Remove what an aborted fetch left half written a while ago: packs, objects, folders of them; returns how many.

    Args:
        common_dir: folder of the repository.
        now: unix seconds.
        age: seconds that nobody wrote to it.
    """
    count = 0
    objects = common_dir / "objects"
    for folder in (objects, *_folders(objects)):
        for path in sorted(folder.glob("tmp_*")):
            try:
                if not path.name.startswith(_HALF) or now - path.lstat().st_mtime < age:
                    continue
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                elif (key := file_key(path)) is None or openers_of({key}):
                    continue
                else:
                    path.unlink()
                count += 1
            except OSError:
                continue
    return count


def _folders(objects: Path) -> list[Path]:
    """Where git writes objects first: `pack` and the folders of loose ones."""
    try:
        names = os.listdir(objects)
    except OSError:
        return []
    return [objects / name for name in sorted(names) if name == "pack" or len(name) == 2]


def check_writable(
    checkout: Path, git_dir: Path, common_dir: Path, *, me: int | None = None, walk: Walk = os.walk
) -> None:
    """Refuse before any backup when git could not write here (case C038: one folder left by an earlier sudo).

    Another git may be at work: what it takes away meanwhile is no fault.

    Raises:
        RefusedError: names the paths and the one command that mends them.
    """
    me = os.geteuid() if me is None else me
    bad = list(dict.fromkeys(_unwritable((git_dir, common_dir), me, walk)))
    if not bad:
        return
    shown = ", ".join(clean(str(path), 200) for path in bad[:MAX_SHOWN])
    more = f" and {len(bad) - MAX_SHOWN} more" if len(bad) > MAX_SHOWN else ""
    user = f"{me}:{os.getegid()}"
    raise RefusedError(
        f"git cannot write here: {shown}{more}.",
        advice=f"Run: sudo chown -R {user} {clean(str(common_dir), 300)}",
    )


def _unwritable(tops: Iterable[Path], me: int, walk: Walk) -> Iterator[Path]:
    for top in tops:
        for folder, _, files in walk(top):
            path = Path(folder)
            if _is_foreign(path, me) or (not os.access(path, os.W_OK | os.X_OK) and os.path.lexists(path)):
                yield path
            for name in files:
                if name in ("index", "HEAD", "packed-refs", "ORIG_HEAD", "config") and _is_foreign(
                    path / name, me
                ):
                    yield path / name


def _is_foreign(path: Path, me: int) -> bool:
    try:
        return os.lstat(path).st_uid != me
    except FileNotFoundError:
        return False
