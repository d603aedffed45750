"""Where a move of a checkout goes, and what keeps the names that it takes away (facts/update.md 5.2 steps 13 and 18)."""

from __future__ import annotations

from nedura.errors import UpdateError
from nedura.text import clean
from nedura.update.commit.job import CheckoutJob, Progress
from nedura.update.commit.merging import cannot_merge
from nedura.update.commit.move import RESCUE_DAYS, Move, is_ancestor, merge_commit, rescue
from nedura.update.commit.rules import Placement, Situation, place
from nedura.update.commit.status import branch_elsewhere, current_branch, look_for_dirt, unmerged_work
from nedura.update.events import Notice, StepDone
from nedura.update.source.source_git import SourceGit
from nedura.wire import Event

__all__ = ["aim", "head_of", "leave_parked_branch"]


def aim(job: CheckoutJob, state: Progress) -> Move | None:
    """Decide where to go, and put what would lose its name under a ref. None when HEAD is there already."""
    head, branch = head_of(job)
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
    if placed.action != "merge" and not _is_validated(job, job.target):
        raise UpdateError(
            "The checkout was changed while this update was prepared: another tree was validated than would be moved to.",
            stop_class="checkout_move_failed",
            advice="Nothing was moved. Update again.",
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


def head_of(job: CheckoutJob) -> tuple[str, str]:
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


def _merged(job: CheckoutJob, state: Progress, head: str, branch: str) -> str:
    """Commit that merges the target into a parked branch; a tag keeps what the branch was."""
    if is_ancestor(job.git, job.target, head):
        return head
    made = merge_commit(
        job.git, head, job.target, f"Merge {job.target_branch} ({job.target[:12]}) into {branch}"
    )
    if made is None:
        raise cannot_merge(job.target_branch, branch)
    if not _is_validated(job, made):
        text = f"The merge into {clean(branch, 80)} is not the one that was validated: of this one only the start is known to compile."
        state.tell(Notice(text=text, warning=True))
    ref = rescue(job.git, head, "pre-update", branch, job.now)
    state.tell(Notice(text=f"What {branch} was is kept as {ref}."))
    return made


def _is_validated(job: CheckoutJob, commit: str) -> bool:
    """Whether a commit has the tree that was built and checked aside; nobody can tell of a candidate that states none."""
    return job.after.tree_hash in ("", job.git.text("rev-parse", "--verify", f"{commit}^{{tree}}"))


def _keep_names(job: CheckoutJob, state: Progress, head: str, branch: str, after: str, target: str) -> None:
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


def leave_parked_branch(
    git: SourceGit, head: str, target_branch: str, *, auto_switch: bool
) -> tuple[Event, ...]:
    """With nothing new: a parked branch without a commit of its own is left for the one that is followed (facts/update.md 5.4).

    Both are at the same commit then, so no file is written. It stays where a move would stay or lose a name: with edits, with the
    switch turned off, with commits on the followed branch that the remote lacks, or with that branch in another worktree.

    Args:
        git: the checkout.
        head: commit id of the remote's tip.
        target_branch: branch that is followed.
        auto_switch: `updates.auto_switch_parked_branch`.

    Raises:
        SourceGitError: git failed; at most the followed branch was brought to the tip.
    """
    branch = current_branch(git)
    if not branch or branch == target_branch or git.text("rev-parse", "--verify", "HEAD^{commit}") != head:
        return ()
    dirty = bool(look_for_dirt(git).edits)
    at = Situation(branch=branch, target_branch=target_branch, dirty=dirty, auto_switch=auto_switch)
    placed = place(at)
    ref = f"refs/heads/{target_branch}"
    tip = git.run("rev-parse", "--verify", "-q", f"{ref}^{{commit}}", ok=(0, 1)).text
    if placed.action != "switch" or branch_elsewhere(git, target_branch):
        return ()
    if tip and not is_ancestor(git, tip, head):
        return ()
    note = ("-m", f"nedura update: {head[:12]}")
    git.run("update-ref", *note, "--end-of-options", ref, head, tip or "0" * len(head))
    git.run("symbolic-ref", *note, "HEAD", ref)
    return (Notice(text=f"Checkout: {placed.reason}. Go back with: git checkout {clean(branch, 80)}"),)
