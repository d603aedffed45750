"""Release archives: what one says about itself, what the index of a publisher says, and how one is packed. Decides without a network.

A release is a zip of one tree with a note in its top folder (`RELEASE`): commit, version, the address that updates come from, and the
SHA-256 of every file. The index is a small JSON beside the archives that names the newest one.
"""

from __future__ import annotations

import hashlib
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urljoin, urlsplit

import attrs

from nedura.errors import RecordMissing, RefusedError, UpdateError
from nedura.installs import MAX_NOTE, RELEASE
from nedura.records import read_json, write_json
from nedura.text import clean, redact
from nedura.update.source.channels import version_key
from nedura.update.source.git import is_commit_id
from nedura.update.source.urls import Remote
from nedura.urls import origin_of

__all__ = [
    "MAX_ARCHIVE",
    "Note",
    "Offer",
    "archive_remote",
    "index_of",
    "is_downgrade",
    "pack_release",
    "parse_index",
    "parse_note",
    "read_note",
    "windows_problem",
]

MAX_ARCHIVE: Final = 512 << 20
"""Most bytes of an archive that are downloaded."""
_DIGEST: Final = re.compile(r"[0-9a-f]{64}\Z")
_HASH: Final = re.compile(r"(?:[0-9a-f]{64}|link:.{1,1000})\Z", re.DOTALL)
_VERSION: Final = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+_-]{0,63}\Z")
_DEVICE: Final = re.compile(
    r"(?:con|prn|aux|nul|conin\$|conout\$|(?:com|lpt)[0-9\u00b9\u00b2\u00b3]) *(?:\..*)?\Z",
    re.IGNORECASE | re.DOTALL,
)
_SHORT: Final = re.compile(r"[^.]{1,6}~[0-9]{1,4}(?:\.[^.]{0,3})?\Z")
"""How Windows calls a file with a long name a second time (`GIT~1` is `.git`)."""
_STAMP: Final = (1980, 1, 1, 0, 0, 0)


@attrs.frozen(kw_only=True)
class Note:
    """What a release says about itself.

    Attributes:
        commit: id of the commit that it was packed from.
        version: its version.
        archive: address that updates come from, empty when it names none.
        files: path -> SHA-256 of every file of it but the note.
    """

    commit: str
    version: str
    archive: str = ""
    files: Mapping[str, str] = attrs.field(factory=dict, repr=False)

    def to_json(self) -> dict[str, Any]:
        """The note as it is written."""
        return {"schema": 1, **attrs.asdict(self), "files": dict(sorted(self.files.items()))}


@attrs.frozen(kw_only=True)
class Offer:
    """The newest release that an index names.

    Attributes:
        commit: its commit id; empty where only the archive itself tells.
        version: its version, likewise.
        url: address of the archive.
        sha256: hash of the archive, empty where nobody told.
        size: bytes of the archive, 0 where nobody told.
    """

    commit: str = ""
    version: str = ""
    url: str
    sha256: str = ""
    size: int = 0


def _wrong(what: str, advice: str = "Tell whoever publishes it.") -> UpdateError:
    return UpdateError(what, stop_class="fetch_failed", advice=f"Nothing was changed. {advice}")


def archive_remote(url: str) -> Remote:
    """The address of an index or archive, judged: https, or http to this machine.

    Raises:
        RefusedError: another address.
    """
    origin = origin_of(url)
    parts = urlsplit(url) if origin is not None else None
    if origin is None or parts is None or parts.query or parts.fragment or not parts.path.strip("/"):
        raise RefusedError(
            f"{redact(clean(url, 120))} cannot be used: updates of an unpacked release come from a plain https address."
        )
    return Remote(
        url=url, protocol="https", shown=clean(url, 200), host=origin.host, path=parts.path.strip("/")
    )


def parse_note(value: Any) -> Note:
    """A note from its JSON.

    Raises:
        UpdateError: it makes no sense.
    """
    known = value if isinstance(value, Mapping) and value.get("schema") == 1 else {}
    commit, version = known.get("commit"), known.get("version")
    archive, files = known.get("archive", ""), known.get("files")
    fits = (
        isinstance(commit, str) and is_commit_id(commit)
        and isinstance(version, str) and _VERSION.match(version)
        and isinstance(archive, str) and isinstance(files, Mapping)
        and all(isinstance(digest, str) and _HASH.match(digest) for digest in files.values())
    )  # fmt: skip
    if not fits:
        raise _wrong(f"The release's {RELEASE} makes no sense.")
    return Note(commit=str(commit), version=str(version), archive=str(archive), files=dict(files or {}))


def read_note(tree: Path) -> Note | None:
    """The note of an unpacked tree; None when it has none.

    Raises:
        UpdateError: it makes no sense.
        StoreError: it cannot be read.
    """
    try:
        return parse_note(read_json(tree / RELEASE, MAX_NOTE))
    except RecordMissing:
        return None


def parse_index(value: Any, url: str) -> Offer:
    """What an index offers.

    Args:
        value: its JSON.
        url: its own address: the archive's may be relative to it.

    Raises:
        UpdateError: it makes no sense, or its archive lies at another origin.
    """
    known = value if isinstance(value, Mapping) and value.get("schema") == 1 else {}
    commit, version, digest = (known.get(key) for key in ("commit", "version", "sha256"))
    size, place = known.get("size"), known.get("archive")
    fits = (
        isinstance(commit, str) and is_commit_id(commit)
        and isinstance(version, str) and _VERSION.match(version)
        and isinstance(digest, str) and _DIGEST.match(digest)
        and type(size) is int and isinstance(place, str)
    )  # fmt: skip
    if not fits:
        raise _wrong("The index of releases makes no sense.")
    assert isinstance(size, int)
    if not 0 < size <= MAX_ARCHIVE:
        raise _wrong(f"The index names an archive of {size} bytes; at most {MAX_ARCHIVE} are taken.")
    address = urljoin(url, str(place))
    if origin_of(address) is None or origin_of(address) != origin_of(url):
        raise _wrong("The index names an archive at another place.")
    return Offer(commit=str(commit), version=str(version), url=address, sha256=str(digest), size=size)


def index_of(archive: Path, note: Note) -> dict[str, Any]:
    """What a publisher's index says about a packed release that lies beside it. Blocks."""
    with open(archive, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {
        "schema": 1, "version": note.version, "commit": note.commit, "archive": archive.name, "sha256": digest,
        "size": archive.stat().st_size,
    }  # fmt: skip


def windows_problem(path: str) -> str:
    """Why a path of an archive cannot be a file on Windows, or would be another one there; empty when it can. One archive serves all."""
    for part in path.split("/"):
        if _DEVICE.match(part):
            return "names a device of Windows"
        if part.endswith((".", " ")) or any(ch in '<>:"|?*\\' or ord(ch) < 32 for ch in part):
            return "has a name that Windows reads differently"
        if _SHORT.match(part):
            return "may be the short name of another file on Windows"
    return ""


def is_downgrade(offered: str, current: str) -> bool:
    """Whether a version is older than another one; one that cannot be ordered counts as older unless it is the same."""
    new, old = version_key(offered), version_key(current)
    if new is None or old is None:
        return offered != current
    return new < old


def pack_release(tree: Path, note: Note, archive: Path) -> None:
    """Pack the files of a tree that a note lists, and the note, into a zip that is the same for the same bytes. Blocks.

    Raises:
        UpdateError: a listed file is a link or is gone.
        OSError: the archive cannot be written.
    """
    note_text = archive.parent / f".{archive.name}.note"
    write_json(note_text, note.to_json(), indent=None)
    try:
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as packed:
            packed.comment = note.commit.encode("ascii")
            _add(packed, RELEASE, note_text, 0o644)
            for name in sorted(note.files):
                path = tree / name
                if path.is_symlink() or not path.is_file():
                    raise UpdateError(
                        f"{clean(name, 160)} cannot be packed: it is no plain file.", stop_class="tree"
                    )
                _add(packed, name, path, 0o755 if path.stat().st_mode & 0o100 else 0o644)
    finally:
        note_text.unlink(missing_ok=True)


def _add(packed: zipfile.ZipFile, name: str, path: Path, mode: int) -> None:
    entry = zipfile.ZipInfo(name, _STAMP)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = (0o100000 | mode) << 16
    entry.create_system = 3
    with open(path, "rb") as file:
        packed.writestr(entry, file.read())
