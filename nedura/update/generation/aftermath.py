"""After the commit of a sealed install: the owner's checkout follows where that touches no edit, and old generations go.

Nothing here is owed: what cannot be done now is said, and done by the next update.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Mapping
from pathlib import Path

from nedura.clock import Clock
from nedura.errors import NeduraError
from nedura.installs import InstallPaths
from nedura.locks import FileLock
from nedura.product import NEDURA
from nedura.text import clean
from nedura.update.bounded import in_thread
from nedura.update.commit.move import Move, bring_objects, move
from nedura.update.events import Notice, StepDone
from nedura.update.generation.generations import is_generation, list_generations, read_manifest
from nedura.update.generation.owner_whole import read_whole_source
from nedura.update.generation.pm import LOCK_TIMEOUT, collect_quietly
from nedura.update.generation.record import read_record
from nedura.update.planning.observe import declared_owner
from nedura.update.source.edit_rules import parse_raw_diff
from nedura.update.source.edits import read_edits
from nedura.update.source.git import find_git
from nedura.update.source.owner_checkout import Source
from nedura.update.source.repository import open_repository
from nedura.update.source.source_git import SourceGit, SourceGitError
from nedura.update.source.target import withdrawn_tips
from nedura.update.source.tidy import tidy
from nedura.update.source.unfinished import has_operation
from nedura.update.source.unused import drop_unused
from nedura.wire import Event

__all__ = ["after_commit", "follow_source"]


async def after_commit(
    paths: InstallPaths, clock: Clock, environ: Mapping[str, str]
) -> AsyncGenerator[Event, None]:
    """Fast-forward the source, collect, then pack our repository if that is worth it.

    Args:
        paths: the install.
        clock: time seam.
        environ: where children's variables come from.
    """
    try:
        yield StepDone(name="source", detail=await in_thread(follow_source, paths, environ))
    except (NeduraError, SourceGitError, OSError) as error:
        why = error.message if isinstance(error, NeduraError) else clean(error)
        yield Notice(text=f"The source checkout was left where it is: {why}")
    events = collect_quietly(paths, clock, environ)
    try:
        async for event in events:
            yield event
    finally:
        await events.aclose()
    try:
        done = await in_thread(_tidy, paths, clock.time(), environ)
    except (NeduraError, OSError) as error:
        why = error.message if isinstance(error, NeduraError) else clean(error)
        yield Notice(text=f"Our repository was not tidied to the end, the next update tries again: {why}")
        return
    if done:
        yield StepDone(name="repository", detail=done)


def _tidy(paths: InstallPaths, now: float, environ: Mapping[str, str]) -> str:
    lock = FileLock(paths.lock, f"The install {paths.install_id}")
    lock.acquire(LOCK_TIMEOUT)
    try:
        git = open_repository(paths, None, environ)
        return "; ".join(filter(None, (tidy(git), drop_unused(git, _held(paths), now))))
    finally:
        lock.release()


def _held(paths: InstallPaths) -> Iterator[str]:
    """Ids of the files of every generation on disk; carried edits among them are behind no ref."""
    for folder in list_generations(paths):
        if is_generation(folder):
            yield from (oid for _, oid in read_manifest(folder).files.values())


def follow_source(paths: InstallPaths, environ: Mapping[str, str]) -> str:
    """Bring the owner's checkout to the commit that runs, if that is a fast-forward that touches no edit. Blocks.

    Returns:
        what was done, or why it was left.

    Raises:
        NeduraError, SourceGitError: it cannot be looked at or moved; it is where it was.
    """
    record = read_record(paths)
    current = paths.pointed()
    if current is None or not Path(record.source).is_dir():
        return "left: the source is gone"
    target = read_manifest(current).identity.code_sha
    lock = FileLock(paths.lock, f"The install {paths.install_id}")
    lock.acquire(LOCK_TIMEOUT)
    try:
        program = find_git(environ)
        source = read_whole_source(Path(record.source), environ)
        why = _why_left(paths, source, record.branch, target, environ)
        if why:
            return why
        checkout = SourceGit(program, source.checkout, source.git_dir, environ)
        bring_objects(checkout, open_repository(paths, source, environ), target)
        move(checkout, Move(pre=source.head, target=target, branch=source.branch, was_branch=source.branch))
    finally:
        lock.release()
    return f"fast-forwarded to {target[:12]}"


def _why_left(
    paths: InstallPaths, source: Source, branch: str, target: str, environ: Mapping[str, str]
) -> str:
    """Why the source stays where it is; empty when it may follow."""
    if source.head == target:
        return "it is there already"
    if owner := declared_owner(source.checkout, NEDURA):
        return f"left: {owner}"
    if begun := has_operation(source.git_dir):
        return f"left: {begun} is not finished there"
    if not source.branch or source.branch != branch:
        return f"left: {source.branch or 'no branch'} is checked out, updates follow {branch or 'releases'}"
    git = open_repository(paths, source, environ)
    if git.run("merge-base", "--is-ancestor", source.head, target, ok=(0, 1, 128)).code != 0:
        if source.head in withdrawn_tips(git):
            return "left: the remote has withdrawn the commit that is checked out; git reset there follows it"
        ahead = git.run("merge-base", "--is-ancestor", target, source.head, ok=(0, 1, 128)).code == 0
        return "left: it is ahead of what runs now" if ahead else "left: it has commits of its own"
    inside = source.checkout == paths.root_home or source.checkout in paths.root_home.parents
    edits = read_edits(git, source, paths.folder, untracked=not inside)
    mine = {*edits.files, *(left.path for left in edits.left)}
    diff = git.run("diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-ext-diff", source.head, target)
    touched = sorted(mine & {change.path for change in parse_raw_diff(diff.out)})
    if touched:
        return f"left: the new version changes files that are edited there ({', '.join(clean(p, 60) for p in touched[:3])})"
    return ""
