"""Local edits of a checkout that moves: out of the way before it, back after it, whatever comes of the move."""

from __future__ import annotations

import shlex

from nedura.errors import NeduraError, UpdateError
from nedura.text import clean, counted
from nedura.update.commit import guard, stash, waiting
from nedura.update.commit.job import CheckoutJob, Progress
from nedura.update.commit.merging import NEEDED, can_merge
from nedura.update.commit.move import Move
from nedura.update.commit.rules import Disposition, collisions, dispose
from nedura.update.commit.status import hidden_edits, ignored_in_the_way, in_place_of, look_for_dirt
from nedura.update.events import Notice, StepDone, UserAction
from nedura.update.source.source_git import SourceGit, SourceGitError
from nedura.update.source.torn import Change, changed_paths
from nedura.update.state.snapshot_set import in_set
from nedura.wire import Event

__all__ = ["clean_up", "give_back", "refuse_old_git", "settle"]


def clean_up(job: CheckoutJob, state: Progress, step: Move) -> list[Change]:
    """Machine-made dirt away, a person's edits parked: nothing that the move will write differs from HEAD then. Returns what that is."""
    git, dirt = job.git, look_for_dirt(job.git)
    if dirt.machine or dirt.line_ends:
        stash.write_paths(git, [*dirt.machine, *dirt.line_ends])
        what = [
            counted(len(dirt.machine), "lock file") if dirt.machine else "",
            f"line ends of {counted(len(dirt.line_ends), 'file')}" if dirt.line_ends else "",
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
    if dirt.edits and _disposition(job) == "restore":
        refuse_old_git(git, len(dirt.edits))
    if dirt.edits or in_the_way:
        state.parked = stash.save(git, dirt.edits, in_the_way, now=job.now, branch=step.was_branch)
        waiting.remember(git, state.parked.commit, cut_off=_disposition(job) == "restore")
    _take_out(job, state, dirt.edits, in_the_way, changes)
    return changes


def _take_out(
    job: CheckoutJob,
    state: Progress,
    edits: tuple[str, ...],
    in_the_way: tuple[str, ...],
    changes: list[Change],
) -> None:
    """What is parked leaves the tree; what cannot stays as it is where the new code has nothing else (facts/update.md 5.2 step 14)."""
    reason = ""
    try:
        if state.parked is not None:
            stash.take_out(job.git, edits, in_the_way)
    except (SourceGitError, OSError) as error:
        reason = error.reason if isinstance(error, SourceGitError) else error.strerror or str(error)
    left = look_for_dirt(job.git)
    stuck = (*left.edits, *left.machine, *left.line_ends)
    if reason:
        known = set(job.git.run("ls-files", "-z").items)
        others = (path for path in (*edits, *in_the_way) if path not in known)
        stuck += tuple(path for path in others if stash.is_there(job.git.checkout, path))
    met = collisions(stuck, {change.path for change in changes})
    if met or (stuck and not reason):
        names = ", ".join(clean(path, 80) for path in (met or stuck)[:3])
        raise UpdateError(
            f"Local edits cannot be parked: {names}{f' ({clean(reason, 200)})' if reason else ''}.",
            stop_class="local_changes_blocked",
            advice="Commit them.",
        )
    if stuck:
        names = ", ".join(clean(path, 80) for path in stuck[:3])
        more = f" and {len(stuck) - 3} more" if len(stuck) > 3 else ""
        state.tell(
            Notice(
                text=f"Edited and not to be put aside ({clean(reason, 200)}), so left as it is: {names}{more}. "
                "The new code changes nothing there.",
                warning=True,
            )
        )


def refuse_old_git(git: SourceGit, edits: int) -> None:
    """Edits that this git could not bring back are not parked at all.

    Args:
        git: the checkout.
        edits: how many files are edited.

    Raises:
        UpdateError: git is too old to merge them.
    """
    if edits and not can_merge(git):
        raise UpdateError(
            f"Local edits of {counted(edits, 'file')} could not be brought back after the move: {NEEDED} them.",
            stop_class="local_changes_blocked",
            advice="Install a newer git, commit the edits, or leave them in the stash: --keep-stash",
        )


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


def give_back(job: CheckoutJob, state: Progress) -> None:
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


def settle(job: CheckoutJob, state: Progress) -> None:
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
    return (StepDone(name="local_changes_stash", detail=f"restored {counted(len(restored.paths), 'file')}"),)


def _imports(job: CheckoutJob) -> str:
    if job.python is None:
        return ""
    return guard.import_failure(job.checkout, job.product, job.python, job.environ)
