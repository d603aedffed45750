"""Generations: written once at their final path, manifest last, then only read (generations.md).

A generation is `tree/` (the files), `venv/` (a thin virtual environment that pins every process to this generation and
holds its lease), `identity.json` and `manifest.json`. No manifest = not a generation.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from nedura.errors import RecordCorrupt, StoreError, UpdateError
from nedura.installs import GENERATION_NAME, CodeIdentity, InstallPaths
from nedura.records import fsync_folder, make_folder, read_json, write_bytes, write_json
from nedura.update.environment import sync_filesystem
from nedura.update.interpreter import Interpreter
from nedura.update.tree import Base, hash_files
from nedura.update.tree_rules import Entry

__all__ = [
    "Manifest",
    "base_of",
    "code_version",
    "is_generation",
    "list_generations",
    "next_generation",
    "point",
    "python_of",
    "read_manifest",
    "seal",
    "verify_generation",
    "write_venv",
]

MANIFEST: Final = "manifest.json"
MAX_MANIFEST: Final = 64 * 1024 * 1024

_PIN: Final = '''\
"""Pins this process to one generation and holds its lease (a shared flock that ends with the process). Written by nedura."""

import fcntl
import os
import site
import sys

_here = os.path.realpath(__file__)
GENERATION = os.path.normpath(os.path.join(_here, *[os.pardir] * 5))
ROOTS = {roots!r}
PACKAGES = {packages!r}
sys.dont_write_bytecode = True
try:
    LEASE = os.open(GENERATION, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(LEASE, fcntl.LOCK_SH | fcntl.LOCK_NB)
    if not os.path.samestat(os.fstat(LEASE), os.stat(GENERATION)):
        raise OSError
except OSError:
    os._exit(69)  # collected under us; an exception would be swallowed and the start go on unpinned
sys.path += [os.path.normpath(os.path.join(GENERATION, "tree", root)) for root in ROOTS]
for _folder, _with_pth in PACKAGES:
    _folder = os.path.normpath(os.path.join(GENERATION, _folder))
    if _with_pth:
        site.addsitedir(_folder)
    else:
        sys.path.append(_folder)
'''


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
    """Path of the next generation: one more than any that was ever there, trash included."""
    try:
        names = os.listdir(paths.generations)
    except FileNotFoundError:
        names = []
    numbers = [int(found[1]) for name in names if (found := re.match(r"^(?:\.trash-)?(\d{6,})", name))]
    return paths.generations / f"{max(numbers, default=0) + 1:06d}"


def write_venv(
    folder: Path,
    python: Interpreter,
    roots: Sequence[str],
    env: str,
    packages: Sequence[str] = (),
) -> Path:
    """Write the thin virtual environment of a generation.

    Args:
        folder: the generation.
        python: base interpreter.
        roots: folders of the tree for `sys.path`.
        env: name of the shared environment, or empty.
        packages: absolute folders of packages that the host manages; their `.pth` files are not run: they
            could put another copy of the product on the path.

    Returns:
        the generation's interpreter.
    """
    venv = folder / "venv"
    site_packages = make_folder(venv / python.library)
    binaries = make_folder(venv / "bin")
    os.symlink(python.path, binaries / "python")
    shared = [(f"../../envs/{env}/{python.library}", True)] if env else []
    pin = _PIN.format(roots=list(roots), packages=shared + [(path, False) for path in packages])
    home = os.path.dirname(python.path)
    _new_file(venv / "pyvenv.cfg", f"home = {home}\ninclude-system-site-packages = false\n")
    _new_file(site_packages / "_generation.pth", "import _generation\n")
    _new_file(site_packages / "_generation.py", pin)
    return binaries / "python"


def _new_file(path: Path, text: str) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o444)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)


def python_of(folder: Path) -> Path:
    """The interpreter of a generation."""
    return folder / "venv" / "bin" / "python"


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


def protect(folder: Path, paths: Sequence[str] | None = None) -> None:
    """Take write permission from files (all, or the named ones) and from every folder of a generation."""
    for path, _, files in os.walk(folder):
        if paths is None:
            for name in files:
                _read_only(os.path.join(path, name))
        os.chmod(path, 0o555)


def _read_only(file: str) -> None:
    if not os.path.islink(file):
        info = os.stat(file)
        if info.st_mode & 0o222 or info.st_mode & 0o444 != 0o444:
            os.chmod(file, 0o555 if info.st_mode & 0o100 else 0o444)


def seal(folder: Path, manifest: Manifest) -> None:
    """Make a finished generation read-only and durable; its manifest is written last.

    Raises:
        StoreError: the disk refused.
        UpdateError: as above, outside the records.
    """
    try:
        write_json(folder / "identity.json", attrs.asdict(manifest.identity), 0o444)
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


def verify_generation(folder: Path) -> list[str]:
    """Paths whose bytes or mode are not what the manifest says.

    Raises:
        StoreError: there is no manifest.
    """
    manifest = read_manifest(folder)
    entries = [Entry(mode, oid, 0, path) for path, (mode, oid) in manifest.files.items()]
    entries += [Entry("100644", oid, 0, path) for path, oid in manifest.built.items()]
    found = hash_files(folder / "tree", entries)
    expected = {entry.path: manifest.written.get(entry.path, entry.oid) for entry in entries}
    return sorted(path for path, oid in expected.items() if found.get(path) != oid)


def point(paths: InstallPaths, pointer: Path, folder: Path | None) -> None:
    """Replace a pointer by one rename, durably; None removes it.

    Raises:
        StoreError: the disk refused; the old pointer stands.
    """
    temp = paths.folder / f".tmp.{pointer.name}.{os.getpid()}"
    try:
        if folder is None:
            pointer.unlink(missing_ok=True)
        else:
            temp.unlink(missing_ok=True)
            os.symlink(f"generations/{folder.name}", temp)
            os.replace(temp, pointer)
        fsync_folder(paths.folder)
    except OSError as error:
        temp.unlink(missing_ok=True)
        raise StoreError(f"The pointer {pointer.name} cannot be moved: {error.strerror}.") from error
