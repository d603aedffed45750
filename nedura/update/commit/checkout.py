"""Commit of a checkout layout: the working tree itself moves (facts/update.md 5.2), every move by commit id, local edits parked meanwhile.

`Committed` is told as soon as the move is proven; what becomes of parked edits follows it and never undoes the move.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import AsyncGenerator, Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import attrs

from nedura.errors import NeduraError, UpdateError
from nedura.installs import CodeIdentity
from nedura.product import NEDURA, Product
from nedura.text import clean
from nedura.update.commit import guard, stash, waiting
from nedura.update.commit.gitlocks import clear_stale_locks, sweep_packs
from nedura.update.commit.move import (
    RESCUE_DAYS,
    Move,
    bring_objects,
    expire_rescues,
    is_ancestor,
    merge_commit,
    move,
    rescue,
    roll_back,
)
from nedura.update.commit.recovery_copy import publish
from nedura.update.commit.rules import (
    Disposition,
    Placement,
    Situation,
    Strategy,
    collisions,
    dispose,
    place,
)
from nedura.update.commit.status import (
    branch_elsewhere,
    current_branch,
    has_operation,
    hidden_edits,
    ignored_in_the_way,
    in_place_of,
    look_for_dirt,
    unmerged_work,
)
from nedura.update.events import Committed, Notice, StepDone, UserAction
from nedura.update.source.git import Git
from nedura.update.source.source_git import SourceGit, SourceGitError
from nedura.update.source.torn import Change, changed_paths
from nedura.update.state.snapshot_set import in_set
from nedura.wire import Event

__all__ = ["CheckoutJob", "move_checkout"]

OLD_STASH_DAYS: Final = 7
_T = TypeVar("_T")


@attrs.frozen(kw_only=True)
class CheckoutJob:
    """What a move of a checkout needs to know.

    Attributes:
        git: the neutralised runner of the checkout.
        common_dir: the repository's folder.
        target: commit id to move to.
        target_branch: branch that is followed, empty for a release commit.
        now: unix seconds.
        repo: our repository that holds the target's objects; None when the checkout has them.
        product: names.
        home: the root home, to keep product state out of anything that is parked.
        python: interpreter for the import check of restored edits; None leaves it out.
        before, after: identity of the code before, and of the target.
        strategy, auto_switch: what to do about another branch.
        keep_stash: leave edits parked.
        local_changes: `stash` or `discard`.
        interactive: a person is asked.
        environ: where children's variables come from.
        arrived: told the commit id that HEAD has after a whole move, in the thread that made it: a merge has one of its own.
    """

    git: SourceGit
    common_dir: Path
    target: str
    target_branch: str
    now: float
    repo: Git | None = None
    product: Product = NEDURA
    home: Path | None = None
    python: Path | None = None
    before: CodeIdentity = attrs.field(factory=CodeIdentity)
    after: CodeIdentity = attrs.field(factory=CodeIdentity)
    strategy: Strategy = "switch"
    auto_switch: bool = True
    keep_stash: bool = False
    local_changes: str = "stash"
    interactive: bool = False
    environ: Mapping[str, str] = attrs.field(factory=dict)
    arrived: Callable[[str], None] = lambda _: None

    @property
    def checkout(self) -> Path:
        """The tree."""
        return Path(self.git.checkout)


@attrs.define
class _State:
    events: list[Event] = attrs.field(factory=list)
    parked: stash.Parked | None = None
    step: Move | None = None

    def tell(self, *events: Event) -> None:
        self.events += events


async def _whole(function: Callable[..., _T], *args: Any) -> _T:
    """Run blocking work to its end even when the task is cancelled: a move is never abandoned half-way."""
    task = asyncio.ensure_future(asyncio.to_thread(function, *args))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        raise


async def move_checkout(job: CheckoutJob) -> AsyncGenerator[Event, None]:
    """Move a checkout to its target.

    Raises:
        UpdateError: nothing has moved, or everything was put back; local edits are where they were, or parked and named.
        RefusedError: somebody else's git is at work.
    """
    state, failure = _State(), None
    try:
        try:
            await _whole(_commit, job, state)
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
            await _whole(_settle, job, state)
        raise
    await _whole(_settle, job, state)
    for event in _taken(state):
        yield event


def _committed(job: CheckoutJob, step: Move | None) -> Committed:
    if step is None or step.target == job.target:
        return Committed(before=job.before, now=job.after, branch=job.target_branch)
    merged = attrs.evolve(job.after, code_sha=step.target, tree_hash="")
    return Committed(before=job.before, now=merged, branch=step.branch)


def _taken(state: _State) -> list[Event]:
    told, state.events = state.events, []
    return told


def _commit(job: CheckoutJob, state: _State) -> None:
    """Everything up to the proven move."""
    try:
        _survey(job, state)
        _head(job)  # a tree without a commit is called that, before anything is copied into it
        if job.repo is not None:
            bring_objects(job.git, job.repo, job.target)
        step = _aim(job, state)
        if step is None:
            return
        try:
            changes = _clean_up(job, state, step)
            publish(job.git, step.pre)
            step = attrs.evolve(step, stash=state.parked.commit if state.parked else "")
            move(job.git, step)
            _guard(job, step, [change.path for change in changes])
            state.step = step
            job.arrived(step.target)
        except BaseException:
            _give_back(job, state)
            raise
    except (SourceGitError, OSError) as error:
        raise UpdateError(
            f"{error}.", stop_class="checkout_move_failed", advice="Nothing was moved."
        ) from error


def _survey(job: CheckoutJob, state: _State) -> None:
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


def _aim(job: CheckoutJob, state: _State) -> Move | None:
    """Decide where to go, and put what would lose its name under a ref. None when HEAD is there already."""
    head, branch = _head(job)
    placed = _placed(job, head, branch)
    if placed.action == "skip":
        raise UpdateError(
            f"The update was skipped: {placed.reason}. Nothing was touched.",
            stop_class="local_changes_blocked",
            advice=placed.advice,
        )
    if placed.reason:
        state.tell(
            Notice(text=f"Checkout: {placed.reason}.", warning=placed.action == "switch" and bool(branch))
        )
    target = _merged(job, state, head, branch) if placed.action == "merge" else job.target
    after = (
        branch
        if placed.action in ("stay", "merge")
        else job.target_branch
        if placed.action == "switch"
        else ""
    )
    if head == target and after == branch:
        return None
    _keep_names(job, state, head, branch, after, target)
    return Move(pre=head, target=target, branch=after, was_branch=branch)


def _head(job: CheckoutJob) -> tuple[str, str]:
    """Commit and branch that HEAD names.

    Raises:
        UpdateError: the branch has no commit yet.
    """
    branch = current_branch(job.git)
    head = job.git.run("rev-parse", "--verify", "-q", "HEAD", ok=(0, 1)).text
    if not head:
        raise UpdateError(
            f"Branch {clean(branch, 80)} has no commit yet: nothing can be updated in {clean(str(job.checkout), 200)}.",
            stop_class="checkout_move_failed",
            advice=f"Go to a branch that has one: git checkout {job.target_branch or 'main'}",
        )
    return head, branch


def _placed(job: CheckoutJob, head: str, branch: str) -> Placement:
    away = bool(branch and job.target_branch and branch != job.target_branch)
    dirt = look_for_dirt(job.git) if away else None
    placed = place(
        Situation(
            branch=branch,
            target_branch=job.target_branch,
            dirty=dirt is not None and bool(dirt.edits),
            unmerged_work=unmerged_work(job.git, head, job.target) if away else 0,
            strategy=job.strategy,
            auto_switch=job.auto_switch,
        )
    )
    elsewhere = branch_elsewhere(job.git, job.target_branch) if placed.action == "switch" else ""
    if not elsewhere:
        return placed
    # moving it would make that worktree's files look like edits that undo the update
    return Placement(
        action="detach",
        reason=f"{job.target_branch} is checked out in {clean(elsewhere, 200)}, so this tree goes to its new commit without a branch",
    )


def _merged(job: CheckoutJob, state: _State, head: str, branch: str) -> str:
    """Commit that merges the target into a parked branch; a tag keeps what the branch was."""
    if is_ancestor(job.git, job.target, head):
        return head
    made = merge_commit(
        job.git, head, job.target, f"Merge {job.target_branch} ({job.target[:12]}) into {branch}"
    )
    if made is None:
        raise UpdateError(
            f"{job.target_branch} cannot be merged into {branch} without conflicts. Nothing was changed.",
            stop_class="checkout_move_failed",
            advice="Merge it by hand, or use --switch-branch.",
        )
    ref = rescue(job.git, head, "pre-update", branch, job.now)
    state.tell(Notice(text=f"What {branch} was is kept as {ref}."))
    return made


def _keep_names(job: CheckoutJob, state: _State, head: str, branch: str, after: str, target: str) -> None:
    """Rescue refs for every commit that would have no name after the move (case C047)."""
    doubtful = [(head, branch or "detached")] if branch == after or not branch else []
    if after and after != branch:
        tip = job.git.run("rev-parse", "--verify", "-q", f"refs/heads/{after}^{{commit}}", ok=(0, 1)).text
        if tip and tip != head:
            doubtful.append((tip, after))
    for commit, name in doubtful:
        if is_ancestor(job.git, commit, target):
            continue
        back = is_ancestor(
            job.git, target, commit
        )  # a way back that somebody asked for: nothing was made here
        related = back or job.git.run("merge-base", commit, target, ok=(0, 1, 128)).code == 0
        why = "detached" if name == "detached" else "diverged" if related else "orphan"
        ref = rescue(job.git, commit, "pre-update" if back else why, name, job.now)
        who = "The detached HEAD" if name == "detached" else name
        text = (
            f"{who} goes back; where it was"
            if back
            else f"{who} had commits that the new version lacks; what it was"
        )
        state.tell(
            StepDone(name="rescue_ref", detail=ref),
            Notice(text=f"{text} is kept for {RESCUE_DAYS} days as {ref}.", warning=not back),
        )


def _clean_up(job: CheckoutJob, state: _State, step: Move) -> list[Change]:
    """Machine-made dirt away, a person's edits parked; afterwards no tracked file differs from HEAD. Returns what the move will write."""
    git, dirt = job.git, look_for_dirt(job.git)
    if dirt.machine or dirt.line_ends:
        stash.write_paths(git, [*dirt.machine, *dirt.line_ends])
        what = [
            f"{len(dirt.machine)} lock files" if dirt.machine else "",
            f"line ends of {len(dirt.line_ends)} files" if dirt.line_ends else "",
        ]
        state.tell(
            StepDone(name="machine_changes", detail=f"reset {' and '.join(part for part in what if part)}")
        )
    changes = changed_paths(git, step.pre, step.target)
    _refuse_hidden(git, changes)
    ignored = ignored_in_the_way(git, (change.path for change in changes if not change.old_mode))
    in_the_way = collisions(
        (*dirt.untracked, *ignored), {change.path for change in changes if change.new_mode}
    )
    in_the_way = tuple(dict.fromkeys((*in_the_way, *in_place_of(git, dirt.edits))))
    nested = [path for path in in_the_way if path.endswith("/")]
    if nested:
        raise UpdateError(
            f"A repository of its own is in the way of the new code: {clean(nested[0], 120)}.",
            stop_class="local_changes_blocked",
            advice="Move it away.",
        )
    _refuse_state(job, in_the_way)
    if dirt.edits or in_the_way:
        state.parked = stash.save(git, dirt.edits, in_the_way, now=job.now, branch=step.was_branch)
        waiting.remember(git, state.parked.commit, cut_off=_disposition(job) == "restore")
        stash.take_out(git, dirt.edits, in_the_way)
    left = look_for_dirt(git)
    if left.edits or left.machine or left.line_ends:
        names = ", ".join(clean(path, 80) for path in (*left.edits, *left.machine, *left.line_ends)[:3])
        raise UpdateError(
            f"Local edits cannot be parked: {names}.",
            stop_class="local_changes_blocked",
            advice="Commit them.",
        )
    return changes


def _refuse_hidden(git: SourceGit, changes: list[Change]) -> None:
    """An edit that git was told not to look at can neither be parked nor written over."""
    hidden = hidden_edits(git, changes)
    if hidden:
        raise UpdateError(
            f"The new code changes what is edited here and hidden from git: {', '.join(clean(path, 80) for path in hidden[:3])}.",
            stop_class="local_changes_blocked",
            advice="Show it to git, then it is parked: git update-index --no-assume-unchanged --no-skip-worktree -- "
            + shlex.join(hidden[:20]),
        )


def _refuse_state(job: CheckoutJob, paths: tuple[str, ...]) -> None:
    """Product state is never parked, whatever the new code brings along (case C045)."""
    if job.home is None:
        return
    for path in paths:
        try:
            inside = (job.checkout / path).resolve().relative_to(job.home.resolve()).as_posix()
        except ValueError:
            continue
        if in_set(inside) or inside.startswith(("state-snapshots/", "profiles/", "installs/")):
            raise UpdateError(
                f"The new code brings a file where this home keeps its own: {clean(path, 120)}.",
                stop_class="local_changes_blocked",
                advice="Keep the home outside the checkout.",
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


def _give_back(job: CheckoutJob, state: _State) -> None:
    """After a failure before the commit point: parked edits come back to where they were."""
    parked = state.parked
    if parked is None:
        return
    try:
        restored = stash.restore(job.git, parked, check=False)
        if not restored.conflicts:
            stash.drop(job.git, parked)
            waiting.forget(job.git, parked.commit)
            state.parked = None
            return
        why = "they no longer fit"
    except (SourceGitError, OSError) as error:
        why = str(error)
    raise UpdateError(
        f"The update failed, and local edits stay parked as {parked.commit}: {clean(why, 120)}.",
        stop_class="local_changes_blocked",
        advice=f"Bring them back with: git stash apply {parked.commit}",
    )


def _disposition(job: CheckoutJob) -> Disposition:
    return dispose(keep_stash=job.keep_stash, setting=job.local_changes, interactive=job.interactive)


def _settle(job: CheckoutJob, state: _State) -> None:
    """What becomes of parked edits after a good move (facts/update.md 5.2 step 22), and a word of older ones that still wait."""
    told: tuple[Event, ...] = ()
    if state.parked is not None:
        try:
            told = _edits_back(job, state.parked)
        except (SourceGitError, NeduraError, OSError) as error:  # behind the commit point nothing fails
            told = waiting.stay_parked(job.git, state.parked.commit, clean(error, 200))
    state.tell(*told)
    if not any(isinstance(event, UserAction) for event in told) and (owed := waiting.remind(job.git)):
        state.tell(owed)


def _edits_back(job: CheckoutJob, parked: stash.Parked) -> tuple[Event, ...]:
    what = _disposition(job)
    if what == "keep":
        waiting.forget(job.git, parked.commit)
        return (
            StepDone(name="local_changes_stash", detail=f"parked: {parked.commit} (--keep-stash)"),
            Notice(text=f"Local edits stay parked. Bring them back with: git stash apply {parked.commit}"),
        )
    if what == "discard":
        stash.drop(job.git, parked)
        waiting.forget(job.git, parked.commit)
        return (StepDone(name="local_changes_stash", detail=f"discarded: {parked.commit}"),)
    code = any(path.endswith(".py") for path in parked.paths)
    baseline = _imports(job) if code else ""
    restored = stash.restore(job.git, parked)
    written = not restored.conflicts and not restored.unsafe
    broken = _imports(job) if written and code and not baseline else ""
    if broken:
        stash.undo_restore(job.git, restored)
        restored = stash.Restored(unsafe=broken)
    if why := waiting.why_not(restored):
        return waiting.stay_parked(job.git, parked.commit, why)
    stash.drop(job.git, parked)
    waiting.forget(job.git, parked.commit)
    return (StepDone(name="local_changes_stash", detail=f"restored {len(restored.paths)} files"),)


def _imports(job: CheckoutJob) -> str:
    if job.python is None:
        return ""
    return guard.import_failure(job.checkout, job.product, job.python, job.environ)
