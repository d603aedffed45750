"""The real stages behind `UpdateParts`: the owners' functions, called with what the run knows.

What only one layout or one option needs is imported when it is needed, so that a run with nothing to do does not pay for it. Before a
working tree moves, `preload` imports all the rest: the files are new code afterwards. A sealed process keeps its own generation.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from nedura.config import read_config
from nedura.errors import NeduraError, UpdateError
from nedura.homes import DEFAULT_PROFILE, profile_name
from nedura.installs import InstallPaths
from nedura.locks import FileLock
from nedura.profiles import list_profiles
from nedura.text import clean, counted, redact
from nedura.update.bounded import in_thread
from nedura.update.commit import sealed
from nedura.update.commit.sealed import commit_sealed
from nedura.update.commit_point import paths_of
from nedura.update.completion.preload import preload
from nedura.update.events import Committed, Notice, PlanReady, Prepared, Skipped, StepDone
from nedura.update.generation import failed
from nedura.update.generation.durable import remove_tree
from nedura.update.generation.generations import is_generation, read_manifest
from nedura.update.generation.kept import prepare_current
from nedura.update.generation.prepare import prepare as prepare_new
from nedura.update.ledger.leftovers import sweep
from nedura.update.options_check import check_configured
from nedura.update.parts import Refusal
from nedura.update.planning import admission
from nedura.update.planning.plan import plan_update
from nedura.update.prompt import ask_by_file, said_yes
from nedura.update.run import Candidate, Run
from nedura.update.source.channels import channel_key
from nedura.update.state.levels import judge_state, state_range
from nedura.update.state.snapshot_mode import KEY, asked_mode, backup_keep, snapshot_mode
from nedura.wire import Event, to_wire

if TYPE_CHECKING:
    from nedura.update.fleet_parts import FleetParts

__all__ = [
    "admit",
    "commit",
    "fleet",
    "plan",
    "prepare",
    "profiles_of",
    "remember_failed",
    "snapshot",
    "take_back",
    "tidy",
]

log = logging.getLogger("nedura.update")


def profiles_of(run: Run) -> list[tuple[str, Path]]:
    """Every profile with its home, the invoking one first."""
    invoking = profile_name(run.home, run.root_home)
    found = [
        (profile.name, profile.home) for profile in list_profiles(run.root_home) if profile.home.is_dir()
    ]
    return sorted(found, key=lambda pair: (pair[0] != invoking, pair[0] != DEFAULT_PROFILE, pair[0]))


async def admit(run: Run) -> Refusal | None:
    """Find the install and judge it; remember its checkout."""
    refusal = await admission.admit(run)
    subject = run.notes.get("subject")
    run.checkout = getattr(subject, "checkout", None)
    if refusal is None and run.layout == "checkout":
        from nedura.update.commit.of_run import preflight_checkout

        await asyncio.to_thread(preflight_checkout, run)
    return refusal


def prepare(run: Run) -> AsyncGenerator[Event, None]:
    """The candidate: a new one built aside, a kept one, or what is current."""
    if run.options.finish_only:
        return prepare_current(run)
    if run.options.rollback is None:
        return _fitting(run, _prepare_new(run))
    from nedura.update.generation.rollback import prepare_rollback

    return _fitting(run, prepare_rollback(run))


async def _fitting(run: Run, events: AsyncGenerator[Event, None]) -> AsyncGenerator[Event, None]:
    """A candidate that cannot read today's state is refused, unless the state goes back with it (decision 44)."""
    try:
        async for event in events:
            if isinstance(event, Prepared) and event.changed and not run.options.with_backup:
                await asyncio.to_thread(_judge_state, run, event.candidate)
            yield event
    finally:
        await events.aclose()


def _judge_state(run: Run, candidate: Candidate) -> None:
    if run.layout != "sealed":
        if run.checkout is not None:
            level = state_range(run.checkout, run.product.command).state_max
            judge_state(state_range(candidate.tree, run.product.command), level)
        return
    current = paths_of(run).pointed()
    if current is not None and is_generation(current):
        judge_state(read_manifest(candidate.folder).state, read_manifest(current).state_max)


def _prepare_new(run: Run) -> AsyncGenerator[Event, None]:
    """A new candidate."""
    if run.layout == "zip":
        from nedura.update.generation.prepare_zip import prepare_zip

        return prepare_zip(run)
    return _prepare_checkout(run) if run.layout == "checkout" else prepare_new(run)


async def _prepare_checkout(run: Run) -> AsyncGenerator[Event, None]:
    """A new candidate; with nothing new, edits that still wait are named (C021)."""
    from nedura.update.commit.of_run import waiting_edits
    from nedura.update.generation.prepare_checkout import prepare_checkout

    events = prepare_checkout(run)
    changed = True
    try:
        async for event in events:
            if isinstance(event, Prepared):
                changed = event.changed
            yield event
    finally:
        await events.aclose()
    if changed:
        await _ask_for_edits(run)
        return
    for event in await asyncio.to_thread(waiting_edits, run):
        yield event


async def _ask_for_edits(run: Run) -> None:
    """Whether local edits come back: `yes` in doubt for who watches, `no` for a chat, where nobody sees the files (facts/update.md 5.2)."""
    from nedura.update.commit.of_run import count_edits

    if run.options.yes or run.options.keep_stash or not (run.options.gateway_mode or run.ask):
        return
    count = await asyncio.to_thread(count_edits, run)
    if not count:
        return
    question = f"Local changes of {counted(count, 'file')} are put aside. Bring them back after the update?"
    if run.options.gateway_mode:
        answer = await ask_by_file(run.home, question, "no", run.clock)
    else:
        assert run.ask is not None
        answer = await run.ask(question, "yes") or "yes"
    run.options = attrs.evolve(run.options, keep_stash=not said_yes(answer))


async def plan(run: Run) -> AsyncGenerator[Event, None]:
    """The read-only inventory."""
    run.plan = await plan_update(
        home=run.home,
        product=run.product,
        clock=run.clock,
        environ=run.environ,
        deadline=run.options.deadline,
        branch=run.options.branch,
        channel=run.options.channel,
        saves=asked_mode(no_backup=run.options.no_backup, backup=run.options.backup),
    )
    record = {
        key: value for key, value in to_wire(run.plan).items() if key not in ("kind", "copy", "copy_terminal")
    }
    yield PlanReady(plan=record, summary=run.plan.summary)
    await asyncio.to_thread(_foresee, run)


def _foresee(run: Run) -> None:
    """What is sure to fail later fails here, before a snapshot is taken."""
    if run.options.rollback is not None:
        from nedura.update.generation.rollback import judge_way_back

        judge_way_back(run)
    elif run.install is not None:
        check_configured(run, read_config(run.root_home).text(channel_key(run.install.install_id)))


async def snapshot(run: Run) -> AsyncGenerator[Event, None]:
    """Left-overs of dead processes away; quick snapshots of every profile, and the full backup where it is asked for."""
    swept = await in_thread(sweep, run.root_home, run.environ, run.clock.time(), product=run.product)
    if swept:
        yield StepDone(name="leftovers", detail=str(swept))
    if run.options.finish_only:
        yield Skipped(name="snapshot", reason="nothing moves in this run")
        return
    config = await asyncio.to_thread(read_config, run.root_home)
    mode, warning = snapshot_mode(run.options, config.get(KEY))
    if warning:
        yield Notice(text=warning, warning=True)
    if mode == "off":
        by_hand = run.options.no_backup
        reason = "--no-backup" if by_hand else f"{KEY} is off"
        yield Skipped(name="snapshot", reason=reason, configured=not by_hand)
        return
    from nedura.update.state.snapshot import take_snapshots

    parts: list[AsyncGenerator[Any, None]] = [take_snapshots(profiles_of(run), clock=run.clock)]
    if mode == "full":
        from nedura.update.state.backup import take_backup

        keep, warning = backup_keep(config)
        if warning:
            yield Notice(text=warning, warning=True)
        parts.append(take_backup(run.root_home, keep=keep, checkout=run.checkout, clock=run.clock))
    for events in parts:
        try:
            async for event in events:
                yield event
        finally:
            await events.aclose()


def commit(run: Run) -> AsyncGenerator[Event, None]:
    """The one move, by layout."""
    move = _commit_sealed(run) if run.layout == "sealed" else _commit_in_place(run)
    return _with_state(run, move) if run.options.with_backup else move


async def _with_state(run: Run, move: AsyncGenerator[Event, None]) -> AsyncGenerator[Event, None]:
    """State first: it is refused as a whole or comes back as a whole, and only then the code goes back to what can read it."""
    from nedura.update.state.way_back import bring_back

    for events in (bring_back(run), move):
        try:
            async for event in events:
                yield event
        finally:
            await events.aclose()


async def _commit_in_place(run: Run) -> AsyncGenerator[Event, None]:
    """The move of a working tree, or the swap of an unpacked one: both replace our own files."""
    from nedura.update.commit.of_run import commit_checkout, commit_zip, files_of_version

    for fault in preload(run.checkout, await asyncio.to_thread(files_of_version, run)):
        yield Notice(text=f"Left out, since it cannot be imported: {fault}", warning=True)
    events = commit_checkout(run) if run.layout == "checkout" else commit_zip(run)
    try:
        async for event in events:
            yield event
    finally:
        await events.aclose()
        if run.candidate is not None and run.committed:  # what was validated aside has done its work
            await asyncio.to_thread(remove_tree, run.candidate.folder)


async def _commit_sealed(run: Run) -> AsyncGenerator[Event, None]:
    if run.candidate is None:
        raise UpdateError("Nothing was prepared.", stop_class="internal")
    run.previous = commit_sealed(paths_of(run), run.candidate)
    yield Committed(before=run.before, now=run.candidate.identity, branch=str(run.notes.get("branch", "")))
    if run.notes.get("fork_push"):
        from nedura.update.generation.fork import push_back

        pushed = push_back(run)
        try:
            async for event in pushed:
                yield event
        finally:
            await pushed.aclose()


def take_back(run: Run) -> None:
    """The pointer back to what was current."""
    sealed.take_back(paths_of(run), run.previous)


async def scope() -> Sequence[str]:
    """Out of the gateway's control group, if this update runs in one: its restart must not end its own completion."""
    from nedura.fleet import scope_prefix

    return await scope_prefix("nedura-completion")


def fleet(run: Run) -> FleetParts:
    """The fleet as this (old) code sees it."""
    from nedura.update.fleet_real import RealFleet

    return RealFleet(
        root_home=run.root_home,
        install_id=paths_of(run).install_id,
        product=run.product,
        environ=run.environ,
        clock=run.clock,
    )


def tidy(run: Run) -> None:
    """What the run unpacked, and candidates of earlier runs that failed: else a broken branch would fill the disk, one version a day."""
    if run.install is None:
        return
    try:
        if run.layout == "zip":
            from nedura.update.generation.prepare_zip import STAGE

            remove_tree(run.install.folder / STAGE)
        if run.candidate is not None and run.changed and not (run.committed and run.layout == "sealed"):
            _drop_candidates(run, run.install)
    except (NeduraError, OSError) as error:
        log.warning("what an update left is still there: %s", clean(redact(str(error)), 300))


def _drop_candidates(run: Run, paths: InstallPaths) -> None:
    """Generations that nothing runs from. A successful update of a sealed install collects in its completion."""
    from nedura.update.generation.collect import collect, drop_candidate
    from nedura.update.source.repository import open_repository

    lock = FileLock(paths.lock, f"The install {paths.install_id}")
    lock.acquire(1.0)
    try:
        git = open_repository(paths, None, run.environ)
        built = str(run.notes.get("built", ""))
        never_current = run.layout != "sealed" or run.previous is None
        if built and never_current:  # else a launcher may have named it a moment ago
            drop_candidate(paths, git, built)
        collect(paths, git, run.clock.time())
    finally:
        lock.release()


def remember_failed(run: Run, check: str) -> None:
    """Keep the inputs of a version whose first member failed."""
    if run.candidate is not None:
        failed.remember_failed(
            paths_of(run), run.candidate.inputs, f"first member: {check}", run.clock.time()
        )
