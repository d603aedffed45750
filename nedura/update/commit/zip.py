"""Commit of a tree that has no git: from a judged archive, with the safety rules of facts/update.md 5.3, on any platform."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs

from nedura.errors import RecordMissing, StoreError, UpdateError
from nedura.installs import MAX_NOTE, RELEASE, CodeIdentity
from nedura.records import make_folder, read_json, write_json
from nedura.text import clean
from nedura.update.bounded import to_the_end
from nedura.update.commit import guard
from nedura.update.commit.zip_swap import recover_swap, swap_tree
from nedura.update.commit.zip_tree import gone_entries, local_work, name_fault, tree_hashes
from nedura.update.events import Committed, StepDone
from nedura.update.source.release import windows_problem
from nedura.update.state.archive import Entry, Limits, UnsafeArchive, extract, judge, open_archive
from nedura.wire import Event

__all__ = ["RELEASE_LIMITS", "ZipJob", "move_zip", "unpack_release"]

RELEASE_LIMITS: Final = Limits(members=50_000, size=1024**3)
EXPECTED: Final = "pyproject.toml"


@attrs.frozen(kw_only=True)
class ZipJob:
    """What a swap needs to know.

    Attributes:
        tree: the new tree, unpacked and validated.
        live: the live tree.
        record: file that keeps the hashes of what was installed: the release's own note, or a file beside the install's other records.
        before, after: identities.
        branch: what it was updated against.
    """

    tree: Path
    live: Path
    record: Path
    before: CodeIdentity = attrs.field(factory=CodeIdentity)
    after: CodeIdentity = attrs.field(factory=CodeIdentity)
    branch: str = ""


def unpack_release(
    archive: Path, stage: Path, *, expected: str = EXPECTED, limits: Limits = RELEASE_LIMITS
) -> Path:
    """Unpack a release archive below a new folder; returns the tree inside (archives have one top folder).

    Everything is judged before the first byte is written: an empty or unsafe archive is called that (case C068). What of it was
    unpacked before it failed is the caller's to remove. Blocks the thread.

    Raises:
        UnsafeArchive: empty, unsafe, or not a tree of this product.
    """
    try:
        with open_archive(archive) as opened:
            entries = judge(opened, limits)
            for entry in entries:
                if problem := windows_problem(entry.path):
                    raise UnsafeArchive(f"'{clean(entry.path, 120)}' in the archive {problem}.")
            top = _top(entries, expected)
            _refuse_reserved(entries, top)
            extract(opened, entries, stage, limits)
    except OSError as error:
        raise UnsafeArchive(
            f"The archive cannot be unpacked: {error.strerror}.", advice="Free some space."
        ) from error
    return stage / top if top else stage


def _top(entries: tuple[Entry, ...], expected: str) -> str:
    paths = {entry.path for entry in entries}
    if expected in paths:
        return ""
    tops = {path.split("/", 1)[0] for path in paths}
    if len(tops) == 1 and f"{next(iter(tops))}/{expected}" in paths:
        return next(iter(tops))
    raise UnsafeArchive(f"The archive has no {clean(expected, 60)}: it is no release of this product.")


def _refuse_reserved(entries: tuple[Entry, ...], top: str) -> None:
    """No archive brings what the updater itself writes into a live tree, nor what some system takes for the owner's."""
    for entry in entries:
        path = entry.path.removeprefix(f"{top}/") if top else entry.path
        if problem := name_fault(path):
            raise UnsafeArchive(f"'{clean(path, 120)}' in the archive {problem}.")


def _installed(record: Path) -> Mapping[str, str] | None:
    """Hashes of what was installed; None when nobody recorded them."""
    try:
        content: Any = read_json(record, MAX_NOTE)
    except RecordMissing:
        return None
    files = content.get("files") if isinstance(content, dict) else None
    if not isinstance(files, dict):
        raise StoreError(f"{clean(str(record), 300)} makes no sense.")
    return {str(path): str(digest) for path, digest in files.items()}


async def move_zip(job: ZipJob) -> AsyncGenerator[Event, None]:
    """Swap a live tree; the last event is `Committed`.

    Raises:
        UpdateError: the tree has files of its owner's, or the swap failed; everything is as it was.
        StoreError: a record cannot be used; likewise.
    """
    recovered = await to_the_end(partial(_swap, job))
    if recovered != "none":
        yield StepDone(name="interrupted_swap", detail=recovered)
    yield Committed(before=job.before, now=job.after, branch=job.branch)


def _swap(job: ZipJob) -> str:
    recovered = recover_swap(job.live)
    if recovered == "busy":
        raise UpdateError("Another update is swapping this tree.", stop_class="lock_held")
    if (job.live / ".git").exists():
        raise UpdateError(
            "This tree has a .git: it is updated by git, not from an archive.",
            stop_class="checkout_move_failed",
        )
    installed = _installed(job.record)
    if installed is None:
        raise UpdateError(
            "Nobody recorded what was installed here, so files of yours could not be told from the product's.",
            stop_class="local_changes_blocked",
            advice="Install again from a checkout: ./run install",
        )
    if (work := local_work(job.live, installed)) is not None:
        raise work
    after = tree_hashes(job.tree)
    gone = gone_entries(job.live, installed, os.listdir(job.tree))
    note = job.tree / RELEASE
    if note.is_file():  # it travels with the swap, so that a tree and what is known of it never disagree
        write_json(note, {**read_json(note, MAX_NOTE), "files": after}, indent=None)
    swap_tree(job.tree, job.live, gone=gone, installed=installed, paths=after)
    if not note.is_file():
        make_folder(job.record.parent)
        write_json(job.record, {"schema": 1, "files": after})
    guard.drop_bytecode(job.live, after)
    return recovered
