"""Parking local edits of a checkout and bringing them back, by plumbing and by commit id.

Parking makes an ordinary stash entry, so that `git stash list` shows it and `git stash apply` understands it; files leave the tree only
after the entry is durable. Bringing back is a three-way merge of trees that touches no file until it is clean.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import attrs

from nedura.errors import UpdateError
from nedura.text import clean
from nedura.update.commit.merging import merge_onto
from nedura.update.source.index_note import at_the_index
from nedura.update.source.source_git import SourceGit, SourceGitError
from nedura.update.source.torn import Change, changed_paths, content_of, is_gits, stands, sync_paths

__all__ = [
    "PREFIX",
    "Parked",
    "Restored",
    "drop",
    "find_parked",
    "is_there",
    "restore",
    "save",
    "take_out",
    "undo_restore",
]

PREFIX: Final = "nedura-update-autostash-"


@attrs.frozen(kw_only=True)
class Parked:
    """A stash entry of ours.

    Attributes:
        commit: its commit id; entries are always found by it, never by position (case C058).
        name: its message.
        base: commit id that the edits were made on.
        paths: what it holds, when known.
    """

    commit: str
    name: str
    base: str = ""
    paths: tuple[str, ...] = ()

    @property
    def taken_at(self) -> float | None:
        """Unix seconds from its name."""
        stamp = self.name.rpartition(PREFIX)[2][:15]
        try:
            return datetime.strptime(stamp, "%Y%m%d-%H%M%S").replace(tzinfo=UTC).timestamp()
        except ValueError:
            return None


@attrs.frozen(kw_only=True)
class Restored:
    """How bringing edits back went.

    Attributes:
        paths: what was written.
        conflicts: paths that could not be merged; then nothing was written.
        unsafe: `path: reason` of restored code that does not compile; then nothing was written.
        unstaged: paths whose staged content, another than the file's, no longer fits; the entry alone holds it.
    """

    paths: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    unsafe: str = ""
    unstaged: tuple[str, ...] = ()


def _nul(paths: Iterable[str]) -> bytes:
    return b"".join(os.fsencode(path) + b"\0" for path in paths)


class _TempIndex:
    """A private index file below the git folder."""

    def __init__(self, git: SourceGit) -> None:
        self.path = Path(git.git_dir) / f"nedura-index-{secrets.token_hex(6)}"

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        for path in (self.path, self.path.with_name(self.path.name + ".lock")):
            path.unlink(missing_ok=True)


def save(
    git: SourceGit, edits: Sequence[str], untracked: Sequence[str], *, now: float, branch: str
) -> Parked:
    """Put edits into a stash entry; the tree stays as it is until `take_out`.

    Args:
        git: the checkout.
        edits: tracked paths.
        untracked: files that are in the way of the target.
        now: unix seconds.
        branch: for the entry's message.

    Raises:
        UpdateError: nothing was saved.
    """
    name = PREFIX + datetime.fromtimestamp(now, UTC).strftime("%Y%m%d-%H%M%S")
    head = git.text("rev-parse", "--verify", "HEAD^{commit}")
    try:
        commit = _stash_commit(
            git, head, edits, untracked, f"On {clean(branch, 80) or '(no branch)'}: {name}"
        )
        git.run("stash", "store", "-q", "-m", f"On {clean(branch, 80) or '(no branch)'}: {name}", commit)
    except SourceGitError as error:
        raise UpdateError(
            f"Local edits could not be parked: {error.reason}.",
            stop_class="local_changes_blocked",
            advice="Commit them.",
        ) from error
    if not any(entry.commit == commit for entry in find_parked(git)):
        raise UpdateError(
            "Local edits could not be parked.", stop_class="local_changes_blocked", advice="Commit them."
        )
    return Parked(commit=commit, name=name, base=head, paths=(*edits, *untracked))


def _stash_commit(
    git: SourceGit, head: str, edits: Sequence[str], untracked: Sequence[str], message: str
) -> str:
    index_tree = _index_tree(git, head)
    with _TempIndex(git) as index:
        git.run("read-tree", head, index=index)
        there = [path for path in edits if is_there(git.checkout, path)]
        gone = set(git.run("ls-files", "-z", index=index).items).intersection(set(edits).difference(there))
        git.run("update-index", "--add", "--remove", "-z", "--stdin", stdin=_nul(there), index=index)
        git.run("update-index", "--force-remove", "-z", "--stdin", stdin=_nul(sorted(gone)), index=index)
        tree = git.run("write-tree", index=index).text
    parents = ["-p", head, "-p", git.text("commit-tree", index_tree, "-p", head, "-m", f"index {message}")]
    if untracked:
        with _TempIndex(git) as index:
            git.run("update-index", "--add", "-z", "--stdin", stdin=_nul(untracked), index=index)
            others = git.run("write-tree", index=index).text
        parents += ["-p", git.text("commit-tree", others, "-m", f"untracked files {message}")]
    return git.text("commit-tree", tree, *parents, "-m", message)


def _index_tree(git: SourceGit, head: str) -> str:
    """Tree of what is staged; HEAD's where a half-done merge left entries that make no tree."""
    answer = git.run("write-tree", ok=(0, 128))
    return answer.text if answer.code == 0 else git.text("rev-parse", f"{head}^{{tree}}")


def take_out(git: SourceGit, edits: Sequence[str], untracked: Sequence[str]) -> None:
    """The tree as HEAD has it, at these paths alone. Only after `save`.

    Raises:
        SourceGitError, OSError: some of them could not leave; the rest did, and the entry holds all of them.
    """
    with at_the_index(git.git_dir):
        git.run("read-tree", "--reset", "HEAD")
    known = set(git.run("ls-files", "-z").items)
    first: OSError | None = None
    others = [*(path for path in edits if path not in known), *untracked]
    back = []
    for path in (*others, *(path for path in edits if path in known)):
        try:
            if path in known:
                _empty(git.checkout, path)
                back.append(path)
            else:
                _unlink(git.checkout, path)
        except OSError as error:  # the others leave all the same
            first = first or error
    write_paths(git, back)
    if first is not None:
        raise first


def _empty(checkout: str, path: str) -> None:
    """Remove the empty folders that stand where a file comes back; one that is not empty any more stops it.

    Raises:
        OSError: something was put there meanwhile.
    """
    full = os.path.join(checkout, path)
    if os.path.isdir(full) and not os.path.islink(full):
        for folder, _, _ in os.walk(full, topdown=False):
            os.rmdir(folder)


def write_paths(git: SourceGit, paths: Sequence[str], index: Path | None = None) -> None:
    """Write paths as the index has them, durably.

    Raises:
        SourceGitError: git failed.
    """
    with at_the_index(git.git_dir):
        if paths:
            git.run("checkout-index", "-f", "-u", "-q", "-z", "--stdin", stdin=_nul(paths), index=index)
            sync_paths(git.checkout, paths)
        git.run("update-index", "-q", "--refresh", ok=(0, 1))


def _unlink(checkout: str, path: str) -> None:
    full = Path(checkout, path)
    full.unlink(missing_ok=True)
    for folder in full.parents:
        if folder == Path(checkout):
            return
        try:
            folder.rmdir()
        except OSError:
            return


def find_parked(git: SourceGit) -> list[Parked]:
    """Our stash entries, newest first."""
    answer = git.run("log", "-g", "--format=%H%x00%gs%x00%P%x00", "refs/stash", "--", ok=(0, 128))
    fields = answer.out.decode("utf-8", "replace").replace("\n", "").split("\0")
    found = []
    for commit, message, parents in zip(fields[0::3], fields[1::3], fields[2::3], strict=False):
        if PREFIX in message:
            found.append(
                Parked(commit=commit, name=message[message.index(PREFIX) :], base=parents.split(" ")[0])
            )
    return found


def drop(git: SourceGit, parked: Parked) -> bool:
    """Remove an entry by its commit id; False when it is not there (then nothing is removed).

    Raises:
        SourceGitError: git failed.
    """
    listed = git.run("log", "-g", "--format=%H", "refs/stash", "--", ok=(0, 128)).text.splitlines()
    if parked.commit not in listed:
        return False
    place = listed.index(parked.commit)
    told = git.run("stash", "drop", f"stash@{{{place}}}").text
    if parked.commit not in told:  # somebody pushed between the two calls: put theirs back, and try no more
        other = told.rpartition("(")[2].rstrip(")")
        git.run("stash", "store", "-q", "-m", "put back by nedura", other)
        return False
    return True


def restore(git: SourceGit, parked: Parked, *, check: bool = True) -> Restored:
    """Merge an entry's edits onto HEAD; writes either all of them or nothing.

    Args:
        git: the checkout.
        parked: the entry.
        check: refuse restored code that does not compile. Not when edits go back to the very commit they were made on.

    Raises:
        SourceGitError: git failed before anything was written.
    """
    head = git.text("rev-parse", "--verify", "HEAD^{commit}")
    merged, conflicts = merge_onto(git, parked.base, head, f"{parked.commit}^{{tree}}")
    if merged is None:
        return Restored(conflicts=tuple(sorted({*conflicts, *_blocked(git, parked, ())})))
    changed, removed = _difference(git, head, merged)
    changes = changed_paths(git, head, merged)
    blocked = {*_blocked(git, parked, removed), *_others(git, changes, removed)}
    if blocked:
        return Restored(conflicts=tuple(sorted(blocked)))
    unsafe = _uncompilable(git, merged, changed) if check else ""
    if unsafe:
        return Restored(unsafe=unsafe)
    for path in removed:
        if is_there(git.checkout, path):
            _unlink(git.checkout, path)
    with _TempIndex(git) as index:
        git.run("read-tree", merged, index=index)
        write_paths(git, sorted(set(changed).difference(_back_already(git, changes))), index)
    unstaged = _restage(git, parked, head)
    return Restored(paths=(*changed, *removed, *_restore_untracked(git, parked)), unstaged=unstaged)


def _back_already(git: SourceGit, changes: Iterable[Change]) -> Iterator[str]:
    """Paths that hold what would be written: edits that never left, where the folder may be one that nobody can write in."""
    for path, old_mode, old, new_mode, new in changes:
        content = content_of(os.path.join(git.checkout, path))
        if new_mode and stands(git, Change(path, new_mode, new, old_mode, old), content):
            yield path


def _others(git: SourceGit, changes: Iterable[Change], removed: Sequence[str]) -> list[str]:
    """Paths that hold neither side of the merge, nor the beginning of one: somebody wrote there since, and it is not written over."""
    return [
        change.path
        for change in changes
        if (change.new_mode or is_there(git.checkout, change.path))
        and (
            not is_gits(git, change, content_of(os.path.join(git.checkout, change.path)))
            or _above(git.checkout, change.path).difference(removed)
        )
    ]


def _blocked(git: SourceGit, parked: Parked, removed: Sequence[str]) -> list[str]:
    """Parked untracked files whose place is taken by something that is not the very same, and that does not go itself."""
    files = _untracked(git, parked)
    if not files:
        return []
    known = {path: oid for oid, path in _listing(git, "HEAD")}
    going = set(removed)
    return [
        path
        for oid, path in files
        if _taken(git.checkout, path, going) and known.get(path) != oid and _content_id(git, path) != oid
    ]


def _content_id(git: SourceGit, path: str) -> str:
    """Blob id of what lies at a path now; empty when that is neither a file nor a link."""
    full = os.path.join(git.checkout, path)
    if os.path.islink(full):
        return git.run("hash-object", "--stdin", stdin=os.fsencode(os.readlink(full))).text
    if not os.path.isfile(full):
        return ""
    return git.run("hash-object", "--", path, ok=(0, 128)).text


def _taken(checkout: str, path: str, going: Collection[str] = ()) -> bool:
    """Whether something lies at a path, or where a folder above it must be, that is not about to go."""
    if _above(checkout, path).difference(going):
        return True
    full = os.path.join(checkout, path)
    if not os.path.isdir(full) or os.path.islink(full):
        return os.path.lexists(full) and path not in going
    inside = (os.path.join(folder, name) for folder, _, names in os.walk(full) for name in names)
    return not going or any(os.path.relpath(file, checkout) not in going for file in inside)


def _above(checkout: str, path: str) -> set[str]:
    """What is no folder among the folders of a path."""
    parts = path.split("/")
    above = ("/".join(parts[:count]) for count in range(1, len(parts)))
    return {name for name in above if _is_no_folder(os.path.join(checkout, name))}


def _is_no_folder(path: str) -> bool:
    return os.path.lexists(path) and (os.path.islink(path) or not os.path.isdir(path))


def is_there(checkout: str, path: str) -> bool:
    """Whether a path is in the tree itself, as something that is no folder: not behind a link, nor behind what is no folder."""
    return not _above(checkout, path) and _is_no_folder(os.path.join(checkout, path))


def _listing(git: SourceGit, tree: str) -> list[tuple[str, str]]:
    items = git.run("ls-tree", "-r", "-z", "--full-tree", tree).items
    return [(item.split("\t", 1)[0].split(" ")[2], item.split("\t", 1)[1]) for item in items]


def _untracked(git: SourceGit, parked: Parked) -> list[tuple[str, str]]:
    if git.run("rev-parse", "--verify", "-q", f"{parked.commit}^3", ok=(0, 1, 128)).code != 0:
        return []
    return _listing(git, f"{parked.commit}^3")


def _restore_untracked(git: SourceGit, parked: Parked) -> list[str]:
    paths = [path for _, path in _untracked(git, parked)]
    free = [path for path in paths if not _taken(git.checkout, path)]
    if free:
        with _TempIndex(git) as index:
            git.run("read-tree", f"{parked.commit}^3", index=index)
            write_paths(git, free, index)
    return free


def _difference(git: SourceGit, old: str, new: str) -> tuple[list[str], list[str]]:
    """Paths that a tree changes or adds, and paths that it lacks."""
    items = git.run("diff-tree", "-r", "-z", "--name-status", "--no-renames", old, new).items
    pairs = list(zip(items[0::2], items[1::2], strict=True))
    return [path for letter, path in pairs if letter != "D"], [
        path for letter, path in pairs if letter == "D"
    ]


def _uncompilable(git: SourceGit, tree: str, paths: Sequence[str]) -> str:
    for path in paths:
        if path.endswith(".py"):
            try:
                compile(git.run("cat-file", "blob", f"{tree}:{path}").out, path, "exec", dont_inherit=True)
            except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
                return f"{path}: {clean(error, 120)}"
    return ""


def _restage(git: SourceGit, parked: Parked, head: str) -> tuple[str, ...]:
    """What was staged is staged again, when that merges cleanly too; else it is an edit of the work tree.

    Returns:
        Paths whose staged content then is in the entry alone, because the file had another one.
    """
    staged = f"{parked.commit}^2^{{tree}}"
    if git.text("rev-parse", staged) == git.text("rev-parse", f"{parked.base}^{{tree}}"):
        return ()
    merged, _ = merge_onto(git, parked.base, head, staged)
    if merged is not None:
        with at_the_index(git.git_dir):
            git.run("read-tree", merged)
            git.run("update-index", "-q", "--refresh", ok=(0, 1))
        return ()
    mine = {path for paths in _difference(git, parked.base, staged) for path in paths}
    file = {path for paths in _difference(git, staged, f"{parked.commit}^{{tree}}") for path in paths}
    return tuple(sorted(mine & file))


def undo_restore(git: SourceGit, restored: Restored) -> None:
    """Take restored edits out again; the entry still holds them.

    Raises:
        SourceGitError: git failed.
    """
    with at_the_index(git.git_dir):
        git.run("read-tree", "--reset", "HEAD")
    known = set(git.run("ls-files", "-z").items)
    for path in restored.paths:
        if path not in known:
            _unlink(git.checkout, path)
    write_paths(git, [path for path in restored.paths if path in known])
