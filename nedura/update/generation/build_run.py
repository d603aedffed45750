"""Running declared builds: in a copy of the candidate's tree that shares no file with any generation; artifact in, stamp last."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import time
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import attrs

from nedura.clock import iso
from nedura.errors import NeduraError, StoreError, UpdateError
from nedura.product import Build
from nedura.programs import child_environment
from nedura.records import make_folder, write_json
from nedura.text import clean
from nedura.update.bounded import in_thread, run_bounded
from nedura.update.events import FollowUp, Notice, Skipped, StepDone
from nedura.update.generation.artifact import check_artifact, drop, is_artifact, leaves_trace
from nedura.update.generation.builds import Decision, decide_builds
from nedura.update.generation.candidate import Building, Inputs
from nedura.update.generation.environment import discard
from nedura.update.generation.generations import Manifest
from nedura.update.generation.thin import python_of
from nedura.update.generation.tree import materialise
from nedura.update.generation.tree_files import hash_files
from nedura.update.generation.tree_rules import Entry
from nedura.update.source.git import Git
from nedura.wire import Event

__all__ = ["apply_build", "built", "decisions_for", "inside", "run_builds"]

HEARTBEAT: Final = 20.0


def decisions_for(
    builds: tuple[Build, ...],
    entries: list[Entry],
    root_home: Path,
    current: Path | None,
    manifest: Manifest | None,
) -> list[Decision]:
    """Look what is on disk, then decide every build."""
    tree = current / "tree" if current is not None else None
    return decide_builds(
        builds,
        entries,
        artifacts={b.name: tree is not None and is_artifact(tree / b.artifact, links=False) for b in builds},
        stamps={
            b.name: (bool(b.stamp) and (root_home / b.stamp).exists())
            or (tree is not None and leaves_trace(tree / b.artifact))
            for b in builds
        },
        current=manifest.builds if manifest is not None else {},
    )


async def run_builds(
    building: Building, decisions: list[Decision], root_home: Path, now: float
) -> AsyncGenerator[Event, None]:
    """Apply each decision to the candidate. A failed build is the `build` follow-up; the old artifact is kept.

    Args:
        building: the candidate; its files are written.
        decisions: from `decisions_for`.
        root_home: where stamps live.
        now: unix seconds.
    """
    for decision in decisions:
        if decision.action == "skip":
            yield Skipped(name=f"build {decision.build.name}", reason=decision.reason)
            continue
        began = time.monotonic()
        task = asyncio.ensure_future(in_thread(apply_build, building, decision, root_home, now))
        try:
            while True:
                done, _ = await asyncio.wait({task}, timeout=HEARTBEAT)
                if done:
                    break
                yield Notice(
                    text=f"build {decision.build.name}: still running, {time.monotonic() - began:.0f} s"
                )
            failure = task.result()
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task})
        if failure:
            yield FollowUp(
                step="build",
                reason=f"{decision.build.name}: {failure}",
                retried_by="retried by the next update",  # a launch builds no generation
            )
        else:
            yield StepDone(
                name=f"build {decision.build.name}",
                detail=f"{decision.action}, {time.monotonic() - began:.1f} s",
            )


def apply_build(building: Building, decision: Decision, root_home: Path, now: float) -> str:
    """Run or take over one build; returns why it failed, empty when it did not."""
    build = decision.build
    try:
        if decision.action == "run":
            _run(building, build)
        else:
            _take_over(building, build)
        _note_files(building, build)
        building.inputs = _with_build(building, build, decision.inputs)
        if build.stamp and decision.action == "run":
            place = root_home / build.stamp
            make_folder(place.parent)
            write_json(
                place,
                {
                    "inputs": decision.inputs,
                    "commit": building.inputs.commit,
                    "at": iso(now),
                    "name": build.name,
                },
            )
    except (UpdateError, StoreError, OSError) as error:
        building.inputs = _with_build(building, build, "failed")
        _keep_old(building, build)
        return error.message if isinstance(error, NeduraError) else clean(error)
    return ""


def _with_build(building: Building, build: Build, inputs: str) -> Inputs:
    return attrs.evolve(building.inputs, builds={**building.inputs.builds, build.name: inputs})


def inside(tree: Path, artifact: str) -> Path:
    """Place of an artifact.

    Raises:
        UpdateError: it lies outside the tree.
    """
    path = Path(os.path.normpath(tree / artifact))
    if tree not in path.parents:
        raise UpdateError(f"The artifact {clean(artifact)} lies outside the tree.", stop_class="build")
    return path


def _run(building: Building, build: Build) -> None:
    with built(
        build,
        building.git,
        building.inputs.tree,
        building.entries,
        building.paths.folder,
        str(python_of(building.folder)),
        building.environ,
    ) as made:
        target = inside(building.tree, build.artifact)
        make_folder(target.parent)
        drop(target)
        os.rename(made, target)


@contextmanager
def built(
    build: Build,
    git: Git,
    tree_id: str,
    entries: Sequence[Entry],
    folder: Path,
    python: str,
    environ: Mapping[str, str],
) -> Iterator[Path]:
    """Run one build in a fresh copy of a tree; gives the artifact, and the copy goes when the block ends.

    Args:
        build: the build.
        git: repository that has the tree.
        tree_id: the tree.
        entries: its files.
        folder: where the copy is made.
        python: what `{python}` stands for.
        environ: where the child's variables come from.

    Raises:
        UpdateError: it failed, took too long, or left no artifact that can be taken.
    """
    scratch = make_folder(folder / f".tmp.build.{secrets.token_hex(6)}")
    try:
        tree = scratch / "tree"
        materialise(git, tree_id, entries, tree, scratch)
        argv = [python if word == "{python}" else word for word in build.command]
        env = child_environment(environ, PYTHONDONTWRITEBYTECODE="1")
        try:
            done = run_bounded(argv, env=env, cwd=tree, timeout=build.timeout, sweep=True)
        except OSError as error:
            raise UpdateError(f"{clean(argv[0])}: {error.strerror}", stop_class="build") from error
        if done.timed_out:
            raise UpdateError(f"not finished within {build.timeout:.0f} s", stop_class="build")
        if done.code != 0:
            last = (done.err or done.out).decode("utf-8", "replace").strip().splitlines()[-1:]
            raise UpdateError(f"exit {done.code}: {clean(' '.join(last))}", stop_class="build")
        made = inside(tree, build.artifact)
        check_artifact(made, tree)
        yield made
    finally:
        discard(scratch)


def _take_over(building: Building, build: Build) -> None:
    """Link the artifact of the current generation."""
    if building.base is None:
        raise UpdateError("there is nothing to take over", stop_class="build")
    source, target = inside(building.base.tree, build.artifact), inside(building.tree, build.artifact)
    make_folder(target.parent)
    if source.is_dir():
        shutil.copytree(source, target, symlinks=True, copy_function=_link_or_copy)
        return
    _link_or_copy(str(source), str(target))


def _link_or_copy(source: str, target: str) -> str:
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        shutil.copy2(source, target, follow_symlinks=False)
    return target


def _keep_old(building: Building, build: Build) -> None:
    """A failed build leaves the artifact that was there."""
    try:
        if building.base is not None and is_artifact(building.base.tree / build.artifact, links=False):
            drop(inside(building.tree, build.artifact))
            _take_over(building, build)
            _note_files(building, build)
    except (
        UpdateError,
        OSError,
    ):  # the follow-up says that the build is owed; the old artifact is a courtesy
        return


def _note_files(building: Building, build: Build) -> None:
    """Put the artifact's files into the manifest, so that verification covers them."""
    top = inside(building.tree, build.artifact)
    files = [p for p in top.rglob("*") if p.is_file() and not p.is_symlink()] if top.is_dir() else [top]
    kind = "0" * len(building.inputs.commit)
    entries = [Entry("100644", kind, 0, str(path.relative_to(building.tree))) for path in files]
    building.built.update(hash_files(building.tree, entries))
