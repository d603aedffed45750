"""Packing a release of a git checkout: what a publisher serves, proven by opening it as an update would. Blocks."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import attrs

from nedura.errors import RefusedError, UpdateError
from nedura.installs import RELEASE
from nedura.records import make_folder, write_json
from nedura.text import clean
from nedura.update.commit.zip_tree import tree_hashes
from nedura.update.generation.durable import fsync_file
from nedura.update.generation.generations import code_version
from nedura.update.source.git import find_git
from nedura.update.source.owner_checkout import read_source
from nedura.update.source.release import Note, Offer, archive_remote, index_of, pack_release
from nedura.update.source.release_tree import open_release
from nedura.update.source.source_git import SourceGit

__all__ = ["INDEX", "Packed", "pack_checkout"]

INDEX: Final = "latest.json"
"""Name of the index beside the archives."""


@attrs.frozen(kw_only=True)
class Packed:
    """A release as it lies there.

    Attributes:
        archive, index: its files.
        version, commit: what it is.
        files: how many it holds.
        size: bytes of the archive.
    """

    archive: Path
    index: Path
    version: str
    commit: str
    files: int
    size: int


def pack_checkout(checkout: Path, out: Path, address: str, name: str, environ: Mapping[str, str]) -> Packed:
    """Pack what HEAD holds, and write the index that names it. The index comes last: nobody is sent to half an archive.

    Args:
        checkout: a git checkout without changes.
        out: folder to write into, made when missing.
        address: where updates will come from: the index's own address, or empty for a release that is never updated.
        name: first part of the archive's name.
        environ: where git and its variables come from.

    Raises:
        RefusedError: the checkout has changes, the address cannot be used, or this version was packed before from something else.
        UpdateError: the tree cannot be a release; nothing was written.
        StoreError, OSError: the disk refused.
    """
    if address:
        archive_remote(address)
    program = find_git(environ)
    source = read_source(checkout, program, environ)
    git = SourceGit(program, source.checkout, source.git_dir, environ)
    changed = git.run("status", "--porcelain", "-z", "--untracked-files=no").out.split(b"\0")
    if not source.head or changed != [b""]:
        first = os.fsdecode(changed[0][3:]) if source.head else "nothing is committed"
        raise RefusedError(
            f"A release is what is committed, and this checkout has changes ({clean(first, 120)}).",
            advice="Commit them, or pack from a clean clone.",
        )
    listed = git.run("ls-files", "-z").out.split(b"\0")
    note = _note(source.checkout, source.head, address, {os.fsdecode(path) for path in listed if path})
    archive = make_folder(out, 0o755) / f"{name}-{note.version}.zip"
    with tempfile.TemporaryDirectory(prefix=".release-", dir=out) as scratch:
        made = Path(scratch, archive.name)
        pack_release(source.checkout, note, made)
        index = index_of(made, note)
        offer = Offer(url="", **{key: index[key] for key in ("commit", "version", "sha256", "size")})
        open_release(made, Path(scratch, "tree"), offer, address)  # what no update would take is no release
        if archive.is_file() and archive.read_bytes() != made.read_bytes():
            raise RefusedError(
                f"{archive.name} is there already and holds something else.",
                advice="A published version never changes: give this one a new version.",
            )
        made.chmod(0o644)
        fsync_file(made)
        os.replace(made, archive)
    write_json(out / INDEX, index, 0o644)
    return Packed(
        archive=archive, index=out / INDEX, version=note.version, commit=note.commit, files=len(note.files),
        size=archive.stat().st_size,
    )  # fmt: skip


def _note(checkout: Path, commit: str, address: str, tracked: set[str]) -> Note:
    """What the release says about itself. Compiled code and links are in no release."""
    version = code_version(checkout)
    if not version:
        raise UpdateError("This tree states no version in its pyproject.toml.", stop_class="tree")
    if RELEASE in tracked:
        raise UpdateError(
            f"{RELEASE} is tracked here: the note of a release is made, not kept.", stop_class="tree"
        )
    found = tree_hashes(checkout)
    lost = sorted(path for path in tracked if path not in found or found[path].startswith("link:"))
    if lost:
        raise UpdateError(
            f"{clean(lost[0], 160)} cannot be in a release: it is no plain file, is compiled, or has a name of the updater's own.",
            stop_class="tree",
        )
    return Note(
        commit=commit, version=version, archive=address, files={path: found[path] for path in tracked}
    )
