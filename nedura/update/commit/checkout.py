"""Commit of a checkout layout: the working tree itself moves (facts/update.md 5.2), every move by commit id, local edits parked meanwhile.

`Committed` is told as soon as the move is proven; what becomes of parked edits follows it and never undoes the move.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from functools import partial
from pathlib import Path
from typing import Final

import attrs

from nedura.errors import NeduraError, UpdateError
from nedura.text import clean
from nedura.update.bounded import to_the_end
from nedura.update.commit import guard, stash, waiting
from nedura.update.commit.aim import aim, head_of
from nedura.update.commit.gitlocks import clear_stale_locks, sweep_packs
from nedura.update.commit.job import CheckoutJob, Progress
from nedura.update.commit.move import Move, bring_objects, expire_rescues, move, roll_back
from nedura.update.commit.parking import clean_up, give_back, settle
from nedura.update.commit.recovery_copy import publish
from nedura.update.commit.status import has_operation
from nedura.update.events import Committed, Notice, StepDone
from nedura.update.source.source_git import SourceGitError
from nedura.wire import Event

__all__ = ["CheckoutJob", "move_checkout"]

OLD_STASH_DAYS: Final = 7


async def move_checkout(job: CheckoutJob) -> AsyncGenerator[Event, None]:
    """Move a checkout to its target.

    Raises:
        UpdateError: nothing has moved, or everything was put back; local edits are where they were, or parked and named.
        RefusedError: somebody else's git is at work.
    """
    state, failure = Progress(), None
    try:
        try:
            await to_the_end(partial(_commit, job, state))
        except NeduraError as error:
            failure = error  # what was found out on the way is told first
        for event in _taken(state):
            yield event
        if failure is not None:
            raise failure
        yield _committed(job, state.step)
    except (asyncio.CancelledError, GeneratorExit):
        if (
            state.step is not None
        ):  # the move is whole, so what was parked for it comes back, though nobody hears of it
            await to_the_end(partial(settle, job, state))
        raise
    await to_the_end(partial(settle, job, state))
    for event in _taken(state):
        yield event


def _committed(job: CheckoutJob, step: Move | None) -> Committed:
    if step is None or step.target == job.target:
        return Committed(before=job.before, now=job.after, branch=job.target_branch)
    merged = attrs.evolve(job.after, code_sha=step.target, tree_hash="")
    return Committed(before=job.before, now=merged, branch=step.branch)


def _taken(state: Progress) -> list[Event]:
    told, state.events = state.events, []
    return told


def _commit(job: CheckoutJob, state: Progress) -> None:
    """Everything up to the proven move."""
    try:
        _survey(job, state)
        head_of(job)  # a tree without a commit is called that, before anything is copied into it
        if job.repo is not None:
            bring_objects(job.git, job.repo, job.target)
        step = aim(job, state)
        if step is None:
            return
        try:
            changes = clean_up(job, state, step)
            publish(job.git, step.pre)
            step = attrs.evolve(step, stash=state.parked.commit if state.parked else "")
            move(job.git, step)
            _guard(job, step, [change.path for change in changes])
            state.step = step
            job.arrived(step.target)
        except BaseException:
            give_back(job, state)
            raise
    except (SourceGitError, OSError) as error:
        raise UpdateError(
            f"{error}.", stop_class="checkout_move_failed", advice="Nothing was moved."
        ) from error


def _survey(job: CheckoutJob, state: Progress) -> None:
    git_dir = Path(job.git.git_dir)
    begun = has_operation(git_dir)
    if begun:
        raise UpdateError(
            f"{begun[0].upper()}{begun[1:]} is not finished in {clean(str(job.checkout), 200)}.",
            stop_class="local_changes_blocked",
            advice="Finish it or abort it, then try again.",
        )
    moved = clear_stale_locks(git_dir, job.common_dir, branch=job.target_branch, now=job.now)
    if moved:
        state.tell(StepDone(name="stale_git_locks", detail=f"moved aside: {', '.join(moved)}"))
    sweep_packs(job.common_dir, job.now)
    state.tell(*waiting.bring_back(job.git))
    gone = expire_rescues(job.git, job.now)
    if gone:
        state.tell(Notice(text=f"Removed {len(gone)} rescue refs older than 30 days."))
    old = [
        one
        for one in stash.find_parked(job.git)
        if (one.taken_at or job.now) < job.now - OLD_STASH_DAYS * 86_400
    ]
    if old:
        state.tell(
            Notice(
                text=f"{len(old)} older sets of parked edits wait in the stash, e.g. {old[0].commit[:12]}.",
                warning=True,
            )
        )


def _guard(job: CheckoutJob, step: Move, changed: list[str]) -> None:
    """Old bytecode gone; a tree that cannot start goes back as a whole. Nothing else fails here: the tree has moved."""
    guard.drop_bytecode(job.checkout, changed)
    failure = guard.launch_failure(job.checkout, job.product)
    if failure:
        roll_back(job.git, step)
        guard.drop_bytecode(job.checkout, changed)
        raise UpdateError(
            f"The new code does not compile ({failure}); the checkout is back at {step.pre[:12]}.",
            stop_class="target_syntax_error",
        )
