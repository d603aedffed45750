"""Prepare in a checkout layout: fetch, choose the commit, build it aside so that it can be validated before the working tree moves.

The steps are the sealed ones; what differs: the install record is made on the fly, local edits stay in the working tree (the commit
stashes them), and nothing new means that HEAD is the target.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncGenerator
from functools import partial

import attrs

from nedura.clock import iso
from nedura.config import read_config
from nedura.errors import RecordMissing, UpdateError
from nedura.installs import CodeIdentity, InstallPaths
from nedura.locks import FileLock
from nedura.records import make_folder
from nedura.text import clean
from nedura.update.bounded import in_thread
from nedura.update.commit.merging import can_merge, cannot_merge
from nedura.update.commit.parking import refuse_old_git
from nedura.update.commit.rules import Situation, dispose, place
from nedura.update.commit.status import look_for_dirt, unmerged_work
from nedura.update.commit_point import paths_of
from nedura.update.events import Notice, Prepared
from nedura.update.generation.build_checkout import wanted_builds
from nedura.update.generation.fork import choose_on_fork
from nedura.update.generation.generations import Manifest
from nedura.update.generation.kept import current_candidate
from nedura.update.generation.prepare import LOCK_TIMEOUT, Work, build_aside, fetch_again, open_work
from nedura.update.generation.record import InstallRecord, own_branch, read_record, write_record
from nedura.update.generation.renew import on_whole_objects
from nedura.update.generation.tree import list_tree
from nedura.update.run import Run
from nedura.update.source.edit_merge import Merge, merge_edits
from nedura.update.source.edits import Edits
from nedura.update.source.git import find_git
from nedura.update.source.owner_checkout import Source, read_source
from nedura.update.source.source_git import SourceGit, SourceGitError
from nedura.update.source.unfinished import has_operation, unfinished_text
from nedura.wire import Event

__all__ = ["prepare_checkout"]


async def prepare_checkout(run: Run) -> AsyncGenerator[Event, None]:
    """Build the target of a checkout aside; the last event is `Prepared`.

    Args:
        run: the update; `install` and `checkout` are set.

    Raises:
        UpdateError: a step failed; nothing was touched.
        StoreError: a record of ours cannot be used.
    """
    paths = paths_of(run)
    source = await in_thread(_record, run, paths)
    lock = FileLock(paths.lock, f"The install {paths.install_id}")
    await lock.acquire_async(LOCK_TIMEOUT)
    try:
        work = await in_thread(open_work, run, paths)
        work.manifest = Manifest(identity=CodeIdentity(code_sha=source.head), branch=work.record.branch)
        events = _prepare(run, work, source)
        try:
            async for event in events:
                yield event
        finally:
            await events.aclose()
    finally:
        lock.release()


def _record(run: Run, paths: InstallPaths) -> Source:
    """The checkout as it is; its first update writes the install record."""
    if run.checkout is None:
        raise UpdateError("There is no checkout here to update.", stop_class="no_install")
    source = read_source(run.checkout, find_git(run.environ), run.environ)
    packages = package_folders()
    try:
        known = read_record(paths)
    except RecordMissing:
        known = None
    if known is not None and known.layout != "zip":
        if (known.python, known.packages) != (sys.executable, packages):
            write_record(paths, attrs.evolve(known, python=sys.executable, packages=packages))
    else:  # the first update, or the folder was an unpacked release before
        make_folder(paths.folder)
        make_folder(paths.generations)
        record = InstallRecord(
            install_id=paths.install_id,
            source=str(source.checkout),
            remote_url=source.remote_url or str(source.checkout),
            remote_name=source.remote_name,
            branch=own_branch(source),
            layout="checkout",
            command=run.product.command,
            created=iso(run.clock.time()),
            python=sys.executable,
            environment="none",  # a checkout runs in the environment that its owner keeps
            packages=packages,
        )
        write_record(paths, record)
    return source


def package_folders() -> tuple[str, ...]:
    """Folders of third-party packages that the running process sees: the environment that a checkout's owner keeps."""
    kinds = ("site-packages", "dist-packages")
    return tuple(
        dict.fromkeys(
            place for place in sys.path if os.path.basename(place) in kinds and os.path.isdir(place)
        )
    )


async def _prepare(run: Run, work: Work, source: Source) -> AsyncGenerator[Event, None]:
    chosen = choose_on_fork(work)
    try:
        async for event in chosen:
            yield event
    finally:
        await chosen.aclose()
    assert work.target is not None
    begun = has_operation(source.git_dir)
    if begun and work.target.commit != source.head:
        raise UpdateError(
            f"{begun[0].upper()}{begun[1:]} is not finished in {clean(str(source.checkout), 200)}.",
            stop_class="local_changes_blocked",
            advice="Finish it or abort it, then try again.",
        )
    if begun:
        yield Notice(text=unfinished_text(begun, clean(str(source.checkout), 200)), warning=True)
    run.notes.setdefault("for_completion", {})["builds"] = wanted_builds(
        run.product.builds, source.checkout, run.root_home, paths_of(run).folder
    )
    run.notes["target_branch"] = work.choice.branch  # empty for a release: it is checked out detached
    if work.target.commit == source.head:
        if not work.target.ahead:
            run.notes["at_tip"] = source.head
        yield Prepared(candidate=current_candidate(run), changed=False, commits=0)
        return
    await in_thread(_check_edits, run, source)
    built = on_whole_objects(work, _build, fetch_again)
    try:
        async for event in built:
            yield _as_checkout(event, work.target.commit) if isinstance(event, Prepared) else event
    finally:
        await built.aclose()
    yield Notice(text="The working tree moves only after this version was validated aside.")


async def _build(work: Work) -> AsyncGenerator[Event, None]:
    """The chosen commit aside; local edits are no part of it, they are put on top of the moved tree."""
    assert work.target is not None
    work.merge = await in_thread(_tree_to_check, work)
    built = build_aside(work)
    try:
        async for event in built:
            yield event
    finally:
        await built.aclose()


def _tree_to_check(work: Work) -> Merge:
    """What will run: the target, or its merge into a parked branch that is updated in place (facts/update.md 5.2 steps 13 and 18).

    The merge is made in our repository; the commit makes it again in the checkout and compares.

    Raises:
        UpdateError: the merge conflicts, or the checkout cannot be read.
    """
    assert work.target is not None
    run, source, target, followed = work.run, work.source, work.target.commit, work.choice.branch
    plain = partial(merge_edits, work.git, Edits(base="", tree=""), target, work.paths.folder)
    config = read_config(run.root_home)
    in_place = config.text("updates.parked_branch_strategy", "switch") == "update_in_place"
    if (
        run.options.rollback is not None
        or not in_place
        or run.options.switch_branch
        or not followed
        or source is None
        or not source.branch
    ):
        return plain()
    git = SourceGit(find_git(run.environ), source.checkout, source.git_dir, run.environ)
    at = Situation(
        branch=source.branch,
        target_branch=followed,
        dirty=bool(look_for_dirt(git).edits),
        unmerged_work=unmerged_work(work.git, source.head, target),
        strategy="update_in_place",
        auto_switch=config.flag("updates.auto_switch_parked_branch", True),
    )
    if place(at).action != "merge":
        return plain()
    answer = work.git.run(
        "merge-tree",
        "--write-tree",
        "-z",
        "--name-only",
        "--no-messages",
        source.head,
        target,
        ok=(0, 1, 129),
    )
    if answer.code == 1:
        raise cannot_merge(followed, source.branch)
    if answer.code != 0:
        return plain()  # an old git: the commit says so
    tree = answer.text.partition("\0")[0]
    try:
        list_tree(work.git, tree, run.product.roots)
    except UpdateError as error:
        if error.stop_class == "broken_objects":
            raise
        return plain()  # the owner's own files may break a rule of generations in a checkout; the commit says what was not checked
    return Merge(tree=tree)


def _check_edits(run: Run, source: Source) -> None:
    """Whether edits could come back is known before anything is built.

    Raises:
        UpdateError: git is too old for it.
    """
    setting = read_config(run.root_home).text("updates.non_interactive_local_changes", "stash")
    if (
        dispose(keep_stash=run.options.keep_stash, setting=setting, interactive=run.ask is not None)
        != "restore"
    ):
        return
    if not source.head:
        return  # the commit says what is wrong with it
    git = SourceGit(find_git(run.environ), source.checkout, source.git_dir, run.environ)
    try:
        if not can_merge(git):
            refuse_old_git(git, len(look_for_dirt(git).edits))
    except SourceGitError as error:
        raise UpdateError(
            f"{error}.", stop_class="checkout_move_failed", advice="Nothing was moved."
        ) from error


def _as_checkout(event: Prepared, commit: str) -> Prepared:
    """The generation aside is where it is validated; what will run is the working tree at this commit."""
    identity = attrs.evolve(event.candidate.identity, generation="", code_sha=commit)
    candidate = attrs.evolve(event.candidate, layout="checkout", identity=identity, target=commit)
    return attrs.evolve(event, candidate=candidate)
