"""Builds and maintenance of the completion: which steps there are, in order, and what follow-up each one leaves."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from nedura.config_migrations import migrate_config
from nedura.errors import NeduraError, UpdateError
from nedura.profiles import Profile, list_profiles
from nedura.text import clean, counted
from nedura.update.bounded import in_thread
from nedura.update.completion.bytecode import sweep_bytecode
from nedura.update.completion.checkout_launcher import publish_checkout_launcher
from nedura.update.completion.completion_parts import Steps
from nedura.update.completion.windows_resume import pending_token, resume
from nedura.update.events import FollowUp, Skipped, StepDone
from nedura.update.generation.aftermath import after_commit
from nedura.update.generation.build_checkout import CheckoutBuilds, wanted_builds
from nedura.update.generation.launcher import write_launcher
from nedura.update.source.channels import adopt_channel, channel_key, successor
from nedura.update.source.repository import open_repository
from nedura.update.state.nets import run_nets
from nedura.update.state.profile_sync import sync_profile
from nedura.wire import Event

if TYPE_CHECKING:
    from nedura.update.completion.second_half import Completion

__all__ = ["aftermath", "upkeep"]


def upkeep(completion: Completion) -> Steps:
    """The stages between the first member and the rest of the fleet (order: facts/update.md 6.6)."""
    maintenance = [
        ("maintenance", _nets(completion)),
        ("profile_sync", _each_profile(completion, "profile_sync", sync_profile)),
        ("config_migration", _each_profile(completion, "config_migration", migrate_config)),
        ("channel", _channel(completion)),
        ("windows_resume", _windows(completion)),
    ]
    if completion.request.layout == "sealed":  # its bytecode and builds were made with it
        return [("maintenance", [("launchers", _sealed_launcher(completion)), *maintenance])]
    build = [
        ("bytecode", _bytecode(completion)),
        ("launchers", _checkout_launcher(completion)),
        ("build", _builds(completion)),
    ]
    return [("build", build), ("maintenance", maintenance)]


async def _sealed_launcher(completion: Completion) -> AsyncGenerator[Event, None]:
    """Publish the launcher of this version."""
    write_launcher(completion.paths, completion.product)
    yield StepDone(name="launchers")


async def _checkout_launcher(completion: Completion) -> AsyncGenerator[Event, None]:
    """Publish the launcher of a checkout, if its Python would find it."""
    left = await in_thread(
        publish_checkout_launcher,
        completion.paths,
        completion.product,
        completion.request.tree,
        sys.executable,
        completion.environ,
    )
    yield Skipped(name="launchers", reason=left) if left else StepDone(name="launchers")


async def _bytecode(completion: Completion) -> AsyncGenerator[Event, None]:
    """Old bytecode goes before anything of this version starts; silence when this version was swept already."""
    request = completion.request
    count = await in_thread(sweep_bytecode, request.tree, completion.paths.folder, request.expected.code_sha)
    if count is not None:
        yield StepDone(name="bytecode", detail=f"{counted(count, 'old file')} removed")


async def _builds(completion: Completion) -> AsyncGenerator[Event, None]:
    """Every build of its own: one that fails is owed and keeps the old artifact, the others go on."""
    product, request, paths = completion.product, completion.request, completion.paths
    if not product.builds:
        return
    git = await in_thread(open_repository, paths, None, completion.environ)
    commit = str(request.notes.get("builds_commit") or request.expected.code_sha)
    work = CheckoutBuilds(paths, git, request.tree, commit, completion.environ)
    wanted = {
        *request.notes.get("builds", ()),
        *wanted_builds(product.builds, request.tree, paths.root_home, paths.folder),
    }
    for decision in await in_thread(work.decide, product.builds, product.roots, wanted):
        name = decision.build.name
        if decision.action != "run":
            yield Skipped(name=f"build {name}", reason=decision.reason)
            continue
        try:
            await in_thread(work.make, decision, completion.clock.time())
            event: Event = StepDone(name=f"build {name}", detail=decision.reason)
        except (NeduraError, OSError) as error:
            event = FollowUp(step="build", reason=f"{name}: {_words(error)}")
        yield event


async def _nets(completion: Completion) -> AsyncGenerator[Event, None]:
    """Put back what an update lost, per profile, from that profile's own snapshot of this run."""
    homes = [(profile.name, profile.home) for profile in _profiles(completion)]
    events = run_nets(homes, completion.request.snapshots, clock=completion.clock)
    try:
        async for event in events:
            yield event
    finally:
        await events.aclose()


def _profiles(completion: Completion) -> tuple[Profile, ...]:
    return list_profiles(Path(completion.request.root_home))


async def _each_profile(
    completion: Completion, name: str, work: Callable[[Path], tuple[str, ...]]
) -> AsyncGenerator[Event, None]:
    """One piece of work for every profile; one that fails does not stop the others.

    Raises:
        UpdateError: names the profiles that failed, once all were tried.
    """
    failed = []
    for profile in _profiles(completion):
        try:
            done = await in_thread(work, profile.home)
        except (NeduraError, OSError) as error:
            failed.append(f"profile {clean(profile.name, 80)}: {_words(error)}")
            continue
        if done:
            yield StepDone(name=name, detail=f"{profile.name}: {', '.join(done)}")
    if failed:
        raise UpdateError("; ".join(failed), stop_class=name)


def _words(error: NeduraError | OSError) -> str:
    return error.message if isinstance(error, NeduraError) else clean(error.strerror or error)


async def _channel(completion: Completion) -> AsyncGenerator[Event, None]:
    """Whoever followed a retired channel follows its successor from now on; this version was chosen from there already."""
    from nedura.config import read_config

    root, install = Path(completion.request.root_home), completion.request.install_id
    given = completion.request.channel_retirement or {}
    original = str(given.get("original") or read_config(root).get(channel_key(install)) or "")
    destination = str(given.get("destination") or successor(original, completion.product.retired_channels))
    if original == destination or not await in_thread(adopt_channel, root, install, original, destination):
        return
    yield StepDone(name="channel", detail=f"{clean(original, 40)} was retired, following {destination}")


async def _windows(completion: Completion) -> AsyncGenerator[Event, None]:
    """Start again what the old half paused.

    Raises:
        UpdateError: something of it is still owed.
    """
    state = completion.paths.folder
    token = pending_token(state, completion.request.windows_resume)
    if token is None:
        return
    left, owed = await resume(token, state, completion.parts.starter, completion.product)
    completion.windows_resume = left.wire()
    if owed:
        raise UpdateError(owed, stop_class="windows_resume")
    yield StepDone(name="windows_resume")


async def aftermath(completion: Completion) -> AsyncGenerator[Event, None]:
    """The owner's checkout follows where that touches no edit, and generations that nobody needs go."""
    if completion.request.layout != "sealed":
        return
    events = after_commit(completion.paths, completion.clock, completion.environ)
    try:
        async for event in events:
            yield event
    finally:
        await events.aclose()
