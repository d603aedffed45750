"""The real stages behind `UpdateParts`: the owners' functions, called with what the run knows."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

from nedura.errors import UpdateError
from nedura.homes import DEFAULT_PROFILE, profile_name
from nedura.update.commit_point import paths_of
from nedura.update.events import Committed, PlanReady, Skipped
from nedura.update.fleet_parts import FleetParts
from nedura.update.fleet_real import RealFleet
from nedura.update.parts import Refusal
from nedura.update.run import Run
from nedura.wire import Event, to_wire

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
]


def profiles_of(run: Run) -> list[tuple[str, Path]]:
    """Every profile with its home, the invoking one first."""
    from nedura.profiles import list_profiles

    invoking = profile_name(run.home, run.root_home)
    found = [
        (profile.name, profile.home) for profile in list_profiles(run.root_home) if profile.home.is_dir()
    ]
    return sorted(found, key=lambda pair: (pair[0] != invoking, pair[0] != DEFAULT_PROFILE, pair[0]))


async def admit(run: Run) -> Refusal | None:
    """Find the install and judge it; remember its checkout."""
    from nedura.update import admission

    refusal = await admission.admit(run)
    subject = run.notes.get("subject")
    run.checkout = getattr(subject, "checkout", None)
    return refusal


def prepare(run: Run) -> AsyncGenerator[Event, None]:
    """The candidate: a new one built aside, a kept one, or what is current."""
    if run.options.finish_only:
        from nedura.update.kept import prepare_current

        return prepare_current(run)
    if run.options.rollback is not None:
        from nedura.update.kept import prepare_rollback

        return prepare_rollback(run)
    from nedura.update.prepare import prepare as prepare_new

    return prepare_new(run)


async def plan(run: Run) -> AsyncGenerator[Event, None]:
    """The read-only inventory."""
    from nedura.update.plan import plan_update

    run.plan = await plan_update(home=run.home, product=run.product, clock=run.clock, environ=run.environ)
    record = {
        key: value for key, value in to_wire(run.plan).items() if key not in ("kind", "copy", "copy_terminal")
    }
    yield PlanReady(plan=record, summary=run.plan.summary)


async def snapshot(run: Run) -> AsyncGenerator[Event, None]:
    """Quick snapshots of every profile, and the full backup where it is asked for."""
    from nedura.update.snapshot import take_snapshots

    if run.options.finish_only:
        yield Skipped(name="snapshot", reason="nothing moves in this run")
        return
    if run.options.no_backup:
        yield Skipped(name="snapshot", reason="--no-backup")
        return
    events = take_snapshots(profiles_of(run), clock=run.clock)
    try:
        async for event in events:
            yield event
    finally:
        await events.aclose()


async def commit(run: Run) -> AsyncGenerator[Event, None]:
    """The one move."""
    from nedura.update.commit.sealed import commit_sealed

    if run.candidate is None:
        raise UpdateError("Nothing was prepared.", stop_class="internal")
    run.previous = commit_sealed(paths_of(run), run.candidate)
    yield Committed(before=run.before, now=run.candidate.identity, branch=str(run.notes.get("branch", "")))


def take_back(run: Run) -> None:
    """The pointer back to what was current."""
    from nedura.update.commit import sealed

    sealed.take_back(paths_of(run), run.previous)


def fleet(run: Run) -> FleetParts:
    """The fleet as this (old) code sees it."""
    return RealFleet(
        root_home=run.root_home,
        install_id=paths_of(run).install_id,
        product=run.product,
        environ=run.environ,
        clock=run.clock,
    )


def remember_failed(run: Run, check: str) -> None:
    """Keep the inputs of a version whose first member failed."""
    from nedura.update import failed

    if run.candidate is not None:
        failed.remember_failed(
            paths_of(run), run.candidate.inputs, f"first member: {check}", run.clock.time()
        )
