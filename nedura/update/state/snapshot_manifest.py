"""What a snapshot says about itself, which ones a home has, and which older ones may go."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from nedura.errors import RecordCorrupt, RecordMissing, StoreError, UsageError
from nedura.records import read_json
from nedura.text import clean
from nedura.update.state.snapshot_set import in_set

__all__ = [
    "FOLDER",
    "MANIFEST",
    "Manifest",
    "list_snapshots",
    "parse_manifest",
    "prunable",
    "read_manifest",
    "snapshot_folder",
    "snapshot_name",
]

FOLDER: Final = "state-snapshots"
MANIFEST: Final = "manifest.json"
MAX_MANIFEST: Final = 16 * 1024 * 1024
_ID: Final = re.compile(r"^(\d{8}-\d{6})-([a-z0-9][a-z0-9-]{0,40})\Z")
_LABEL: Final = re.compile(r"^[a-z][a-z0-9-]{0,30}\Z")
_DIGEST: Final = re.compile(r"^[0-9a-f]{64}\Z")


@attrs.frozen(kw_only=True)
class Manifest:
    """`manifest.json` of a snapshot (facts/update.md 4.1).

    Attributes:
        id: folder name.
        timestamp: its stamp, `YYYYMMDD-HHMMSS` UTC.
        label: why it was taken.
        files: path below the home -> bytes.
        sha256: path -> hash of the copy.
        failed_dbs: databases that are there but could not be captured.
        oversized_skipped: paths over the cap.
        failed: path -> reason, for everything else that is there but could not be captured.
        skipped: path -> reason, for things that do not count (links, sockets).
        profile: whose it is.
    """

    id: str
    timestamp: str
    label: str
    files: Mapping[str, int] = attrs.field(factory=dict)
    sha256: Mapping[str, str] = attrs.field(factory=dict)
    failed_dbs: Sequence[str] = ()
    oversized_skipped: Sequence[str] = ()
    failed: Mapping[str, str] = attrs.field(factory=dict)
    skipped: Mapping[str, str] = attrs.field(factory=dict)
    profile: str = ""

    @property
    def total_size(self) -> int:
        """Bytes of all copies."""
        return sum(self.files.values())

    @property
    def complete(self) -> bool:
        """Whether everything that the set names and the home had is in it."""
        return not (self.failed_dbs or self.oversized_skipped or self.failed)

    @property
    def missing(self) -> tuple[str, ...]:
        """What the home had and the snapshot has not, sorted."""
        return tuple(sorted({*self.failed_dbs, *self.oversized_skipped, *self.failed}))

    def record(self) -> dict[str, Any]:
        """JSON form."""
        return {
            "schema": 1,
            "id": self.id,
            "timestamp": self.timestamp,
            "label": self.label,
            "profile": self.profile,
            "complete": self.complete,
            "file_count": len(self.files),
            "total_size": self.total_size,
            "files": dict(self.files),
            "sha256": dict(self.sha256),
            "failed_dbs": list(self.failed_dbs),
            "oversized_skipped": list(self.oversized_skipped),
            "failed": dict(self.failed),
            "skipped": dict(self.skipped),
        }


def snapshot_name(taken: Sequence[str], stamp: str, label: str) -> str:
    """A free id: `<stamp>-<label>`, else with `-2`, `-3` ...

    Raises:
        UsageError: the label is no plain word.
    """
    if not _LABEL.match(label):
        raise UsageError(
            f"'{clean(label, 40)}' cannot be a snapshot label.",
            advice="Use small letters, digits and dashes.",
        )
    base, number = f"{stamp}-{label}", 2
    if base not in taken:
        return base
    while f"{base}-{number}" in taken:
        number += 1
    return f"{base}-{number}"


def snapshot_folder(home: Path, name: str) -> Path:
    """Folder of a snapshot by id.

    Raises:
        UsageError: the id is none (separators, `..`, anything but our own pattern).
    """
    if not _ID.match(name):
        raise UsageError(f"'{clean(name, 80)}' is no snapshot id.", advice="See: nedura snapshot list")
    return home / FOLDER / name


def parse_manifest(record: Any, name: str) -> Manifest:
    """Read a manifest that may come from anywhere: every path must be one that a snapshot can hold.

    Raises:
        RecordCorrupt: it is not a manifest of this snapshot, or it names a path outside the set.
    """
    if not isinstance(record, dict) or record.get("id") != name or not _ID.match(name):
        raise RecordCorrupt(f"The manifest of snapshot {clean(name, 80)} is not its own.")
    files, digests = _sizes(record.get("files"), name), _texts(record.get("sha256"))
    for path in files:
        if not in_set(path):
            raise RecordCorrupt(f"Snapshot {name} names '{clean(path, 80)}', which no snapshot may hold.")
        if not _DIGEST.match(digests.get(path, "")):
            raise RecordCorrupt(f"Snapshot {name} has no hash for {clean(path, 80)}.")
    return Manifest(
        id=name,
        timestamp=name[:15],
        label=clean(record.get("label"), 40),
        files=files,
        sha256=digests,
        failed_dbs=_names(record.get("failed_dbs")),
        oversized_skipped=_names(record.get("oversized_skipped")),
        failed=_texts(record.get("failed")),
        skipped=_texts(record.get("skipped")),
        profile=clean(record.get("profile"), 80),
    )


def _sizes(value: Any, name: str) -> dict[str, int]:
    if not isinstance(value, dict):
        raise RecordCorrupt(f"The manifest of snapshot {name} lists no files.")
    if not all(isinstance(size, int) and not isinstance(size, bool) and size >= 0 for size in value.values()):
        raise RecordCorrupt(f"The manifest of snapshot {name} names a size that is none.")
    return {str(path): size for path, size in value.items()}


def _texts(value: Any) -> dict[str, str]:
    return {str(key): clean(item, 300) for key, item in value.items()} if isinstance(value, dict) else {}


def _names(value: Any) -> tuple[str, ...]:
    return tuple(clean(item, 300) for item in value) if isinstance(value, list) else ()


def read_manifest(folder: Path) -> Manifest:
    """Manifest of a snapshot folder.

    Raises:
        StoreError: missing, unreadable or not a manifest.
    """
    return parse_manifest(read_json(folder / MANIFEST, MAX_MANIFEST), folder.name)


def _order(manifest_id: str, label: str) -> tuple[str, int, str]:
    """Newest last: by stamp, then by the number that told equal ones apart."""
    tail = manifest_id[16 + len(label) :].lstrip("-") if manifest_id[16:].startswith(label) else ""
    return manifest_id[:15], int(tail) if tail.isdigit() else 1, manifest_id


def list_snapshots(home: Path) -> tuple[list[Manifest], dict[str, str]]:
    """Snapshots of a home, oldest first, and the folders that look like one but cannot be read (name -> reason).

    Raises:
        StoreError: the folder itself cannot be read.
    """
    try:
        names = sorted(name for name in os.listdir(home / FOLDER) if _ID.match(name))
    except FileNotFoundError:
        return [], {}
    except OSError as error:
        raise StoreError(f"{FOLDER} cannot be read: {error.strerror}.") from error
    good: list[Manifest] = []
    bad: dict[str, str] = {}
    for name in names:
        try:
            good.append(read_manifest(home / FOLDER / name))
        except RecordMissing:
            bad[name] = "it has no manifest"
        except StoreError as error:
            bad[name] = error.message
    return sorted(good, key=lambda manifest: _order(manifest.id, manifest.label)), bad


def prunable(existing: Sequence[Manifest], new: Manifest, keep: int) -> list[str]:
    """Ids of older snapshots with the same label that may go, now that `new` is on disk.

    Keeps the newest `keep`. When `new` is incomplete an older one goes only if every file that it holds is also held by one that stays,
    so the last good copy of a file is never lost (#68805), and a loop of failing runs still cannot fill the disk (case C013).

    Args:
        existing: oldest first, without `new`.
        new: the one just published.
        keep: how many stay, `new` included; at least 1.
    """
    older = [manifest for manifest in existing if manifest.label == new.label and manifest.id != new.id]
    stay = max(1, keep) - 1
    kept, candidates = older[len(older) - stay :] if stay else [], older[: len(older) - stay]
    if new.complete:
        return [manifest.id for manifest in candidates]
    gone: list[str] = []
    held = set(new.files).union(*(manifest.files for manifest in kept))
    for manifest in reversed(candidates):
        if not manifest.complete and held.issuperset(manifest.files):
            gone.append(manifest.id)
        else:
            held |= set(manifest.files)
    return gone
