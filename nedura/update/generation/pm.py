"""PM: what is kept of an install, bringing it in line, and removing what nobody uses (decision 22)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Final, final

import attrs

from nedura.clock import Clock
from nedura.errors import NeduraError, StoreError, UpdateError
from nedura.installs import InstallPaths
from nedura.locks import FileLock
from nedura.text import clean, counted
from nedura.update.bounded import in_thread
from nedura.update.generation.collect import GRACE, Collected, collect, folder_size, is_leased, sweep
from nedura.update.generation.environment import is_complete, verify_environment
from nedura.update.generation.generations import (
    is_generation,
    list_generations,
    read_manifest,
    verify_generation,
)
from nedura.update.source.repository import open_repository

__all__ = [
    "EVENTS",
    "GenerationRow",
    "PmCollected",
    "PmStatus",
    "collect_garbage",
    "collect_quietly",
    "pm_status",
]

LOCK_TIMEOUT: Final = 30.0


@final
@attrs.frozen(kw_only=True)
class GenerationRow:
    """One generation as `pm status` shows it.

    Attributes:
        name: its number.
        role: current, previous or empty.
        code_sha, version: what it holds.
        env: its environment, empty when the host manages packages.
        leased: a process runs from it.
        created: ISO time.
        edits, parked: numbers of local edits that it carries, and that were left out.
        problems: what is not as the manifest says.
    """

    name: str
    role: str = ""
    code_sha: str = ""
    version: str = ""
    env: str = ""
    leased: bool = False
    created: str = ""
    edits: int = 0
    parked: int = 0
    problems: tuple[str, ...] = ()

    @property
    def line(self) -> str:
        """One line for people."""
        marks = [mark for mark in (self.role, "in use" if self.leased else "") if mark]
        edits = f", {counted(self.edits, 'local edit')}" if self.edits else ""
        parked = f", {self.parked} left out" if self.parked else ""
        what = f"{self.version or 'version unknown'} ({self.code_sha[:8]}){edits}{parked}"
        bad = f"  ✗ {'; '.join(self.problems)}" if self.problems else ""
        return f"  {self.name}  {what}{'  ' + ', '.join(marks) if marks else ''}{bad}"


@final
@attrs.frozen(kw_only=True)
class PmStatus:
    """What is kept of an install.

    Attributes:
        install_id: its id.
        layout: sealed or checkout.
        generations: oldest first.
        environments: name -> bytes.
        size: bytes of everything.
        last_update: outcome and time of the newest receipt, empty without one.
    """

    kind: ClassVar[str] = "pm_status"
    install_id: str
    layout: str
    generations: tuple[GenerationRow, ...] = ()
    environments: Mapping[str, int] = attrs.field(factory=dict)
    size: int = 0
    last_update: str = ""

    @property
    def healthy(self) -> bool:
        """Whether everything is what it should be."""
        return not any(row.problems for row in self.generations)

    @property
    def copy(self) -> str:
        """Chat form."""
        return "Everything is in order." if self.healthy else "Something of this install was changed."

    @property
    def copy_terminal(self) -> str:
        """Terminal form."""
        lines = [f"Install {self.install_id}, {self.layout}, {self.size >> 20} MB"]
        lines += [row.line for row in self.generations] or ["  no generations"]
        lines += [f"  environment {name}  {size >> 20} MB" for name, size in self.environments.items()]
        lines += [f"  last update: {self.last_update}"] if self.last_update else []
        return "\n".join(lines)


@final
@attrs.frozen(kw_only=True)
class PmCollected:
    """What a collection removed and kept.

    Attributes:
        removed: generations and environments.
        kept: name -> why.
        errors: name -> what went wrong.
        freed: bytes.
    """

    kind: ClassVar[str] = "pm_collected"
    removed: tuple[str, ...] = ()
    kept: Mapping[str, str] = attrs.field(factory=dict)
    errors: Mapping[str, str] = attrs.field(factory=dict)
    freed: int = 0

    @property
    def copy(self) -> str:
        """Chat form."""
        return f"Removed {len(self.removed)} unused parts."

    @property
    def copy_terminal(self) -> str:
        """Terminal form."""
        lines = [f"Removed {', '.join(self.removed) or 'nothing'}, {self.freed >> 20} MB"]
        lines += [f"  kept {name}: {why}" for name, why in self.kept.items()]
        return "\n".join(lines + [f"  ✗ {name}: {why}" for name, why in self.errors.items()])


EVENTS = (PmStatus, PmCollected)


def pm_status(paths: InstallPaths, layout: str, *, verify: bool = False, last_update: str = "") -> PmStatus:
    """What is kept of an install. Read-only.

    Args:
        paths: the install.
        layout: sealed or checkout.
        verify: also compare every byte with the manifests (50 ms for 2,000 files).
        last_update: the newest receipt in words.

    Raises:
        StoreError: a pointer is damaged.
    """
    roles: dict[str, str] = {}
    for role, folder in (("previous", paths.pointed(paths.previous)), ("current", paths.pointed())):
        if folder is not None:
            roles[folder.name] = role
    rows = tuple(
        _row(paths, folder, roles.get(folder.name, ""), verify) for folder in list_generations(paths)
    )
    envs = sorted(paths.envs.iterdir()) if paths.envs.is_dir() else []
    return PmStatus(
        install_id=paths.install_id,
        layout=layout,
        generations=rows,
        environments={env.name: folder_size(env) for env in envs},
        size=folder_size(paths.folder),
        last_update=last_update,
    )


def _row(paths: InstallPaths, folder: Path, role: str, verify: bool) -> GenerationRow:
    if not is_generation(folder):
        return GenerationRow(name=folder.name, role=role, problems=("not finished",))
    try:
        manifest = read_manifest(folder)
        leased = is_leased(folder)
    except (StoreError, OSError) as error:
        return GenerationRow(name=folder.name, role=role, problems=(clean(error),))
    problems = _problems(paths, folder, manifest.env) if verify else []
    if manifest.env and not is_complete(paths.envs / manifest.env):
        problems.append(f"its environment {manifest.env} is missing")
    return GenerationRow(
        name=folder.name,
        role=role,
        code_sha=manifest.identity.code_sha,
        version=manifest.identity.code_version,
        env=manifest.env,
        leased=leased,
        created=manifest.created,
        edits=len(manifest.edits),
        parked=len(manifest.parked),
        problems=tuple(problems),
    )


def _problems(paths: InstallPaths, folder: Path, env: str) -> list[str]:
    changed = verify_generation(folder)
    found = (
        [f"{counted(len(changed), 'file')} changed: {', '.join(clean(path, 60) for path in changed[:3])}"]
        if changed
        else []
    )
    if env and is_complete(paths.envs / env) and not verify_environment(paths.envs / env):
        found.append(f"its environment {env} was changed")
    return found


async def collect_garbage(
    paths: InstallPaths, clock: Clock, environ: Mapping[str, str], *, grace: float = GRACE
) -> AsyncGenerator[PmCollected, None]:
    """Sweep leftovers and remove what nobody uses, under the install lock.

    Args:
        paths: the install.
        clock: time seam.
        environ: where children's variables come from.
        grace: seconds that a generation stays after it was last current.

    Raises:
        StoreError: the lock is held, or a pointer is damaged.
    """
    if not paths.folder.is_dir():  # no update ran yet: there is nothing of ours
        yield PmCollected()
        return
    lock = FileLock(paths.lock, f"The install {paths.install_id}")
    await lock.acquire_async(LOCK_TIMEOUT)
    try:
        done = await in_thread(_collect, paths, clock.time(), environ, grace)
    finally:
        lock.release()
    yield PmCollected(removed=done.removed, kept=done.kept, errors=done.errors, freed=done.freed)


def _collect(paths: InstallPaths, now: float, environ: Mapping[str, str], grace: float) -> Collected:
    git = open_repository(paths, None, environ)
    swept = sweep(paths, git)
    done = collect(paths, git, now, grace=grace)
    return attrs.evolve(done, removed=(*swept, *done.removed))


async def collect_quietly(
    paths: InstallPaths, clock: Clock, environ: Mapping[str, str]
) -> AsyncGenerator[Any, None]:
    """`collect_garbage` as a part of an update's maintenance: what cannot be removed now is removed next time.

    Args:
        paths: the install.
        clock: time seam.
        environ: where children's variables come from.
    """
    from nedura.update.events import Notice

    try:
        async for event in collect_garbage(paths, clock, environ):
            if event.removed:
                yield event
    except (NeduraError, OSError) as error:
        what = error.message if isinstance(error, UpdateError | StoreError) else clean(error)
        yield Notice(text=f"Old generations stay until the next update: {what}")
