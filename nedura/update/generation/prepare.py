"""Prepare: fetch, choose the commit, build the candidate generation aside. Whatever fails here costs nothing: nothing live was touched."""

from __future__ import annotations

import contextvars
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

import attrs

from nedura.config import read_config
from nedura.errors import NeduraError, StoreError, UpdateError
from nedura.installs import InstallPaths
from nedura.locks import FileLock
from nedura.text import clean, counted
from nedura.update.bounded import in_thread
from nedura.update.commit.gitlocks import clear_stale_locks
from nedura.update.events import Notice, Prepared, Progress, StepDone, UserAction
from nedura.update.events_completion import refusal_report
from nedura.update.generation.build_run import decisions_for, run_builds
from nedura.update.generation.builds import Decision
from nedura.update.generation.candidate import (
    Building,
    Inputs,
    abandon,
    inputs_hash,
    requires_python,
    start,
    tree_text,
)
from nedura.update.generation.collect import collect_many, folder_size, sweep
from nedura.update.generation.disk import Need, check_room, tree_need
from nedura.update.generation.environment import environment_hash, is_complete
from nedura.update.generation.failed import check_not_failed
from nedura.update.generation.generations import Manifest, read_generation, read_manifest, verify_generation
from nedura.update.generation.interpreter import Interpreter, choose
from nedura.update.generation.owner_whole import read_whole_source
from nedura.update.generation.prepare_environment import prepare_environment
from nedura.update.generation.record import InstallRecord, read_record, write_record
from nedura.update.generation.renew import on_whole_objects, renewed
from nedura.update.generation.thin import python_of
from nedura.update.generation.tree import list_tree
from nedura.update.generation.tree_files import Seen
from nedura.update.generation.tree_rules import Entry
from nedura.update.prompt import said_yes
from nedura.update.run import Candidate, Run
from nedura.update.source.channels import Choice, channel_key, choose_channel, successor
from nedura.update.source.edit_merge import Merge, merge_edits
from nedura.update.source.edit_rules import told
from nedura.update.source.edits import Edits, read_edits
from nedura.update.source.fetch import FetchError
from nedura.update.source.git import Git, commit_id
from nedura.update.source.owner_checkout import Source
from nedura.update.source.repository import open_repository
from nedura.update.source.target import Target, fetch_target, judge_move, keep_tip, known_tips, seen_by
from nedura.update.source.urls import Remote, parse_remote
from nedura.wire import Event

__all__ = ["LOCK_TIMEOUT", "Work", "build_aside", "choose_target", "fetch_again", "open_work", "prepare"]

T = TypeVar("T")
LOCK_TIMEOUT: Final = 30.0


@attrs.define(kw_only=True)
class Work:
    """What one preparation works with; filled in step by step."""

    run: Run
    paths: InstallPaths
    record: InstallRecord
    remote: Remote
    choice: Choice
    source: Source | None
    git: Git
    current: Path | None
    manifest: Manifest | None
    entries: list[Entry] = attrs.field(factory=list)
    merge: Merge | None = None
    edits: Edits | None = None
    target: Target | None = None
    decisions: list[Decision] = attrs.field(factory=list)
    known: tuple[str, ...] = ()
    ahead: Future[Edits] | None = None
    seen: Mapping[str, Seen] | None = None


async def prepare(run: Run) -> AsyncGenerator[Event, None]:
    """Build the candidate of a sealed install; the last event is `Prepared`.

    Args:
        run: the update; `install` is set. Sets `candidate` and `changed`. The note `target_commit` names a commit
            that is there already: nothing is fetched then.

    Raises:
        UpdateError: a step failed; nothing of the candidate is left.
        StoreError: a record of ours cannot be used.
    """
    if run.install is None:
        raise UpdateError("There is no install to prepare.", stop_class="install")
    lock = FileLock(run.install.lock, f"The install {run.install.install_id}")
    await lock.acquire_async(LOCK_TIMEOUT)
    try:
        work = await in_thread(open_work, run, run.install)
        events = _prepare(work)
        try:
            async for event in events:
                yield event
        finally:
            await events.aclose()
    finally:
        lock.release()


def open_work(run: Run, paths: InstallPaths) -> Work:
    """Open everything a preparation works with. Blocks."""
    record = read_record(paths)
    source = _source(run, record)
    git = open_repository(paths, source, run.environ)
    run.notes["stale_locks"] = clear_stale_locks(paths.repo, paths.repo, own=True)
    sweep(paths, git)
    collect_many(paths, git, run.clock.time())
    configured = read_config(run.root_home).text(channel_key(paths.install_id))
    if configured and successor(configured, run.product.retired_channels) != configured:
        destination = successor(configured, run.product.retired_channels)
        run.notes["channel_retirement"] = {"original": configured, "destination": destination}
    current = paths.pointed()
    manifest = None
    if current is not None:
        try:
            manifest = read_manifest(current)
        except StoreError:  # a damaged generation is replaced, not trusted
            manifest = None
    return Work(
        run=run,
        paths=paths,
        record=record,
        remote=_remote(record),
        choice=choose_channel(
            branch=run.options.branch,
            channel=run.options.channel,
            configured=configured,
            pinned_branch=record.branch,
            retired=run.product.retired_channels,
        ),
        source=source,
        git=git,
        current=current,
        manifest=manifest,
    )


def _remote(record: InstallRecord) -> Remote:
    """Where updates come from."""
    if record.layout == "zip":
        from nedura.update.source.release import archive_remote

        return archive_remote(record.remote_url)
    return parse_remote(record.remote_url)


def _source(run: Run, record: InstallRecord) -> Source | None:
    """The owner's checkout; None when it is gone: what runs does not depend on it. A release has none."""
    if record.layout == "zip" or not Path(record.source).is_dir():
        return None
    return read_whole_source(Path(record.source), run.environ)


async def _prepare(work: Work) -> AsyncGenerator[Event, None]:
    for events in (_chooser(work)(work), on_whole_objects(work, _build, fetch_again)):
        try:
            async for event in events:
                yield event
        finally:
            await events.aclose()


async def _build(work: Work) -> AsyncGenerator[Event, None]:
    for events in (_carry(work), build_aside(work)):
        try:
            async for event in events:
                yield event
        finally:
            await events.aclose()


def _chooser(work: Work) -> Callable[[Work], AsyncGenerator[Event, None]]:
    """How the target is chosen; only where an upstream was ever named is the rule for forks needed."""
    if work.record.upstream_url or (work.source is not None and work.source.upstream_url):
        from nedura.update.generation.fork import choose_on_fork

        return choose_on_fork
    return choose_target


async def choose_target(work: Work) -> AsyncGenerator[Event, None]:
    """Fetch, and decide whether the move is allowed."""
    if work.source is None:
        yield Notice(text="The source checkout is gone; its local edits are not carried.", warning=True)
    stale = work.run.notes.get("stale_locks")
    if stale:
        yield StepDone(name="stale_locks", detail=f"moved aside: {', '.join(map(str, stale))}")
    moved = _judge_remote(work)
    try:
        async for event in moved:
            yield event
    finally:
        await moved.aclose()
    fixed = str(work.run.notes.get("target_commit", ""))
    if fixed:
        # what the remote had is nobody's local work, also where the source is ahead of the version that is built again
        work.known = await in_thread(_known_tips, work)
        work.target = Target(
            commit=commit_id(fixed),
            name=work.manifest.branch if work.manifest else "",
            move="same",
            commits=0,
        )
        return
    yield Progress(stage="prepare", label=f"fetching {clean(work.choice.name, 60)}")
    current = work.manifest.identity.code_sha if work.manifest is not None else ""
    began = time.monotonic()
    try:
        work.target = await in_thread(_fetch, work, current)
    except FetchError as error:
        if error.token != "broken_objects":
            raise
        found, notice = await in_thread(renewed, work, error, lambda work: _fetch(work, current))
        work.target = found
        yield notice
    yield StepDone(
        name="fetch", detail=f"{work.remote.shown} {work.target.name} {(work.target.fetched or work.target.commit)[:12]} "
        f"in {time.monotonic() - began:.1f} s",
    )  # fmt: skip
    work.run.notes["branch"] = work.target.name
    judge_move(work.target, allow_downgrade=work.run.options.allow_downgrade)
    if work.target.move == "rewritten":
        yield Notice(
            text=f"The history of {clean(work.target.name, 60)} was rewritten: {work.target.commit[:8]} does not follow {current[:8]}.",
            warning=True,
        )


def _known_tips(work: Work) -> tuple[str, ...]:
    record = work.record
    seen = seen_by(work.source, work.choice, sealed=record.layout == "sealed", remote=record.remote_name)
    return known_tips(work.git, work.choice, seen)


def _fetch(work: Work, current: str) -> Target:
    """Fetch the target. Meanwhile the source's edits are read, and every byte of what is current: none needs the other."""
    work.known = _known_tips(work)
    with ThreadPoolExecutor(2) as beside:  # its end waits for the readers, whatever becomes of the fetch
        if work.source is not None:
            work.ahead = beside.submit(contextvars.copy_context().run, _edits, work, work.source)
        reading = None
        if work.current is not None and work.manifest is not None:
            reading = beside.submit(read_generation, work.current, work.manifest)
        target = fetch_target(work.git, work.remote, work.choice, current, known=work.known)
        work.seen = reading.result() if reading is not None else None
    return target


def fetch_again(work: Work) -> None:
    """Bring the objects of the chosen version into a repository that was made again. Blocks.

    Raises:
        UpdateError: it could not be fetched.
    """
    current = work.manifest.identity.code_sha if work.manifest is not None else ""
    _fetch(work, current)
    work.git.run("cat-file", "-e", f"{_known(work.target).commit}^{{commit}}")


def _edits(work: Work, source: Source) -> Edits:
    """Local edits of the source. Where the root home lies in it, new files there are product state and no edits."""
    inside = source.checkout == work.run.root_home or source.checkout in work.run.root_home.parents
    return read_edits(work.git, source, work.paths.folder, untracked=not inside)


async def _judge_remote(work: Work) -> AsyncGenerator[Event, None]:
    """A remote that is not the pinned one any more is followed only when the person who watches says so (threats.md 1)."""
    if work.source is None or not work.record.remote_name or work.run.notes.get("target_commit"):
        return
    address = work.source.address(work.record.remote_name)
    if not address or address == work.record.remote_url:
        return
    try:
        now = parse_remote(address)
    except NeduraError as error:
        yield Notice(text=f"The source's remote was changed and is not used: {error.message}", warning=True)
        return
    if now.same_place(work.remote):
        return
    text = f"The source's remote is {now.shown} now. Updates still come from {work.remote.shown}, pinned at install"
    if work.run.ask is not None and not work.run.options.gateway_mode:
        question = f"The source's remote is {now.shown} now, and was {work.remote.shown} at install. Follow the new one from now on?"
        if said_yes(await work.run.ask(question, "no")):
            work.record = attrs.evolve(work.record, remote_url=now.url)
            await in_thread(write_record, work.paths, work.record)
            yield StepDone(name="remote", detail=f"{now.shown}, before {work.remote.shown}")
            work.remote = now
            return
    yield Notice(text=f"{text}; install again, or update at a terminal, to follow the new one.", warning=True)


async def _carry(work: Work) -> AsyncGenerator[Event, None]:
    """Read local edits and put them on top of the target."""
    target = _known(work.target)
    scratch = work.paths.folder
    if work.source is None:
        work.merge = await in_thread(merge_edits, work.git, Edits(base="", tree=""), target.commit, scratch)
        return
    if work.ahead is not None:
        work.edits = work.ahead.result()  # read beside the fetch, which waited for it
    else:
        work.edits = await in_thread(_edits, work, work.source)
    work.merge = await in_thread(merge_edits, work.git, work.edits, target.commit, scratch, work.known)
    left = (*work.edits.left, *work.merge.left)
    if left:
        yield Notice(text=f"Local edits that are not carried: {told(left)}", warning=True)
    if work.merge.carried or work.merge.parked:
        yield _edits_step(work.merge)
    if work.merge.parked:
        shown = ", ".join(clean(path, 60) for path in sorted(work.merge.parked)[:5])
        yield UserAction(
            step="local_changes",
            reason=f"Left out, in conflict with the new version: {counted(len(work.merge.parked), 'local edit')} ({shown}). "
            f"Kept untouched in {clean(work.record.source, 120)}, and as {work.merge.commit} ({work.merge.ref}).",
        )


def _edits_step(merge: Merge) -> StepDone:
    carried = ", ".join(
        f"{clean(path, 80)}={oid[:12] or 'deleted'}" for path, oid in sorted(merge.carried.items())[:20]
    )
    detail = f"carried {len(merge.carried)}: {carried}" if merge.carried else "carried 0"
    if merge.commits:
        detail += f"; with {counted(merge.commits, 'commit')} of the checkout's own"
    if merge.parked:
        detail += f"; parked {len(merge.parked)}: {merge.commit}"
    return StepDone(name="local_changes", ok=not merge.parked, detail=clean(detail, 480))


def _known(value: T | None) -> T:
    if value is None:
        raise UpdateError("A step of the preparation is missing.", stop_class="internal")
    return value


async def build_aside(work: Work) -> AsyncGenerator[Event, None]:
    """Build the chosen commit as a generation; the last event is `Prepared`."""
    inputs = await in_thread(_inputs, work)
    hashed = inputs_hash(inputs)
    unchanged = await in_thread(_unchanged, work, hashed)
    if unchanged is not None:
        work.run.candidate, work.run.changed = unchanged, False
        keep_tip(work.git, work.choice, _known(work.target))
        yield Prepared(candidate=unchanged, changed=False, commits=0)
        return
    check_not_failed(work.paths, hashed, retry=work.run.options.retry)
    await in_thread(_admit, work, inputs)
    building = await in_thread(
        start, work.paths, work.git, work.run.product, inputs, work.run.environ, work.entries, work.seen
    )
    try:
        steps = _steps(work, building)
        try:
            async for event in steps:
                yield event
        finally:
            await steps.aclose()
        branch = _known(work.target).name
        yield Progress(stage="prepare", label="sealing")
        candidate = await in_thread(building.finish, work.run.clock.time(), branch)
    except BaseException:
        abandon(building)
        raise
    candidate = attrs.evolve(candidate, parked=tuple(sorted(_known(work.merge).parked)))
    work.run.candidate, work.run.changed = candidate, True
    work.run.notes["built"] = candidate.folder.name
    keep_tip(work.git, work.choice, _known(work.target))
    yield Prepared(candidate=candidate, changed=True, commits=_known(work.target).commits)


async def _steps(work: Work, building: Building) -> AsyncGenerator[Event, None]:
    yield Progress(stage="prepare", label="writing files")
    await in_thread(building.files)
    if building.repaired:
        shown = ", ".join(clean(path, 60) for path in building.repaired[:5])
        yield Notice(
            text=f"Files of the current version were changed and are written afresh: {shown}", warning=True
        )
    if building.inputs.env or work.record.environment == "managed":
        yield Progress(stage="prepare", label="packages")
        refused: UpdateError | None = None
        try:
            done = await in_thread(
                prepare_environment, building, work.paths, work.run.product, work.run.options.wheels
            )
        except UpdateError as error:
            refused = error
        if refused is not None:
            yield refusal_report(refused)
            raise refused
        building.inputs = attrs.evolve(building.inputs, env=done.name)
        if done.report is not None:
            yield done.report
        if done.step is not None:
            yield done.step
    yield Progress(stage="prepare", label="compiling")
    began = time.monotonic()
    await in_thread(building.bytecode)
    building.venv()
    yield StepDone(
        name="compile",
        detail=f"{len(building.written)} of {len(building.entries)} files new, {time.monotonic() - began:.1f} s",
    )
    builds = run_builds(building, work.decisions, work.run.root_home, work.run.clock.time())
    try:
        async for event in builds:
            yield event
    finally:
        await builds.aclose()


def _inputs(work: Work) -> Inputs:
    """Everything the candidate would be made from; the tree is judged on the way."""
    target, merge = _known(work.target), _known(work.merge)
    work.entries = list_tree(work.git, merge.tree, work.run.product.roots)
    builds = (
        work.run.product.builds if work.run.layout == "sealed" else ()
    )  # a checkout builds after the move
    work.decisions = decisions_for(builds, work.entries, work.run.root_home, work.current, work.manifest)
    requires = requires_python(tree_text(work.git, merge.tree, "pyproject.toml"))
    python = choose(requires, work.record.python, work.run.environ)
    return Inputs(
        commit=target.commit,
        tree=merge.tree,
        edits=merge.carried,
        parked=merge.parked,
        builds={d.build.name: d.inputs for d in work.decisions if d.action != "skip"},
        python=python,
        env=_env_hash(work, merge.tree, python),
        packages=work.record.packages if work.record.environment == "none" else (),
        states=target.states,
    )


def _env_hash(work: Work, tree: str, python: Interpreter) -> str:
    if work.record.environment == "none":
        return ""
    lock = tree_text(work.git, tree, work.run.product.lock_file, 8 << 20)
    if lock is None:
        raise UpdateError(f"The new version has no {work.run.product.lock_file}.", stop_class="dependencies")
    return environment_hash(lock, (), python)


def _unchanged(work: Work, hashed: str) -> Candidate | None:
    """What is current, when a build would make the very same and its files are what they were (decision 40)."""
    manifest, current = work.manifest, work.current
    if manifest is None or current is None or manifest.inputs != hashed:
        return None
    if any(decision.action == "run" for decision in work.decisions):
        return None
    if manifest.env and not is_complete(work.paths.envs / manifest.env):
        return None
    if verify_generation(current, work.seen):
        return None
    return Candidate(
        layout="sealed",
        identity=manifest.identity,
        folder=current,
        tree=current / "tree",
        python=python_of(current),
        inputs=manifest.inputs,
        target=manifest.identity.code_sha,
        parked=tuple(sorted(_known(work.merge).parked)),
    )


def _admit(work: Work, inputs: Inputs) -> None:
    """Room for tree, bytecode and environment, before the first write."""
    have: Mapping[str, tuple[str, str]] = work.manifest.files if work.manifest is not None else {}
    need = tree_need(work.entries, have)
    if inputs.env and not is_complete(work.paths.envs / inputs.env):
        need += _environment_need(work)
    check_room(work.paths.folder, need)


def _environment_need(work: Work) -> Need:
    """As large as the last environment and a fifth more; 60 MB when there was none."""
    last = work.paths.envs / work.manifest.env if work.manifest is not None and work.manifest.env else None
    size = int(folder_size(last) * 1.2) if last is not None and last.is_dir() else 60 << 20
    return Need(size=size, files=4000)
