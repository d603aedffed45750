"""Collecting the facts of a world."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
from pathlib import Path
from typing import Any

import psutil

from nedura.errors import StoreError
from nedura.fleet.looking import look as member_of
from nedura.installs import read_identity
from nedura.product import NEDURA
from nedura.testing.installs import git
from nedura.update.generation.generations import is_generation, list_generations, verify_generation
from nedura.update.generation.launcher import launcher_text
from tests.crash.host import PROFILES
from tests.crash.rules import Facts
from tests.kits.checkout import CheckoutWorld
from tests.kits.site import World

__all__ = ["EDIT", "age_launcher", "current_of", "ids_of", "look", "seed_state", "updaters_of"]

EDIT = ("nedura/locally_added.py", "ADDED = 'by the owner'\n")


def seed_state(world: World) -> None:
    """Give every profile a store, and the source a local edit that only this machine has."""
    for profile in PROFILES:
        home = world.home_of(profile)
        with sqlite3.connect(home / "state.db") as database:
            database.execute("pragma journal_mode=wal")
            database.execute("create table if not exists t (n integer)")
            database.executemany("insert into t values (?)", [(number,) for number in range(500)])
        database.close()
    (world.site.checkout / EDIT[0]).write_text(EDIT[1])


def age_launcher(world: World) -> None:
    """The launcher is not quite what the next version publishes: its own step has something to do."""
    if not isinstance(world, CheckoutWorld):
        launcher = world.site.launcher
        launcher.write_text(launcher_text(world.site.paths, NEDURA) + "# of an older version\n")


def generation_of_commit(world: World, commit: str) -> str:
    """Newest whole generation at a commit, empty when there is none."""
    found = ""
    for folder in list_generations(world.site.paths):
        if not is_generation(folder):
            continue
        try:
            if read_identity(folder).code_sha == commit:
                found = folder.name
        except StoreError:
            continue
    return found


def _json(path: Path) -> dict[str, Any] | None:
    try:
        value = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def _current(world: World) -> str:
    try:
        return Path(os.readlink(world.site.paths.current)).name
    except OSError:
        return ""


def _stores(world: World) -> dict[str, str]:
    found = {}
    for profile in PROFILES:
        path = world.home_of(profile) / "state.db"
        try:
            database = sqlite3.connect(path, timeout=5)
            verdict = database.execute("pragma quick_check").fetchone()[0]
            count = database.execute("select count(*) from t").fetchone()[0]
            database.close()
            found[f"{profile}/state.db"] = (
                "" if verdict == "ok" and count >= 500 else f"{verdict}, {count} rows"
            )
        except sqlite3.Error as error:
            found[f"{profile}/state.db"] = str(error)
    return found


def _members(world: World, field: str = "generation") -> dict[str, tuple[bool, str]]:
    """Profile -> whether its gateway answers on its socket, and the code that it says it runs."""

    async def ask() -> dict[str, tuple[bool, str]]:
        found = {}
        for profile in PROFILES:
            runtime = await member_of(world.home_of(profile), environ=world.environ, timeout=5.0)
            serves = runtime is not None and runtime.state in ("running", "draining", "degraded")
            found[profile] = (serves, "" if runtime is None else str(getattr(runtime.code, field)))
        return found

    return asyncio.run(ask())


def _marker(world: World) -> tuple[int, bool]:
    try:
        pid = int((world.home / ".nedura-update-in-progress").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 0, False
    return pid, psutil.pid_exists(pid)


def updaters_of(world: World) -> list[str]:
    """Processes of an update that still run."""
    found = []
    for process in world.members():
        try:
            words = process.cmdline()
        except psutil.Error:
            continue
        if "update" in words or any(word.endswith("bootstrap.py") for word in words):
            found.append(f"{process.pid} {' '.join(words)[:120]}")
    for process in psutil.process_iter():
        try:
            if process.environ().get("NEDURA_HOME", "").startswith(f"{world.home}/installs/"):
                found.append(f"{process.pid} a probe of a dead update")
        except (psutil.Error, OSError):
            continue
    return found


def current_of(world: World) -> str:
    """What runs: the generation that `current` names, or the commit that a checkout is at."""
    return world.head if isinstance(world, CheckoutWorld) else _current(world)


def ids_of(facts: Facts) -> set[str]:
    """The runs that have a receipt."""
    return {str(receipt.get("update_id")) for receipt in facts.receipts if receipt is not None}


def _half_done(world: World) -> list[str]:
    """What an update that died has left in the owner's checkout, which a sealed install brings forward after all else."""
    checkout = world.site.checkout
    locks = (checkout / ".git").rglob(
        "*.lock"
    )  # a lock file of our own names means nothing unless somebody holds it
    left = [path.name for path in locks if not path.name.startswith("nedura-")]
    left += [name for name in ("nedura-update-pull",) if (checkout / ".git" / name).exists()]
    return [*left, *git(checkout, "diff", "--name-only", "HEAD").splitlines()]


def _look_checkout(world: CheckoutWorld, old: str, commit: str, mended: bool) -> Facts:
    """The same of a checkout: commits instead of generations; whole means that no tracked file differs from HEAD."""
    head = world.head
    dirty = git(world.tree, "diff", "--name-only", "HEAD").splitlines() if mended else []
    torn = [".git/nedura-update-pull"] if mended and (world.tree / ".git/nedura-update-pull").exists() else []
    marker, alive = _marker(world)
    receipts = world.home / "logs/update_receipts"
    edit = world.tree / EDIT[0]
    stashed = EDIT[0] in git(world.tree, "log", "--all", "--name-only", "--format=", "-n", "30").splitlines()
    there = (edit.is_file() and edit.read_text() == EDIT[1]) or stashed
    return Facts(
        current=head,
        old=old,
        new=commit,
        damaged=(*dirty, *torn),
        tail=(world.site.paths.folder / "source-completion-pending").exists(),
        debt=any((world.folder / "locks").glob("host-update-restart-*.json")),
        marker=marker,
        alive=alive,
        receipts=[_json(path) for path in sorted(receipts.glob("update_*.json"))],
        latest=_json(receipts / "latest.json"),
        members=_members(world, "code_sha"),
        stores=_stores(world),
        edits={EDIT[0]: there},
        processes=updaters_of(world),
    )


def look(world: World, *, old: str, commit: str, mended: bool = True) -> Facts:
    """Collect everything.

    Args:
        world: the world.
        old: generation that was current before the run.
        commit: commit id of the target.
        mended: whether a launch has had its turn; a checkout may be torn before.
    """
    if isinstance(world, CheckoutWorld):
        return _look_checkout(world, old, commit, mended)
    current, new = _current(world), generation_of_commit(world, commit)
    launcher = launcher_text(world.site.paths, NEDURA)
    folder = world.site.paths.generations / current
    damaged = tuple(verify_generation(folder)) if current and is_generation(folder) else ("manifest.json",)
    marker, alive = _marker(world)
    receipts = world.home / "logs/update_receipts"
    edit = world.site.checkout / EDIT[0]
    carried = folder / "tree" / EDIT[0]
    edits = {EDIT[0]: edit.is_file() and edit.read_text() == EDIT[1]}
    if current == new != "":
        edits[f"{EDIT[0]} in {current}"] = carried.is_file() and carried.read_text() == EDIT[1]
    return Facts(
        current=current,
        old=old,
        new=new,
        damaged=damaged,
        tail=(world.site.paths.folder / "source-completion-pending").exists(),
        debt=any((world.folder / "locks").glob("host-update-restart-*.json")),
        marker=marker,
        alive=alive,
        receipts=[_json(path) for path in sorted(receipts.glob("update_*.json"))],
        latest=_json(receipts / "latest.json"),
        members=_members(world),
        stores=_stores(world),
        edits=edits,
        processes=updaters_of(world),
        source=_half_done(world),
        stale_launcher=world.site.launcher.read_text() != launcher,
    )
