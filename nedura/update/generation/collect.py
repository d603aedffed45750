"""Removing what nobody uses: generations, environments, leftovers of killed runs (generations.md 9).

A generation goes when it is neither `current` nor `previous`, nobody holds its lease, and ten minutes have passed since it was
made or was last current. Everything here runs under the install lock.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import time
from pathlib import Path
from typing import Final

import attrs

from nedura.errors import NeduraError, StoreError, UpdateError
from nedura.installs import InstallPaths
from nedura.text import clean, counted
from nedura.update.commit.gitlocks import sweep_packs
from nedura.update.generation.environment import discard, is_complete
from nedura.update.generation.generations import is_generation, list_generations, read_manifest
from nedura.update.generation.lease import (
    Lock,
    Table,
    is_leased,
    lease_alone,
    read_notes,
    started,
    sweep_notes,
    why_noted,
)
from nedura.update.source.git import Git
from nedura.update.source.repository import generation_ref

__all__ = [
    "GRACE",
    "MANY",
    "Collected",
    "collect",
    "collect_many",
    "drop_candidate",
    "folder_size",
    "is_leased",
    "sweep",
]

GRACE: Final = 600.0
HALF_AGE: Final = 3600.0
"""Seconds after which nobody writes to a pack that a killed fetch began: we hold the install lock, and a fetch has five minutes."""
MANY: Final = 6
"""Generations on disk from which a preparation collects first; removing beside a prepare costs it time, so few are left alone."""
log = logging.getLogger("nedura.update")

_LEFTOVER: Final = re.compile(r"^\.(tmp|trash)[.-]")


@attrs.frozen(kw_only=True)
class Collected:
    """What a collection did.

    Attributes:
        removed: names of generations and environments that are gone.
        kept: name -> why it stays.
        errors: name -> what went wrong.
        freed: bytes.
    """

    removed: tuple[str, ...] = ()
    kept: dict[str, str] = attrs.field(factory=dict)
    errors: dict[str, str] = attrs.field(factory=dict)
    freed: int = 0


def folder_size(folder: Path) -> int:
    """Bytes of the files in a folder; one with several names counts where it is met."""
    total = 0
    for path, _, files in os.walk(folder):
        for name in files:
            try:
                total += os.lstat(os.path.join(path, name)).st_size
            except OSError:
                continue
    return total


def sweep(paths: InstallPaths, git: Git) -> list[str]:
    """Remove what a killed run left: temporary files, trash, generations and environments that were never finished.

    Returns:
        names of what was removed.

    Raises:
        UpdateError: something cannot be removed.
    """
    removed = []
    packs = sweep_packs(paths.repo, time.time(), age=HALF_AGE)
    if packs:
        removed.append(f"{packs} half-written packs and objects")
    for folder in (paths.folder, paths.generations):
        for entry in os.scandir(folder) if folder.is_dir() else ():
            if _LEFTOVER.match(entry.name):
                _remove(Path(entry.path))
                removed.append(entry.name)
    for generation in list_generations(paths):
        if not is_generation(generation) and not generation.is_symlink():
            _trash(generation, git)
            removed.append(generation.name)
    for env in sorted(paths.envs.iterdir()) if paths.envs.is_dir() else ():
        if not is_complete(env) and not env.is_symlink():
            discard(env)
            removed.append(f"envs/{env.name}")
    return removed


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        discard(path)
    else:
        path.unlink(missing_ok=True)


def _trash(generation: Path, git: Git) -> None:
    """Out of sight by one rename, then away."""
    trash = generation.with_name(f".trash-{generation.name}")
    discard(trash)
    os.rename(generation, trash)
    discard(trash)
    git.run("update-ref", "-d", generation_ref(generation.name), ok=(0, 1, 128))


def collect(
    paths: InstallPaths, git: Git, now: float, *, grace: float = GRACE, lock: Lock = fcntl.flock
) -> Collected:
    """Remove generations and environments that nobody uses. Blocks; the caller holds the install lock.

    Args:
        paths: the install.
        git: its repository.
        now: unix seconds.
        grace: seconds that a generation stays after it was made or was last current.
        lock: seam; how a lease is taken.

    Raises:
        StoreError: a pointer is damaged; nothing is removed then.
    """
    protected = {
        folder.name: name
        for name, folder in (("previous", paths.pointed(paths.previous)), ("current", paths.pointed()))
        if folder is not None
    }
    removed: list[str] = []
    kept: dict[str, str] = {}
    errors: dict[str, str] = {}
    freed = 0
    for generation in list_generations(paths):
        name = generation.name
        try:
            why = protected.get(name, "") or _why_kept(generation, now, grace, lock)
            if why:
                kept[name] = why
                continue
            size = folder_size(generation)
            if not _remove_generation(generation, git, lock):
                kept[name] = "in use"
                continue
            removed.append(name)
            freed += size
        except (OSError, NeduraError) as error:
            errors[name] = error.message if isinstance(error, NeduraError) else clean(error)
    gone, size = _collect_environments(paths, set(kept) | set(errors), now, grace, errors)
    return Collected(removed=(*removed, *gone), kept=kept, errors=errors, freed=freed + size)


def collect_many(paths: InstallPaths, git: Git, now: float) -> None:
    """`collect` where generations pile up: runs that are killed each time never come to their own collection. Blocks.

    Args:
        paths: the install.
        git: its repository.
        now: unix seconds.
    """
    if len(list_generations(paths)) <= MANY:
        return
    try:
        collect(paths, git, now)
    except StoreError as error:  # whoever needs that pointer says so
        log.warning("old generations stay: %s", error.message)


def drop_candidate(paths: InstallPaths, git: Git, name: str, *, lock: Lock = fcntl.flock) -> bool:
    """Remove a candidate by the hand that made it: no launcher ever named it, so that it needs no time of grace. Blocks.

    Its packages stay, the next try needs the same; those of earlier tries that no generation names go. The caller holds the install
    lock, and knows that the candidate was never current.

    Args:
        paths: the install.
        git: its repository.
        name: the candidate's.
        lock: seam; how a lease is taken.

    Returns:
        Whether it is gone; one that somebody holds stays for the collection.

    Raises:
        StoreError: a pointer is damaged; nothing is removed then.
        UpdateError, OSError: the system refused.
    """
    generation = paths.generations / name
    if generation in (paths.pointed(), paths.pointed(paths.previous)) or not is_generation(generation):
        return False
    try:
        used = {read_manifest(one).env for one in list_generations(paths) if is_generation(one)}
    except StoreError:  # whose packages the unreadable one uses is not known: all stay, as in the collection
        used = None
    if not _remove_generation(generation, git, lock):
        return False
    if used is None:
        return True
    for env in paths.envs.iterdir() if paths.envs.is_dir() else ():
        if env.name not in used:
            discard(env)
    return True


def _why_kept(generation: Path, now: float, grace: float, lock: Lock) -> str:
    age = now - os.lstat(generation).st_mtime
    if age < grace:
        return f"younger than {counted(round(grace / 60), 'minute')}"
    with lease_alone(generation, lock) as alone:
        if alone is not None:
            return "" if alone else "in use"
    sweep_notes(generation)
    return why_noted(read_notes(generation), age, Table.here(), started)


def _remove_generation(generation: Path, git: Git, lock: Lock) -> bool:
    """Remove it while its lease is ours alone, so that no process can start from it meanwhile.

    Where there are no such locks the notes were asked and a day has passed since a launcher could name it.
    """
    with lease_alone(generation, lock) as alone:
        if alone is False:
            return False
        _trash(generation, git)
        return True


def _collect_environments(
    paths: InstallPaths, kept: set[str], now: float, grace: float, errors: dict[str, str]
) -> tuple[list[str], int]:
    """Remove environments that no kept generation names. A manifest that cannot be read keeps them all."""
    if not paths.envs.is_dir():
        return [], 0
    try:
        used = {
            read_manifest(paths.generations / name).env
            for name in kept
            if is_generation(paths.generations / name)
        }
    except StoreError as error:
        errors["envs"] = error.message
        return [], 0
    gone, freed = [], 0
    for env in sorted(paths.envs.iterdir()):
        if env.name in used or now - os.lstat(env).st_mtime < grace:
            continue
        try:
            size = folder_size(env)
            discard(env)
        except (UpdateError, OSError) as error:
            errors[f"envs/{env.name}"] = clean(error)
            continue
        gone.append(f"envs/{env.name}")
        freed += size
    return gone, freed
