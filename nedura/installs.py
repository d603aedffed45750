"""Where an install keeps what runs, and what the running process is part of.

Layout (architecture.md, "What runs is sealed")::

    <root home>/installs/<install id>/
      install.json     who owns it: source, pinned remote, branch, layout
      source           link to the owner's git checkout
      repo.git         ours, bare
      envs/<hash>/     third-party packages
      generations/000012/{tree/, venv/, identity.json, manifest.json}
      current, previous   relative links; replacing `current` is the commit point
      lock
    <root home>/bin/<command>   launcher
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import Any, Final

import attrs

from nedura._version import __version__
from nedura.errors import RecordCorrupt, StoreError
from nedura.records import MAX_RECORD, read_json

__all__ = [
    "MAX_NOTE",
    "RELEASE",
    "CodeIdentity",
    "InstallPaths",
    "checkout_head",
    "find_installs",
    "generation_of",
    "git_folder",
    "install_id_for",
    "read_identity",
    "release_of",
    "running_code",
    "sealed_install_of",
]

RELEASE: Final = ".nedura-release.json"
"""Top-level file of an unpacked release: its commit, where its updates come from, and the hash of each of its files."""
MAX_NOTE: Final = 32 << 20
GENERATION_NAME: Final = re.compile(r"^[0-9]{6,}\Z")
_SHA: Final = re.compile(r"^[0-9a-f]{40}(?:[0-9a-f]{24})?\Z")
_REMOTE: Final = re.compile(rb'^[ \t]*\[remote "', re.MULTILINE | re.IGNORECASE)


@attrs.frozen(kw_only=True)
class CodeIdentity:
    """Identity of running code (decision 39). Empty strings where unknown.

    Attributes:
        install_id: 12 hex digits of the install.
        generation: generation name of a sealed install, empty in a checkout layout.
        code_sha: commit id.
        code_version: distribution version.
        tree_hash: git tree id of what runs, local edits included.
    """

    install_id: str = ""
    generation: str = ""
    code_sha: str = ""
    code_version: str = ""
    tree_hash: str = ""

    def short(self) -> str:
        """Eight hex digits of the commit, or the version, or `unknown`."""
        return self.code_sha[:8] or self.code_version or "unknown"


@attrs.frozen
class InstallPaths:
    """The places of one install.

    Attributes:
        root_home: the root home that it serves.
        install_id: its id.
    """

    root_home: Path
    install_id: str

    @property
    def folder(self) -> Path:
        """The install's own folder."""
        return self.root_home / "installs" / self.install_id

    @property
    def record(self) -> Path:
        """`install.json`."""
        return self.folder / "install.json"

    @property
    def source(self) -> Path:
        """Link to the owner's checkout."""
        return self.folder / "source"

    @property
    def repo(self) -> Path:
        """Our bare repository."""
        return self.folder / "repo.git"

    @property
    def envs(self) -> Path:
        """Third-party environments by hash."""
        return self.folder / "envs"

    @property
    def generations(self) -> Path:
        """Generations by number."""
        return self.folder / "generations"

    @property
    def current(self) -> Path:
        """The pointer."""
        return self.folder / "current"

    @property
    def previous(self) -> Path:
        """What was current before."""
        return self.folder / "previous"

    @property
    def lock(self) -> Path:
        """One preparer or collector at a time."""
        return self.folder / "lock"

    def launcher(self, command: str = "nedura") -> Path:
        """The only name that units, wrappers and people use."""
        return self.root_home / "bin" / command

    def pointed(self, pointer: Path | None = None) -> Path | None:
        """Real folder of the generation a pointer names; None when there is no pointer.

        Raises:
            RecordCorrupt: it names anything else than `generations/<digits>`.
        """
        pointer = self.current if pointer is None else pointer
        try:
            target = os.readlink(pointer)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise RecordCorrupt(f"{pointer.name} of install {self.install_id} is not a link.") from error
        folder, _, name = target.partition("/")
        if folder != "generations" or not GENERATION_NAME.match(name):
            raise RecordCorrupt(f"{pointer.name} of install {self.install_id} names no generation.")
        return self.generations / name


def install_id_for(checkout: Path) -> str:
    """Install id: first 12 hex digits of SHA-256 over the lower-cased resolved checkout path (facts/update.md 1.1)."""
    return hashlib.sha256(os.fsencode(os.path.realpath(checkout).lower())).hexdigest()[:12]


def find_installs(root_home: Path) -> list[InstallPaths]:
    """Every install of a root home that has a record, by id."""
    try:
        names = sorted(os.listdir(root_home / "installs"))
    except OSError:
        return []
    found = [InstallPaths(root_home, name) for name in names if re.fullmatch(r"[0-9a-f]{12}", name)]
    return [paths for paths in found if paths.record.is_file()]


def read_identity(generation: Path) -> CodeIdentity:
    """Identity that a sealed generation states about itself.

    Raises:
        StoreError: it states none.
    """
    record: Any = read_json(generation / "identity.json")
    if not isinstance(record, dict):
        raise RecordCorrupt(f"{generation.name}/identity.json is not an object.")
    known = {field.name for field in attrs.fields(CodeIdentity)}
    return CodeIdentity(**{key: str(value) for key, value in record.items() if key in known})


def generation_of(path: Path) -> Path | None:
    """The generation folder that a file of running code lies in, by its real path; None outside any."""
    parts = Path(os.path.realpath(path)).parts
    for index in range(len(parts) - 2, 0, -1):
        if (
            parts[index] == "tree"
            and GENERATION_NAME.match(parts[index - 1])
            and parts[index - 2] == "generations"
        ):
            return Path(*parts[:index])
    return None


def sealed_install_of(path: Path) -> InstallPaths | None:
    """The sealed install that running code belongs to; None when it does not run from one."""
    generation = generation_of(path)
    if generation is None or len(generation.parents) < 4 or generation.parents[2].name != "installs":
        return None
    return InstallPaths(generation.parents[3], generation.parents[1].name)


def checkout_head(folder: Path) -> str:
    """HEAD of a checkout without running git: its `.git/config` may run programs (threats.md 1)."""
    try:
        git_dir = _git_dir(folder)
        head = (git_dir / "HEAD").read_text("ascii").strip()
        if not head.startswith("ref:"):
            return head if _SHA.match(head) else ""
        return _resolve_ref(git_dir, head.removeprefix("ref:").strip())
    except (OSError, ValueError):  # also what is no text, and a path with a NUL in it
        return ""


def git_folder(checkout: Path) -> Path | None:
    """The git folder of a checkout, also of a linked worktree; None when there is none. Read-only."""
    try:
        found = _git_dir(checkout)
    except (OSError, ValueError):
        return None
    return found if found.is_dir() else None


def _git_dir(folder: Path) -> Path:
    """The git folder of a checkout.

    Raises:
        OSError, ValueError: its `.git` leads to none.
    """
    git_dir = folder / ".git"
    if not git_dir.is_file():
        return git_dir
    text = git_dir.read_text("utf-8")
    if not text.startswith("gitdir:"):
        raise ValueError("names no folder")
    return folder / text.removeprefix("gitdir:").strip()


def _common_dir(git_dir: Path) -> Path:
    try:
        return git_dir / (git_dir / "commondir").read_text("utf-8").strip()
    except OSError:
        return git_dir


def _resolve_ref(git_dir: Path, ref: str) -> str:
    common = _common_dir(git_dir)
    for base in (git_dir, common):
        try:
            value = (base / ref).read_text("ascii").strip()
        except OSError:
            continue
        return value if _SHA.match(value) else ""
    for line in (common / "packed-refs").read_text("utf-8", "replace").splitlines():
        sha, _, name = line.partition(" ")
        if name == ref and _SHA.match(sha):
            return sha
    return ""


def checkout_of(path: Path) -> Path | None:
    """The git checkout that a file lies in; None outside any, and in an unpacked release (`release_of`)."""
    for folder in Path(os.path.realpath(path)).parents:
        if (folder / RELEASE).exists() and not _follows_a_remote(folder):
            return None
        if (folder / ".git").exists():
            return folder
    return None


def release_of(path: Path) -> Path | None:
    """The unpacked release that a file lies in; None outside any, and in a checkout, which git updates.

    A `.git` makes a checkout of a release only when it follows a remote and has something checked out: after a bare `git init`
    nobody would update it any more.
    """
    for folder in Path(os.path.realpath(path)).parents:
        if (folder / RELEASE).exists():
            return None if _follows_a_remote(folder) else folder
        if (folder / ".git").exists():
            return None
    return None


def _follows_a_remote(folder: Path) -> bool:
    """Whether a folder's `.git` names a remote and has a commit checked out; read as text, as HEAD is."""
    if not checkout_head(folder):
        return False
    try:
        config = _common_dir(_git_dir(folder)) / "config"
        with open(config, "rb") as file:
            return _REMOTE.search(file.read(MAX_RECORD)) is not None
    except (OSError, ValueError):
        return False


def _released_code(folder: Path) -> CodeIdentity:
    """What an unpacked release states about itself; unknown where its note cannot be read."""
    code = CodeIdentity(install_id=install_id_for(folder), code_version=__version__)
    try:
        note: Any = read_json(folder / RELEASE, MAX_NOTE)
    except StoreError:
        return code
    commit = note.get("commit") if isinstance(note, dict) else None
    return attrs.evolve(code, code_sha=commit) if isinstance(commit, str) and _SHA.match(commit) else code


def running_code(anchor: Path | None = None) -> CodeIdentity:
    """Identity of the code this process imported: its generation, else its checkout's HEAD or its release's note. Never raises.

    Args:
        anchor: a file of the code in question; default this package. A long-lived process asks once, at its start.
    """
    anchor = Path(__file__) if anchor is None else anchor
    generation = generation_of(anchor)
    if generation is not None:
        try:
            return read_identity(generation)
        except StoreError:
            return CodeIdentity(generation=generation.name, code_version=__version__)
    release = release_of(anchor)
    if release is not None:
        return _released_code(release)
    checkout = checkout_of(anchor)
    if checkout is None:
        return CodeIdentity(code_version=__version__)
    return CodeIdentity(
        install_id=install_id_for(checkout), code_sha=checkout_head(checkout), code_version=__version__
    )
