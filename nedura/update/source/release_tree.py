"""From an archive to a judged tree, and from that tree to objects of our own repository. Blocks the thread."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from nedura.errors import UpdateError
from nedura.installs import RELEASE
from nedura.records import write_json
from nedura.text import clean
from nedura.update.commit.zip import unpack_release
from nedura.update.commit.zip_tree import PRESERVED, tree_hashes
from nedura.update.generation.durable import remove_tree
from nedura.update.generation.generations import code_version
from nedura.update.source.git import Git, commit_id, is_commit_id
from nedura.update.source.release import Note, Offer, read_note
from nedura.update.state.archive import UnsafeArchive, open_archive

__all__ = ["import_tree", "open_release"]

_IDENTITY: Final = {
    f"GIT_{role}_{what}": value
    for role in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "nedura update"), ("EMAIL", "nedura@localhost"), ("DATE", "@1 +0000"))
}


def open_release(archive: Path, stage: Path, offer: Offer, address: str) -> tuple[Path, Note]:
    """Unpack an archive below a new folder and judge every file of it; returns the tree and its note.

    An archive without a note (a forge's own) must name its commit in its comment, and gets a note.

    Args:
        archive: the zip.
        stage: folder to make.
        offer: what the index said.
        address: where updates come from, for a note that is made.

    Raises:
        UpdateError: it is unsafe, no release, or not what its note or the index says; nothing of it is left.
    """
    try:
        tree = unpack_release(archive, stage)
        _drop_what_no_release_has(tree)
        note = _note(archive, tree, address)
        _compare(tree, note, offer)
    except BaseException as error:
        remove_tree(stage)  # at once: on a full disk the receipt needs the room
        if not isinstance(error, UnsafeArchive):
            raise
        cause = error.__cause__
        if isinstance(cause, OSError) and cause.errno is not None:  # the disk's fault, not the archive's
            full = cause.errno in (errno.ENOSPC, errno.EDQUOT)
            raise UpdateError(
                error.message, stop_class="disk_full" if full else "permission_denied", advice=error.advice
            ) from error
        raise UpdateError(
            error.message, stop_class="tree", advice="Nothing was changed. Tell whoever publishes it."
        ) from error
    return tree, note


def _drop_what_no_release_has(tree: Path) -> None:
    """Compiled code that nobody compiled here, and what belongs to the owner of the live tree."""
    for name in PRESERVED:
        place = tree / name
        if place.is_dir():
            remove_tree(place)
        else:
            place.unlink(missing_ok=True)
    for parent, folders, names in os.walk(tree):
        if "__pycache__" in folders:
            folders.remove("__pycache__")
            remove_tree(Path(parent, "__pycache__"))
        for name in names:
            if name.endswith((".pyc", ".pyo")):
                Path(parent, name).unlink()


def _note(archive: Path, tree: Path, address: str) -> Note:
    note = read_note(tree)
    if note is not None:
        return note
    with open_archive(archive) as opened:
        comment = opened.comment.decode("ascii", "replace").strip()
    version = code_version(tree)
    if not is_commit_id(comment) or not version:
        raise UpdateError(
            f"The archive says nowhere which {'version' if is_commit_id(comment) else 'commit'} it is.",
            stop_class="tree",
            advice="Nothing was changed. Tell whoever publishes it.",
        )
    note = Note(commit=comment, version=version, archive=address, files=tree_hashes(tree))
    write_json(tree / RELEASE, note.to_json(), indent=None)
    return note


def _compare(tree: Path, note: Note, offer: Offer) -> None:
    if (offer.commit and offer.commit != note.commit) or (offer.version and offer.version != note.version):
        raise UpdateError(
            f"The archive is {note.version} ({note.commit[:8]}), the index names {offer.version} ({offer.commit[:8]}).",
            stop_class="verify",
            advice="Nothing was changed. Tell whoever publishes it.",
        )
    found = tree_hashes(tree)
    differing = sorted(path for path in {*found, *note.files} if found.get(path) != note.files.get(path))
    if differing:
        shown = ", ".join(clean(path, 80) for path in differing[:3])
        raise UpdateError(
            f"Files of the archive are not what its note says: {shown}.",
            stop_class="verify",
            advice="Nothing was changed. Tell whoever publishes it.",
        )


def import_tree(git: Git, tree: Path, files: Mapping[str, str], scratch: Path) -> str:
    """Objects of a release in our repository; returns a commit that holds its tree. The same bytes give the same commit.

    Args:
        git: our repository.
        tree: the unpacked release.
        files: its files by path; the note comes along.
        scratch: folder for a temporary index.

    Raises:
        UpdateError: git failed.
    """
    paths = sorted({*files, RELEASE})
    listed = "".join(f"{tree / path}\n" for path in paths).encode("utf-8", "surrogateescape")
    oids = git.run("hash-object", "-w", "--no-filters", "--stdin-paths", stdin=listed).text.splitlines()
    if len(oids) != len(paths):
        raise UpdateError("git did not take every file of the release.", stop_class="git")
    index = scratch / ".tmp.release.index"
    try:
        entries = "".join(
            f"{'100755' if (tree / path).stat().st_mode & 0o100 else '100644'} {oid}\t{path}\0"
            for path, oid in zip(paths, oids, strict=True)
        )
        git.run(
            "update-index",
            "-z",
            "--index-info",
            stdin=entries.encode("utf-8", "surrogateescape"),
            index=index,
        )
        tree_id = git.run("write-tree", index=index).text
    finally:
        index.unlink(missing_ok=True)
    return commit_id(git.run("commit-tree", tree_id, "-m", "release", extra=_IDENTITY).text)
