"""Putting local work on top of a new commit: a three-way merge by content, in our repository, without drivers (decision 41).

Local work is what the checkout has beyond what it knew of its remote: its own commits and its edits. The base of the merge is given,
not found, so that commits which the remote has withdrawn never come back as somebody's own.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import attrs

from nedura.errors import UpdateError
from nedura.update.source.edit_content import unfit_changes, unfit_names
from nedura.update.source.edit_rules import Change, LeftOut, is_own, judge_change
from nedura.update.source.edits import Edits, blob_of, diff_trees
from nedura.update.source.git import Git, is_commit_id
from nedura.update.source.repository import PARKED
from nedura.update.source.target import withdrawn_tips

__all__ = ["Merge", "local_base", "merge_edits"]

_WHO: Final = {
    f"GIT_{role}_{what}": value
    for role in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "nedura"), ("EMAIL", "nedura@localhost"), ("DATE", "@0 +0000"))
}


@attrs.frozen(kw_only=True)
class Merge:
    """Local work on top of a new commit.

    Attributes:
        tree: tree id to build.
        carried: path -> blob id of the local work in it, empty for a deletion.
        parked: path -> blob id of what conflicts and was left out.
        left: what never travels, and why.
        commits: number of the checkout's own commits whose changes are among it.
        ref: ref in our repository that keeps all of it, when some is parked.
        commit: commit id behind that ref.
    """

    tree: str
    carried: Mapping[str, str] = attrs.field(factory=dict)
    parked: Mapping[str, str] = attrs.field(factory=dict)
    left: tuple[LeftOut, ...] = ()
    commits: int = 0
    ref: str = ""
    commit: str = ""


def local_base(git: Git, head: str, known: Iterable[str]) -> str:
    """The newest commit of a checkout that is not its own: where it meets what is known of the remote.

    Args:
        git: our repository.
        head: commit id that is checked out.
        known: commit ids that the remote has or had.
    """
    meets = []
    for commit in dict.fromkeys(known):
        answer = git.run("merge-base", head, commit, ok=range(256))
        if answer.code == 0 and is_commit_id(answer.text):
            meets.append(answer.text)
    if not meets:
        return head
    answer = git.run("merge-base", "--independent", *dict.fromkeys(meets), ok=range(256))
    found = answer.text.splitlines()
    return found[0] if answer.code == 0 and found else meets[0]


def merge_edits(git: Git, edits: Edits, target: str, scratch: Path, known: Sequence[str] = ()) -> Merge:
    """Put local work on top of a commit; what conflicts is left out and kept behind a ref.

    Args:
        git: our repository.
        edits: from `read_edits`.
        target: commit id to build.
        scratch: folder for temporary files.
        known: commit ids that the remote had before.

    Raises:
        UpdateError: git failed, or is older than 2.38.
    """
    if edits.base == target and not edits.files:
        return Merge(tree=edits.tree)  # nothing is new and nothing is anybody's own: no merge to think about
    plain = git.line("rev-parse", "--verify", f"{target}^{{tree}}")
    if not edits.base:
        return Merge(tree=plain)
    known = (*known, *withdrawn_tips(git))
    if edits.base in known and not edits.files:
        return Merge(tree=plain)
    base = local_base(git, edits.base, (*known, target))
    work = diff_trees(git, base, edits.tree)
    work = [change for change in work if not is_own(change.path)]
    unfit = unfit_names(git, target, work) | unfit_changes(git, work)
    unfit |= {change.path: why for change in work if (why := judge_change(change))}
    travelling = [change for change in work if change.path not in unfit]
    left = tuple(LeftOut(path=path, reason=why) for path, why in unfit.items())
    if not travelling:
        return Merge(tree=plain, left=left)
    commits = _own_commits(git, base, edits.base)
    tree, conflicts = _merge(git, base, travelling, target, scratch)
    if not conflicts:
        return Merge(tree=tree, carried=_carried(git, target, tree), left=left, commits=commits)
    kept = [change for change in travelling if not _touches(change.path, conflicts)]
    tree, again = _merge(git, base, kept, target, scratch) if kept else (plain, set())
    if again:
        kept, tree = [], plain
    names = {change.path for change in kept}
    parked = {change.path: blob_of(change) for change in travelling if change.path not in names}
    commit = git.line("commit-tree", edits.tree, "-p", edits.base, "-m", "local work", extra=_WHO)
    ref = f"{PARKED}{edits.tree[:12]}"
    git.run("update-ref", ref, commit)
    carried = _carried(git, target, tree)
    return Merge(
        tree=tree, carried=carried, parked=parked, left=left, commits=commits, ref=ref, commit=commit
    )


def _own_commits(git: Git, base: str, head: str) -> int:
    if base == head:
        return 0
    answer = git.run("rev-list", "--count", f"{base}..{head}", ok=range(256))
    return int(answer.text) if answer.code == 0 and answer.text.isdigit() else 1


def _touches(path: str, conflicts: set[str]) -> bool:
    """Whether a change takes part in a conflict: the path itself, a file in its way, or one below it."""
    return any(
        path == c or path.startswith(f"{c}/") or c.startswith((f"{path}/", f"{path}~")) for c in conflicts
    )


def _carried(git: Git, target: str, tree: str) -> dict[str, str]:
    return {change.path: blob_of(change) for change in diff_trees(git, target, tree)}


def _merge(git: Git, base: str, work: Sequence[Change], target: str, scratch: Path) -> tuple[str, set[str]]:
    """(tree id, conflicted paths) of work on top of a commit, with the given base; touches no index and no file of anybody."""
    ours = _tree_with(git, base, work, scratch)
    root = git.line("commit-tree", f"{base}^{{tree}}", "-m", "base", extra=_WHO)
    mine = git.line("commit-tree", ours, "-p", root, "-m", "local work", extra=_WHO)
    theirs = git.line("commit-tree", f"{target}^{{tree}}", "-p", root, "-m", "target", extra=_WHO)
    answer = git.run(
        "-c", "merge.renames=false", "merge-tree", "--write-tree", "-z", "--name-only", "--no-messages",
        theirs, mine, ok=range(256),
    )  # fmt: skip
    fields = answer.out.decode("utf-8", "surrogateescape").split("\0")
    if answer.code not in (0, 1) or not is_commit_id(fields[0]):
        raise UpdateError(
            f"Local edits cannot be merged: {answer.first_error}",
            stop_class="local_changes_blocked",
            advice="git 2.38 or newer is needed to carry local edits.",
        )
    return fields[0], {path for path in fields[1:] if path} if answer.code == 1 else set()


def _tree_with(git: Git, base: str, work: Sequence[Change], scratch: Path) -> str:
    """Tree id of a commit's tree with some changes."""
    index = scratch / f".tmp.edits.{secrets.token_hex(6)}"
    lines = [f"{c.new_mode if c.new_mode != '000000' else '0'} {c.new}\t{c.path}\0" for c in work]
    data = "".join(lines).encode("utf-8", "surrogateescape")
    try:
        git.run("read-tree", base, index=index)
        git.run("update-index", "-z", "--index-info", index=index, stdin=data)
        return git.line("write-tree", index=index)
    finally:
        for leftover in (index, index.with_name(f"{index.name}.lock")):
            leftover.unlink(missing_ok=True)
