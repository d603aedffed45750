"""The checkout and zip commits as stages of an update: what the run knows, put into their jobs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from functools import partial
from pathlib import Path

import attrs

from nedura.config import read_config
from nedura.errors import StoreError, UpdateError
from nedura.homes import profile_name
from nedura.installs import RELEASE, InstallPaths
from nedura.text import clean
from nedura.update.commit.aim import leave_parked_branch
from nedura.update.commit.checkout import CheckoutJob, move_checkout
from nedura.update.commit.gitlocks import check_writable
from nedura.update.commit.status import has_operation, look_for_dirt
from nedura.update.commit.waiting import bring_back, remind
from nedura.update.commit.zip import ZipJob, move_zip
from nedura.update.commit_point import debt_of, owed_inventory, paths_of
from nedura.update.events import Committed, Notice
from nedura.update.generation.fork import push_back
from nedura.update.generation.prepare_zip import TREE_NOTE, drop_archives, keep_archive, live_tree
from nedura.update.run import Candidate, Run
from nedura.update.source.git import Git, find_git
from nedura.update.source.owner_checkout import Source, read_source
from nedura.update.source.release import read_note
from nedura.update.source.source_git import SourceGit, SourceGitError
from nedura.wire import Event

__all__ = [
    "commit_checkout",
    "commit_zip",
    "count_edits",
    "files_of_version",
    "preflight_checkout",
    "waiting_edits",
]


def _source(run: Run) -> Source:
    """The run's checkout."""
    if run.checkout is None:
        raise UpdateError("There is no checkout to move.", stop_class="no_install")
    return read_source(run.checkout, find_git(run.environ), run.environ)


def _runner(run: Run, source: Source) -> SourceGit:
    return SourceGit(find_git(run.environ), source.checkout, source.git_dir, run.environ)


def _known(run: Run) -> tuple[InstallPaths, Candidate]:
    if run.install is None or run.candidate is None:
        raise UpdateError("Nothing was prepared.", stop_class="internal")
    return run.install, run.candidate


def preflight_checkout(run: Run) -> None:
    """Refuse before any backup when git could not write in the checkout (case C038). Blocks the thread.

    Raises:
        RefusedError: names the paths and the one command that mends them.
    """
    if run.layout == "checkout" and run.checkout is not None:
        source = _source(run)
        check_writable(source.checkout, source.git_dir, source.common_dir)


def count_edits(run: Run) -> int:
    """How many files of the checkout somebody edited; added ones stay where they are. Blocks the thread.

    Raises:
        UpdateError: git cannot say.
    """
    try:
        dirt = look_for_dirt(_runner(run, _source(run)))
    except SourceGitError as error:
        raise UpdateError(
            f"The checkout's status cannot be read: {error.reason}.", stop_class="git"
        ) from error
    return len(dirt.edits)


def files_of_version(run: Run) -> frozenset[str] | None:
    """Paths of the version that the working tree is at, without what somebody added; None when nobody can tell. Blocks the thread."""
    if run.layout != "checkout" or run.checkout is None:
        note = None if run.checkout is None else read_note(run.checkout)
        return None if note is None else frozenset(note.files)
    try:
        listed = _runner(run, _source(run)).run("ls-tree", "-r", "-z", "--name-only", "--full-tree", "HEAD")
    except SourceGitError:  # the move itself asks git next, and says what is wrong
        return None
    return frozenset(listed.items)


def waiting_edits(run: Run) -> list[Event]:
    """For a run with nothing to fetch: what an interrupted one parked comes back, and what still waits is named (case C021).

    Then a parked branch that is fully merged is left for the followed one. Blocks the thread.

    Raises:
        StoreError: the record of parked edits cannot be written.
    """
    if run.layout != "checkout" or run.checkout is None:
        return []
    git = _runner(run, _source(run))
    begun = has_operation(Path(git.git_dir))
    told = [] if begun else bring_back(git)
    owed = remind(git)
    told += [] if owed is None else [owed]
    return told if begun else [*told, *_left_branch(run, git)]


def _left_branch(run: Run, git: SourceGit) -> tuple[Event, ...]:
    tip, branch = str(run.notes.get("at_tip", "")), str(run.notes.get("target_branch", ""))
    if not tip or not branch:
        return ()
    auto_switch = read_config(run.root_home).flag("updates.auto_switch_parked_branch", True)
    try:
        return leave_parked_branch(git, tip, branch, auto_switch=auto_switch)
    except SourceGitError as error:  # the code is current all the same
        return (Notice(text=f"The checkout stays on its branch: {error.reason}", warning=True),)


def _job(run: Run) -> CheckoutJob:
    paths, candidate = _known(run)
    source, config = _source(run), read_config(run.root_home)
    options, repo = run.options, paths.repo
    in_place = (
        config.text("updates.parked_branch_strategy", "switch") == "update_in_place"
        and not options.switch_branch
    )
    return CheckoutJob(
        git=_runner(run, source),
        common_dir=source.common_dir,
        target=candidate.target,
        target_branch=str(run.notes.get("target_branch", options.branch or source.remote_branch or "main")),
        now=run.clock.time(),
        repo=Git(program=find_git(run.environ), repo=repo, environ=run.environ)
        if (repo / "HEAD").is_file()
        else None,
        product=run.product,
        home=run.root_home,
        python=candidate.python,
        before=run.before,
        after=attrs.evolve(candidate.identity, generation="", code_sha=candidate.target),
        strategy="update_in_place" if in_place else "switch",
        auto_switch=config.flag("updates.auto_switch_parked_branch", True),
        keep_stash=options.keep_stash,
        interactive=run.ask is not None,
        local_changes=config.text("updates.non_interactive_local_changes", "stash"),
        environ=run.environ,
        arrived=partial(_arrived, run),
    )


def _arrived(run: Run, commit: str) -> None:
    """A merge into a parked branch is a commit of its own: that one runs, and members are held against it."""
    if run.candidate is not None and commit != run.candidate.target:
        identity = attrs.evolve(run.candidate.identity, code_sha=commit, tree_hash="")
        run.candidate = attrs.evolve(run.candidate, identity=identity, target=commit)


def _owe_merge(run: Run) -> None:
    """The restart record named what was prepared; from now on the merge."""
    assert run.candidate is not None
    debt_of(run).arm(
        now=run.clock.time(),
        owner=run.run_id,
        expected=run.candidate.identity,
        inventory=owed_inventory(run),
        profile=profile_name(run.home, run.root_home),
    )


async def commit_checkout(run: Run) -> AsyncGenerator[Event, None]:
    """Move the working tree to the candidate's commit. `Committed` comes as soon as the move is proven; the edits' fate follows it.

    Raises:
        UpdateError, RefusedError: nothing has moved, or everything was put back.
    """
    job = await asyncio.to_thread(_job, run)
    events, moved = move_checkout(job), False
    try:
        async for event in events:
            moved = moved or isinstance(event, Committed)
            yield event
            if isinstance(event, Committed) and event.now.code_sha != job.target:
                try:
                    await asyncio.to_thread(_owe_merge, run)
                except StoreError as error:  # the record that stands owes the restart as well
                    yield Notice(
                        text=f"The restart record names another commit: {error.message}", warning=True
                    )
    finally:
        await events.aclose()
    if not moved:
        return
    pushed = push_back(run)
    try:
        async for event in pushed:
            yield event
    finally:
        await pushed.aclose()


async def commit_zip(run: Run) -> AsyncGenerator[Event, None]:
    """Swap a tree that has no git for the candidate's.

    Raises:
        UpdateError, StoreError: everything is as it was.
    """
    if run.candidate is None:
        raise UpdateError("Nothing was prepared.", stop_class="internal")
    paths, live, tree = paths_of(run), live_tree(run), run.notes.get(TREE_NOTE)
    if not isinstance(tree, Path):
        raise UpdateError("There is no tree to swap in.", stop_class="internal")
    events = move_zip(
        ZipJob(
            tree=tree,
            live=live,
            record=live / RELEASE,
            before=run.before,
            after=run.candidate.identity,
            branch=str(run.notes.get("branch", "")),
        )
    )
    try:
        async for event in events:
            if isinstance(event, Committed):
                run.committed = True
            yield event
    finally:
        await events.aclose()
    try:
        await asyncio.to_thread(keep_archive, paths, run.candidate.target)
        await asyncio.to_thread(drop_archives, paths, run.before.code_sha, run.candidate.target)
    except OSError as error:  # the swap stands; the next update packs the tree itself
        yield Notice(text=f"The archive of this release was not kept: {clean(error, 200)}", warning=True)
