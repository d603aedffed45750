"""Generations: written once at their final path, manifest last, then only read (generations.md).

A generation is `tree/` (the files), `venv/` (a thin virtual environment that pins every process to this generation and
holds its lease), `identity.json` and `manifest.json`. No manifest = not a generation.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from nedura.errors import RecordCorrupt, StoreError, UpdateError
from nedura.installs import GENERATION_NAME, CodeIdentity, InstallPaths, read_identity
from nedura.records import fsync_folder, read_json, write_bytes, write_json
from nedura.update.generation.environment import sync_filesystem
from nedura.update.generation.thin import flip, next_name, protect, venv_faults
from nedura.update.generation.tree_files import Base, Seen, read_files
from nedura.update.generation.tree_rules import Entry
from nedura.update.state.levels import StateRange

__all__ = [
    "Manifest",
    "base_of",
    "code_version",
    "is_generation",
    "list_generations",
    "next_generation",
    "point",
    "read_generation",
    "read_manifest",
    "seal",
    "verify_generation",
]

MANIFEST: Final = "manifest.json"
MAX_MANIFEST: Final = 64 * 1024 * 1024


@attrs.frozen(kw_only=True)
class Manifest:
    """What a generation was made from.

    Attributes:
        identity: what members on it state.
        env: name of its environment, empty when the host manages packages.
        python: base interpreter: path, version, platform, tag, release.
        inputs: hash of everything it was made from (decision 40).
        files: path -> (git mode, blob id).
        written: path -> blob id of what is on disk, where git converts line ends.
        edits: path -> blob id of carried local edits, empty id for a deletion.
        parked: path -> blob id of local edits that were left out.
        builds: name -> hash of a build's inputs.
        built: path -> blob id of files that a build made.
        broken: path -> message of files that do not compile.
        branch: branch that was followed.
        created: ISO time.
        state_min, state_max: state levels that it reads; it writes the newest (decision 44).
    """

    identity: CodeIdentity
    env: str = ""
    python: Mapping[str, Any] = attrs.field(factory=dict)
    inputs: str = ""
    files: Mapping[str, tuple[str, str]] = attrs.field(factory=dict)
    written: Mapping[str, str] = attrs.field(factory=dict)
    edits: Mapping[str, str] = attrs.field(factory=dict)
    parked: Mapping[str, str] = attrs.field(factory=dict)
    builds: Mapping[str, str] = attrs.field(factory=dict)
    built: Mapping[str, str] = attrs.field(factory=dict)
    broken: Mapping[str, str] = attrs.field(factory=dict)
    branch: str = ""
    created: str = ""
    state_min: int = 1
    state_max: int = 1

    @property
    def state(self) -> StateRange:
        """The state levels that it reads."""
        return StateRange(self.state_min, self.state_max)


def is_generation(folder: Path) -> bool:
    """Whether a folder is a whole generation."""
    return bool(GENERATION_NAME.match(folder.name)) and (folder / MANIFEST).is_file()


def list_generations(paths: InstallPaths) -> list[Path]:
    """Every folder with a generation's name, whole or not, oldest first."""
    try:
        names = os.listdir(paths.generations)
    except FileNotFoundError:
        return []
    return [
        paths.generations / name
        for name in sorted(names, key=lambda n: (len(n), n))
        if GENERATION_NAME.match(name)
    ]


def next_generation(paths: InstallPaths) -> Path:
    """Path of the next generation."""
    return paths.generations / next_name(paths.generations)


def code_version(tree: Path) -> str:
    """Version that a tree states: its project table, or the file that table names. Empty when it states none."""
    import tomllib

    try:
        project = tomllib.loads((tree / "pyproject.toml").read_text("utf-8"))
        stated = project.get("project", {}).get("version")
        if isinstance(stated, str):
            return stated
        named = project["tool"]["hatch"]["version"]["path"]
        text = (tree / named).read_text("utf-8")
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    found = re.search(r"^__version__\s*=\s*[\"']([^\"']{1,80})[\"']", text, re.MULTILINE)
    return found[1] if found else ""


def seal(folder: Path, manifest: Manifest) -> None:
    """Make a finished generation read-only and durable; its manifest is written last.

    Raises:
        StoreError: the disk refused.
        UpdateError: as above, outside the records.
    """
    try:
        levels = attrs.asdict(manifest.state)
        write_json(folder / "identity.json", {**attrs.asdict(manifest.identity), **levels}, 0o444)
        protect(folder / "tree")
        protect(folder / "venv")
        sync_filesystem(folder)
        data = json.dumps(attrs.asdict(manifest), separators=(",", ":"), ensure_ascii=True).encode()
        write_bytes(folder / MANIFEST, data, 0o444)
        os.chmod(folder, 0o755)
        fsync_folder(folder.parent)
    except OSError as error:
        raise UpdateError(
            f"The new version cannot be written: {error.strerror}.", stop_class="disk"
        ) from error


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a generation.

    Raises:
        StoreError: it has none, or it makes no sense.
    """
    record = read_json(folder / MANIFEST, MAX_MANIFEST)
    try:
        known = {field.name for field in attrs.fields(Manifest)}
        fields = {key: value for key, value in record.items() if key in known}
        names = {field.name for field in attrs.fields(CodeIdentity)}
        identity = CodeIdentity(**{k: str(v) for k, v in fields.pop("identity").items() if k in names})
        files = {path: (mode, oid) for path, (mode, oid) in fields.pop("files").items()}
        return Manifest(identity=identity, files=files, **fields)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise RecordCorrupt(f"The manifest of generation {folder.name} makes no sense.") from error


def base_of(folder: Path | None) -> Base | None:
    """A generation as a base to link from; None when there is none or it cannot be read."""
    if folder is None or not is_generation(folder):
        return None
    try:
        manifest = read_manifest(folder)
    except StoreError:
        return None
    plain = {path: what for path, what in manifest.files.items() if path not in manifest.written}
    return Base(tree=folder / "tree", files=plain, tag=str(manifest.python.get("tag", "")))


def read_generation(folder: Path, manifest: Manifest) -> dict[str, Seen]:
    """Read every byte that a manifest vouches for, by path."""
    entries = [Entry(mode, oid, 0, path) for path, (mode, oid) in manifest.files.items()]
    entries += [Entry("100644", oid, 0, path) for path, oid in manifest.built.items()]
    return read_files(folder / "tree", entries)


def verify_generation(folder: Path, seen: Mapping[str, Seen] | None = None) -> list[str]:
    """Paths whose bytes or kind are not what the manifest says, and parts of its launch path that cannot start it.

    Args:
        folder: the generation.
        seen: from `read_generation`, when this run has read it already.

    Raises:
        StoreError: there is no manifest.
    """
    manifest = read_manifest(folder)
    found = read_generation(folder, manifest) if seen is None else seen
    expected = {path: manifest.written.get(path, oid) for path, (_, oid) in manifest.files.items()} | dict(
        manifest.built
    )
    changed = sorted(path for path, oid in expected.items() if path not in found or found[path].oid != oid)
    try:
        whole = read_identity(folder) == manifest.identity
    except StoreError:
        whole = False
    return changed + ([] if whole else ["identity.json"]) + venv_faults(folder)


def point(paths: InstallPaths, pointer: Path, folder: Path | None, *, durable: bool = True) -> None:
    """Replace a pointer by one rename; None removes it.

    Args:
        paths: the install.
        pointer: its `current` or `previous`.
        folder: the generation.
        durable: flush the folder; without, the next flush of it makes this durable, in order.

    Raises:
        StoreError: the disk refused; the old pointer stands.
    """
    try:
        flip(paths.folder, pointer.name, folder.name if folder is not None else "", durable=durable)
    except OSError as error:
        raise StoreError(f"The pointer {pointer.name} cannot be moved: {error.strerror}.") from error
