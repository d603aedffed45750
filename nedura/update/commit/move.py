"""Moving a checkout to a commit: objects brought over, what would be lost put under a ref, one move by commit id, proven, or put back."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import attrs

from nedura.errors import UpdateError
from nedura.text import clean
from nedura.update.commit.merging import merge_commits
from nedura.update.commit.status import current_branch, ignored_in_the_way
from nedura.update.ledger.owner import myself
from nedura.update.source.git import Git
from nedura.update.source.move_marker import MoveMarker, drop_marker, lock_identity, write_marker
from nedura.update.source.source_git import SourceGit, SourceGitError
from nedura.update.source.torn import changed_paths, head_back, put_back, sync_paths

__all__ = [
    "RESCUE",
    "RESCUE_DAYS",
    "Move",
    "bring_objects",
    "expire_rescues",
    "is_ancestor",
    "merge_commit",
    "move",
    "rescue",
    "roll_back",
]

RESCUE: Final = "refs/nedura/rescue/"
RESCUE_DAYS: Final = 30


@attrs.frozen(kw_only=True)
class Move:
    """One move.

    Attributes:
        pre: commit id that HEAD has.
        target: commit id that HEAD gets.
        branch: branch that HEAD names afterwards, empty for a detached HEAD.
        was_branch: branch that HEAD names before, empty when detached.
        stash: commit id of the autostash, may be empty.
    """

    pre: str
    target: str
    branch: str
    was_branch: str
    stash: str = ""


def bring_objects(git: SourceGit, repo: Git, target: str) -> None:
    """Copy what the checkout's repository lacks of a commit from ours, without any transport.

    Raises:
        UpdateError, SourceGitError: it could not be copied; no file has moved.
    """
    if _has(git, target):
        return
    head = git.run("rev-parse", "--verify", "-q", "HEAD^{commit}", ok=(0, 1, 128)).text
    wanted = f"{target}\n" + (f"^{head}\n" if head else "")
    pack = repo.run(
        "pack-objects",
        "--revs",
        "--local",
        "--stdout",
        "--delta-base-offset",
        "-q",
        stdin=wanted.encode(),
        timeout=600,
    )
    git.run("index-pack", "--stdin", "--fix-thin", "--strict", stdin=pack.out, timeout=600)
    if not _has(git, target):
        raise UpdateError(
            "The new commit could not be copied into the checkout.", stop_class="checkout_move_failed"
        )


def _has(git: SourceGit, commit: str) -> bool:
    """Whether a commit and all that it needs is there (connectivity, not only the commit object)."""
    if git.run("cat-file", "-e", f"{commit}^{{commit}}", ok=(0, 1, 128)).code != 0:
        return False
    return git.run("rev-list", "--objects", "--quiet", commit, "--not", "HEAD", ok=(0, 128)).code == 0


def rescue(git: SourceGit, commit: str, why: str, branch: str, now: float) -> str:
    """Put a commit that a move would leave without a name under a ref; returns the ref.

    Raises:
        SourceGitError: it cannot be written; nothing may move.
    """
    stamp = datetime.fromtimestamp(now, UTC).strftime("%Y%m%d-%H%M%S")
    plain = "".join(ch if ch.isalnum() or ch in "-_" else "-" for ch in branch)[:60].strip("-") or "head"
    ref = f"{RESCUE}{stamp}-{why}-{plain}-{commit[:12]}"
    git.run(
        "update-ref",
        "--create-reflog",
        "-m",
        "nedura: kept before an update",
        "--end-of-options",
        ref,
        commit,
    )
    return ref


def expire_rescues(git: SourceGit, now: float) -> list[str]:
    """Remove rescue refs older than 30 days (#106692); returns their names."""
    gone = []
    for ref in git.run("for-each-ref", "--format=%(refname)", RESCUE).text.splitlines():
        try:
            taken = (
                datetime.strptime(ref.removeprefix(RESCUE)[:15], "%Y%m%d-%H%M%S")
                .replace(tzinfo=UTC)
                .timestamp()
            )
        except ValueError:
            continue
        if now - taken > RESCUE_DAYS * 86_400:
            git.run("update-ref", "-d", "--end-of-options", ref)
            gone.append(ref)
    return gone


def is_ancestor(git: SourceGit, old: str, new: str) -> bool:
    """Whether one commit is in the history of another."""
    return git.run("merge-base", "--is-ancestor", old, new, ok=(0, 1, 128)).code == 0


def merge_commit(git: SourceGit, ours: str, theirs: str, message: str) -> str | None:
    """A merge of two commits as a commit object, no file touched; None when it conflicts.

    Raises:
        SourceGitError: git cannot merge.
    """
    tree, _ = merge_commits(git, ours, theirs)
    return None if tree is None else git.text("commit-tree", tree, "-p", ours, "-p", theirs, "-m", message)


def _marker(git: SourceGit, step: Move, rollback: str = "") -> MoveMarker:
    me = myself()
    ref = step.was_branch if rollback else step.branch
    return MoveMarker(
        pid=me.pid,
        create_time=f"{me.create_time:.3f}",
        pre=step.pre,
        target=step.target,
        ref=f"refs/heads/{ref}" if ref else "",
        stash=step.stash,
        index_lock=lock_identity(git.git_dir),
        rollback=rollback,
        git=git.program,
    )


def move(git: SourceGit, step: Move) -> None:
    """Make the one move, under its marker. The marker goes only when HEAD is the target and the tree is durable and whole.

    Raises:
        UpdateError: nothing has moved, or everything was put back; if even that failed the marker stays for the next launch.
    """
    _refuse_overwriting(git, step)
    try:
        write_marker(
            git.git_dir, _marker(git, step)
        )  # before any git that locks the index: what it leaves when killed is ours
        _refresh(git)
    except (OSError, ValueError) as error:
        raise UpdateError(
            f"The move cannot be recorded: {error}.", stop_class="checkout_move_failed"
        ) from error
    try:
        _write_tree(git, step)
        _write_refs(git, step)
        _prove(git, step)
        drop_marker(git.git_dir)
    except (SourceGitError, UpdateError, OSError) as error:
        reason = error.reason if isinstance(error, SourceGitError) else str(error)
        _undo(git, step, reason)
        raise UpdateError(
            f"The checkout could not be moved: {reason}.",
            stop_class=_stop_class(reason),
            advice="It is back where it was.",
        ) from error


def _refuse_overwriting(git: SourceGit, step: Move) -> None:
    """Whoever moves a tree has parked what is in the way, or leaves the tree: git itself writes over ignored files without a word."""
    added = (change.path for change in changed_paths(git, step.pre, step.target) if not change.old_mode)
    found = ignored_in_the_way(git, added, untracked=True)
    if found:
        more = f" and {len(found) - 1} more" if len(found) > 1 else ""
        raise UpdateError(
            f"{clean(found[0], 120)}{more} is in the way of the new code, and git does not keep it.",
            stop_class="local_changes_blocked",
            advice="Move it away.",
        )


def _refresh(git: SourceGit) -> None:
    try:
        git.run("update-index", "-q", "--refresh", ok=(0, 1))
    except SourceGitError as error:
        drop_marker(git.git_dir)  # nothing has moved
        raise UpdateError(
            f"The checkout could not be moved: {error.reason}.", stop_class=_stop_class(error.reason)
        ) from error


def _stop_class(reason: str) -> str:
    if "index.lock" in reason or "Unable to create" in reason:
        return "git_index_locked"
    if "No space left" in reason or "Disk quota" in reason:
        return "disk_full"
    return "permission_denied" if "Permission denied" in reason else "checkout_move_failed"


def _write_tree(git: SourceGit, step: Move) -> None:
    """Index and files, two-way: a file that was edited meanwhile stops it before the first write."""
    git.run("read-tree", "-m", "-u", step.pre, step.target)
    sync_paths(git.checkout, [change.path for change in changed_paths(git, step.pre, step.target)])


def _write_refs(git: SourceGit, step: Move) -> None:
    """Compare-and-swap: a HEAD that somebody else moved meanwhile is theirs."""
    note = ("-m", f"nedura update: {step.target[:12]}")
    if not step.branch:
        git.run("update-ref", "--no-deref", *note, "HEAD", step.target, step.pre)
        return
    ref = f"refs/heads/{step.branch}"
    if step.branch == step.was_branch:
        git.run("update-ref", *note, "--end-of-options", ref, step.target, step.pre)
        return
    git.run("update-ref", *note, "--end-of-options", ref, step.target)
    git.run("symbolic-ref", *note, "HEAD", ref)


def _prove(git: SourceGit, step: Move) -> None:
    """HEAD is the target, on the right branch, and no tracked file differs."""
    head = git.text("rev-parse", "--verify", "HEAD^{commit}")
    branch = current_branch(git)
    if head == step.pre != step.target:
        raise UpdateError("the code did not move", stop_class="checkout_move_failed")
    if head != step.target or branch != step.branch:
        raise UpdateError(
            f"HEAD is {head[:12]} on {branch or 'no branch'}", stop_class="checkout_move_failed"
        )


def _undo(git: SourceGit, step: Move, reason: str) -> None:
    """Put everything back after a failed move; when that fails too the marker stays, and the next launch goes on."""
    try:
        lock = Path(git.git_dir, "index.lock")
        if lock.exists() and "index.lock" not in reason:
            lock.unlink()  # our own git is dead and left it; a lock that was there before is named in the reason
        head = git.text("rev-parse", "--verify", "HEAD^{commit}")
        if head in (step.pre, step.target):
            _back(git, step)
        else:
            put_back(
                git, head, step.target
            )  # somebody else moved HEAD meanwhile: the files follow it, the refs are theirs
        drop_marker(git.git_dir)
    except (SourceGitError, OSError) as error:
        raise UpdateError(
            f"The checkout could not be moved ({reason}) and not be put back ({error}).",
            stop_class="checkout_move_failed",
            advice="Free space or mend permissions; the next start puts it back.",
        ) from error


def _back(git: SourceGit, step: Move) -> None:
    """Files, then refs. Where no ref has moved yet the move's own marker already says all that the next launch must know."""
    head = git.text("rev-parse", "--verify", "HEAD^{commit}")
    branch = current_branch(git)
    if (head, branch) == (step.pre, step.was_branch):
        put_back(git, step.pre, step.target)
        return
    marker = _marker(git, step, "branch" if step.was_branch else "detach")
    write_marker(git.git_dir, marker)
    put_back(git, step.pre, step.target)
    head_back(git, marker)


def roll_back(git: SourceGit, step: Move) -> None:
    """Undo a finished move: the whole update goes back to the commit and branch before it.

    Raises:
        UpdateError: it could not be put back; the marker stays for the next launch.
    """
    try:
        _back(git, step)
        drop_marker(git.git_dir)
    except (SourceGitError, OSError) as error:
        raise UpdateError(
            f"The checkout could not be rolled back: {error}.", stop_class="checkout_move_failed"
        ) from error
