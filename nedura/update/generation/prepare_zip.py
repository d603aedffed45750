"""Prepare of an unpacked release: ask the index, download the archive, build its tree aside so that it is validated before the swap.

The steps are the sealed ones; what differs: the new tree comes from a judged archive, and what is kept for a way back is the archive.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Final

import attrs

from nedura.clock import iso
from nedura.errors import RecordMissing, StoreError, UpdateError
from nedura.installs import InstallPaths
from nedura.locks import FileLock
from nedura.records import make_folder
from nedura.text import clean, redact
from nedura.update.bounded import in_thread
from nedura.update.commit.zip_rules import Fault, fault_of
from nedura.update.commit.zip_tree import STOP_CLASS, local_work
from nedura.update.commit_point import paths_of
from nedura.update.events import Notice, Prepared, Progress, StepDone
from nedura.update.generation.build_checkout import wanted_builds
from nedura.update.generation.durable import remove_tree
from nedura.update.generation.kept import current_candidate
from nedura.update.generation.prepare import LOCK_TIMEOUT, build_aside, open_work
from nedura.update.generation.prepare_checkout import package_folders
from nedura.update.generation.record import InstallRecord, read_record, write_record
from nedura.update.prompt import said_yes
from nedura.update.run import Run
from nedura.update.source.edit_merge import merge_edits
from nedura.update.source.edits import Edits
from nedura.update.source.release import Note, Offer, archive_remote, is_downgrade, pack_release, read_note
from nedura.update.source.release_fetch import ask_index, download
from nedura.update.source.release_tree import import_tree, open_release
from nedura.update.source.target import Target
from nedura.update.source.urls import Remote
from nedura.wire import Event

__all__ = ["STAGE", "TREE_NOTE", "drop_archives", "keep_archive", "kept_archive", "live_tree", "prepare_zip"]

STAGE: Final = "release"
"""Folder of the install that a release is downloaded to and unpacked in. It goes with the end of every run (`nedura.update.real.tidy`)."""
ARCHIVE: Final = "release.zip"
"""Name of the download in there."""
TREE_NOTE: Final = "release_tree"
"""Note of the run: the unpacked tree that the commit swaps in."""


def live_tree(run: Run) -> Path:
    """The tree that runs.

    Raises:
        UpdateError: there is none.
    """
    if run.checkout is None:
        raise UpdateError("There is no tree here to update.", stop_class="no_install")
    return run.checkout


def kept_archive(paths: InstallPaths, commit: str) -> Path:
    """Where the archive of a commit is kept."""
    return paths.folder / "releases" / f"{commit}.zip"


async def prepare_zip(run: Run) -> AsyncGenerator[Event, None]:
    """Build the newest release aside; the last event is `Prepared`. The note `target_commit` names a kept archive instead.

    Args:
        run: the update; `install` and `checkout` (the live tree) are set.

    Raises:
        UpdateError: a step failed, or the tree has edits; nothing was touched.
        StoreError: a record of ours cannot be used.
    """
    paths = paths_of(run)
    note, record = await in_thread(_record, run, paths)
    lock = FileLock(paths.lock, f"The install {paths.install_id}")
    await lock.acquire_async(LOCK_TIMEOUT)
    try:
        events = _prepare(run, note, record)
        try:
            async for event in events:
                yield event
        finally:
            await events.aclose()
    finally:
        lock.release()


def _record(run: Run, paths: InstallPaths) -> tuple[Note, InstallRecord]:
    """The live tree's note and the install's record; the first update makes the record, and pins the address."""
    tree = live_tree(run)
    note = read_note(tree)
    if note is None:
        raise UpdateError("This tree says nowhere what it is.", stop_class="no_git")
    try:
        known = read_record(paths)
    except RecordMissing:
        known = None
    if known is not None and known.layout == "zip":
        record = attrs.evolve(known, python=sys.executable, packages=package_folders())
    else:  # the first update, or the folder was a checkout before
        make_folder(paths.folder)
        make_folder(paths.generations)
        record = InstallRecord(
            install_id=paths.install_id,
            source=str(tree),
            remote_url=archive_remote(note.archive).url,
            branch="main",
            layout="zip",
            command=run.product.command,
            created=iso(run.clock.time()),
            environment="none",  # a release runs in the environment that its owner keeps
            python=sys.executable,
            packages=package_folders(),
        )
    write_record(paths, record)
    return note, record


async def _prepare(run: Run, note: Note, record: InstallRecord) -> AsyncGenerator[Event, None]:
    paths, remote = paths_of(run), archive_remote(record.remote_url)
    run.notes["branch"] = "release"
    run.notes.setdefault("for_completion", {})["builds"] = wanted_builds(
        run.product.builds, live_tree(run), run.root_home, paths.folder
    )
    if note.archive and note.archive != record.remote_url:
        named = clean(redact(note.archive), 160)
        if await _follows(run, note, remote):
            remote = archive_remote(note.archive)
            record = attrs.evolve(record, remote_url=remote.url)
            await in_thread(write_record, paths, record)
            yield StepDone(name="remote", detail=f"{remote.shown} from now on")
        else:
            yield Notice(
                text=f"The release names {named} for its updates. They still come from {remote.shown}, pinned at the first update.",
                warning=True,
            )
    fixed = str(run.notes.get("target_commit", ""))
    offer = Offer(commit=fixed, url="") if fixed else Offer(url="")
    if not fixed:
        yield Progress(stage="prepare", label="asking for the newest release")
        offer = await ask_index(remote, run.environ)
    if offer.commit == note.commit:
        yield Prepared(candidate=current_candidate(run), changed=False, commits=0)
        return
    if offer.commit:
        await in_thread(_judge, run, note, offer.version)
    stage = paths.folder / STAGE
    await in_thread(_clear, stage)
    archive = stage / ARCHIVE
    if fixed:
        archive = kept_archive(paths, fixed)
    else:
        yield Progress(stage="prepare", label="downloading the release")
        digest = await download(offer, remote, archive, run.environ)
        yield StepDone(name="fetch", detail=f"{remote.shown} {offer.version} sha256 {digest[:16]}")
    tree, new = await in_thread(open_release, archive, stage / "tree", offer, record.remote_url)
    if new.commit == note.commit:
        yield Prepared(candidate=current_candidate(run), changed=False, commits=0)
        return
    await in_thread(_judge, run, note, "" if fixed else new.version)
    await in_thread(_keep, paths, live_tree(run), note)
    events = _build(run, paths, tree, new)
    try:
        async for event in events:
            yield event
    finally:
        await events.aclose()


async def _follows(run: Run, note: Note, pinned: Remote) -> bool:
    """Whether the person who watches wants to follow another address from now on; nobody watches: no (threats.md 1)."""
    if run.ask is None or run.options.gateway_mode:
        return False
    named = archive_remote(note.archive).shown
    question = f"This release names {named} for its updates, and they came from {pinned.shown}. Follow the new one from now on?"
    return said_yes(await run.ask(question, "no"))


def _judge(run: Run, note: Note, version: str) -> None:
    """Refuse an older release, and a tree with edits: an archive cannot carry them (facts/update.md 5.3)."""
    if version and is_downgrade(version, note.version) and not run.options.allow_downgrade:
        raise UpdateError(
            f"The newest release on offer is {clean(version, 60)}, older than {clean(note.version, 60)}, which runs.",
            stop_class="downgrade",
            advice="If you mean it: --allow-downgrade, or --rollback.",
        )
    if (work := local_work(live_tree(run), note.files)) is not None:
        raise work


def _clear(stage: Path) -> None:
    """What an earlier run left goes; the folder is there and empty."""
    remove_tree(stage)
    make_folder(stage)


def _keep(paths: InstallPaths, live: Path, note: Note) -> None:
    """Keep the archive of what runs: the deliberate way back needs no network.

    Raises:
        UpdateError: the disk refused.
    """
    folder = make_folder(paths.folder / "releases")
    mine, partial = kept_archive(paths, note.commit), folder / ".partial.zip"
    try:
        if not mine.is_file():
            pack_release(live, note, partial)
            os.replace(partial, mine)
    except (OSError, StoreError) as error:
        partial.unlink(missing_ok=True)  # on a full disk the receipt needs the room
        cause = error if isinstance(error, OSError) else error.__cause__
        fault = fault_of(cause) if isinstance(cause, OSError) else Fault.OTHER
        raise UpdateError(
            f"The release cannot be kept for the way back: {clean(getattr(cause, 'strerror', error), 200)}.",
            stop_class=STOP_CLASS[fault],
            advice="Nothing was changed. Free some space." if fault is Fault.FULL else "Nothing was changed.",
        ) from error


def keep_archive(paths: InstallPaths, commit: str) -> None:
    """Keep the archive that was swapped in; one that failed before is not worth its room. Blocks.

    Raises:
        OSError: the disk refused; the next update packs the tree that runs instead.
    """
    download = paths.folder / STAGE / ARCHIVE
    if download.is_file():
        os.replace(download, kept_archive(paths, commit))


def drop_archives(paths: InstallPaths, *keep: str) -> None:
    """Drop the archives of every other commit. Blocks."""
    kept = {kept_archive(paths, commit) for commit in keep}
    for path in (paths.folder / "releases").glob("*.zip"):
        if path not in kept:
            path.unlink(missing_ok=True)


async def _build(run: Run, paths: InstallPaths, tree: Path, note: Note) -> AsyncGenerator[Event, None]:
    """Build the release aside as a generation, where it is validated; what will run is the live tree after the swap."""
    work = await in_thread(open_work, run, paths)
    commit = await in_thread(import_tree, work.git, tree, note.files, paths.folder)
    work.target = Target(commit=commit, name="release", states=note.commit)
    work.merge = await in_thread(merge_edits, work.git, Edits(base="", tree=""), commit, paths.folder)
    run.notes[TREE_NOTE] = tree
    run.notes["for_completion"]["builds_commit"] = commit
    built = build_aside(work)
    try:
        async for event in built:
            if isinstance(event, Prepared):
                candidate = event.candidate
                identity = attrs.evolve(candidate.identity, generation="")
                candidate = attrs.evolve(candidate, layout="zip", identity=identity, target=note.commit)
                yield attrs.evolve(event, candidate=candidate, commits=-1)
            else:
                yield event
    finally:
        await built.aclose()
    yield Notice(text="The live tree is swapped only after this version was validated aside.")
