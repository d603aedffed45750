"""Prepare of the deliberate way back (decision 44): a kept generation (sealed), the recorded commit built aside again (checkout), or the
kept archive of a release (zip).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any

import attrs

from nedura.errors import StoreError, UpdateError
from nedura.text import clean
from nedura.update.bounded import in_thread
from nedura.update.commit_point import paths_of
from nedura.update.events import Notice, Prepared, StepDone
from nedura.update.generation.generations import (
    is_generation,
    list_generations,
    read_manifest,
    verify_generation,
)
from nedura.update.generation.kept import candidate_of, find_receipt, rollback_target
from nedura.update.generation.prepare_checkout import prepare_checkout
from nedura.update.generation.prepare_zip import kept_archive, prepare_zip
from nedura.update.ledger.receipt import Receipt
from nedura.update.ledger.receipts import ReceiptStore
from nedura.update.run import Candidate, Run
from nedura.update.source.git import find_git, is_commit_id
from nedura.update.source.owner_checkout import read_source
from nedura.update.source.source_git import SourceGit
from nedura.update.state.way_back import BACKUP_NOTE, backup_of, bring_back, refuse_running
from nedura.wire import Event

__all__ = ["branch_for", "judge_way_back", "prepare_rollback", "recorded_commit"]


async def prepare_rollback(run: Run) -> AsyncGenerator[Event, None]:
    """The code from before a receipt's run as the candidate; the last event is `Prepared`.

    With `with_backup` the note `state_backup` names the archive whose state comes back with the commit; when the code is there
    already, it comes back at once.

    Raises:
        UsageError: there is no such receipt.
        RefusedError: there is no full backup, or members run.
        UpdateError: the code is not kept any more, or damaged.
    """
    receipt = await in_thread(find_receipt, ReceiptStore(run.root_home), run.options.rollback or "")
    if run.options.with_backup:
        run.notes[BACKUP_NOTE] = backup_of(receipt, run.root_home)
        refuse_running({one.profile for one in run.plan.runtimes} if run.plan is not None else ())
    run.notes["went_behind"] = clean(receipt.get("update_id"), 64)
    yield Notice(text=f"Going back behind run {clean(receipt.get('update_id'), 64)[:8]}.")
    events = {"sealed": _kept_generation, "checkout": _recorded_commit, "zip": _kept_release}[run.layout](
        run, receipt
    )
    try:
        async for event in events:
            if isinstance(event, Prepared) and not event.changed and BACKUP_NOTE in run.notes:
                async for step in bring_back(run):
                    yield step
            yield event
    finally:
        await events.aclose()


def judge_way_back(run: Run) -> Receipt:
    """The receipt that a rollback goes back behind, when what ran before it is still here. Read-only; asked right after the plan as well.

    Raises:
        UsageError: there is no such receipt.
        RefusedError: there is no full backup, or members run.
        UpdateError: the code is not kept any more.
    """
    receipt = find_receipt(ReceiptStore(run.root_home), run.options.rollback or "")
    if run.options.with_backup:
        run.notes[BACKUP_NOTE] = backup_of(receipt, run.root_home)
        refuse_running({one.profile for one in run.plan.runtimes} if run.plan is not None else ())
    if run.layout == "sealed":
        rollback_target(receipt, _kept(run))
    elif run.layout == "checkout":
        branch_for(run, recorded_commit(receipt))
    else:
        _same_or_kept(run, recorded_commit(receipt))
    return receipt


def _same_or_kept(run: Run, commit: str) -> None:
    if commit != run.before.code_sha and not kept_archive(paths_of(run), commit).is_file():
        raise UpdateError(f"The release {commit[:12]} is not kept any more.", stop_class="not_kept")


async def _kept_release(run: Run, receipt: Mapping[str, Any]) -> AsyncGenerator[Event, None]:
    """The release before the run, from its kept archive: unpacked, compared with its note and validated like a new one."""
    run.notes["target_commit"] = recorded_commit(receipt)
    events = prepare_zip(run)
    try:
        async for event in events:
            yield event
    finally:
        await events.aclose()


async def _kept_generation(run: Run, receipt: Mapping[str, Any]) -> AsyncGenerator[Event, None]:
    """The generation before the run, when every byte of it is what its manifest says."""
    name = rollback_target(receipt, await in_thread(_kept, run))
    folder = paths_of(run).generations / name
    damaged = await in_thread(verify_generation, folder)
    if damaged:
        raise UpdateError(
            f"Generation {name} is damaged: {', '.join(damaged[:3])}.",
            stop_class="damaged_generation",
            advice=f"What runs stays; a newer version comes with: {run.product.command} update",
        )
    yield StepDone(name="verify_generation", detail=f"{name} is whole, every byte")
    candidate = await asyncio.to_thread(_candidate, folder)
    yield Prepared(candidate=candidate, changed=paths_of(run).pointed() != folder)


def _kept(run: Run) -> dict[str, str]:
    found = {}
    for folder in list_generations(paths_of(run)):
        if is_generation(folder):
            try:
                found[folder.name] = read_manifest(folder).identity.code_sha
            except StoreError:
                continue
    return found


def _candidate(folder: Path) -> Candidate:
    return candidate_of(folder, inputs=read_manifest(folder).inputs)


def recorded_commit(receipt: Mapping[str, Any]) -> str:
    """Commit id that ran before a receipt's run.

    Raises:
        UpdateError: the receipt names none.
    """
    before = receipt.get("pre_update")
    commit = str(before.get("sha", "")) if isinstance(before, Mapping) else ""
    if not is_commit_id(commit):
        raise UpdateError("That receipt names no commit to go back to.", stop_class="not_kept")
    return commit


async def _recorded_commit(run: Run, receipt: Mapping[str, Any]) -> AsyncGenerator[Event, None]:
    """The commit before the run, built aside and validated like a new one.

    The branch goes back with it only along its own history; else HEAD is detached there, and no branch is rewritten.
    """
    commit = recorded_commit(receipt)
    branch = await in_thread(branch_for, run, commit)
    yield StepDone(
        name="recorded_commit",
        detail=f"{commit[:12]} on {clean(branch, 80)}" if branch else f"{commit[:12]}, detached",
    )
    run.notes["target_commit"] = commit
    events = prepare_checkout(run)
    try:
        async for event in events:
            run.notes["target_branch"] = branch
            yield attrs.evolve(event, commits=0) if isinstance(event, Prepared) else event
    finally:
        await events.aclose()


def branch_for(run: Run, commit: str) -> str:
    """The checked-out branch when the commit is behind it, or straight ahead (a way back from a way back); else empty. Blocks the thread.

    Raises:
        UpdateError: the repository has no such commit any more.
    """
    if run.checkout is None:
        raise UpdateError("There is no checkout here to move.", stop_class="no_install")
    source = read_source(run.checkout, find_git(run.environ), run.environ)
    git = SourceGit(find_git(run.environ), source.checkout, source.git_dir, run.environ)
    if git.run("cat-file", "-e", f"{commit}^{{commit}}", ok=(0, 1, 128)).code != 0:
        raise UpdateError(f"Commit {commit[:12]} is not in the checkout any more.", stop_class="not_kept")
    ends = ((commit, source.head), (source.head, commit))
    straight = any(git.run("merge-base", "--is-ancestor", *pair, ok=(0, 1, 128)).code == 0 for pair in ends)
    return source.branch if straight else ""
