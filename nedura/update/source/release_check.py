"""`update --check` of an unpacked release: the index is asked, nothing is downloaded."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

from nedura.errors import RecordMissing, UpdateError
from nedura.installs import CodeIdentity, InstallPaths
from nedura.update.generation.record import read_record
from nedura.update.source.release import Note, archive_remote, is_downgrade, read_note
from nedura.update.source.release_fetch import ask_index
from nedura.update.source.urls import Remote

__all__ = ["Asked", "ask_release", "pinned_address"]

Asked = tuple[str, str, str, Remote, str]
"""State (current, behind or unknown), version, commit, where it was asked, and why it is unknown."""


def pinned_address(install: InstallPaths, note: Note) -> Remote:
    """Where updates of a release come from: the pinned address, before its first update as a release the one of its note.

    Raises:
        RefusedError: it cannot be used.
        StoreError: the record cannot.
    """
    try:
        record = read_record(install)
    except RecordMissing:
        return archive_remote(note.archive)
    return archive_remote(record.remote_url if record.layout == "zip" else note.archive)


def ask_release(
    install: InstallPaths, tree: Path, current: CodeIdentity, environ: Mapping[str, str]
) -> Asked:
    """Compare what the index offers with what runs. Blocks; not for a thread that runs an event loop.

    Raises:
        UpdateError: it cannot be asked.
        NeduraError: the address or a record cannot be used.
    """
    note = read_note(tree)
    if note is None:
        raise UpdateError("This tree says nowhere what it is.", stop_class="no_git")
    remote = pinned_address(install, note)
    offer = asyncio.run(ask_index(remote, environ))
    if not offer.commit:
        return "unknown", "", "", remote, "only the archive itself tells which release it is; an update looks"
    newer = offer.commit != current.code_sha and not is_downgrade(offer.version, note.version)
    return ("behind" if newer else "current"), offer.version, offer.commit, remote, ""
