"""Our own bare repository of an install: a configuration that we write, the source's objects as alternates."""

from __future__ import annotations

import itertools
import os
import re
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import attrs

from nedura.errors import UpdateError
from nedura.installs import InstallPaths
from nedura.records import make_folder, read_bytes, write_bytes
from nedura.update.generation.environment import discard
from nedura.update.generation.generations import is_generation, list_generations, read_manifest
from nedura.update.source.git import Git, find_git
from nedura.update.source.owner_checkout import Source

__all__ = [
    "CONFIG",
    "PARKED",
    "generation_ref",
    "mend_history",
    "open_repository",
    "refresh_alternates",
    "replace_repository",
    "repository_aside",
]

MAX_CUT_DEPTH: Final = 200
PARKED: Final = "refs/nedura/parked/"
"""Refs of local work that was left out of a version: nowhere else is it kept."""
_ID: Final = re.compile(rb"[0-9a-f]{40}(?:[0-9a-f]{24})?\Z")
CONFIG: Final = """\
[core]
\trepositoryformatversion = {version}
\tbare = true
\tfilemode = true
\tlogAllRefUpdates = false
\tfsmonitor = false
\thooksPath = /dev/null
\tcommitGraph = true
[fetch]
\tfsckObjects = true
\trecurseSubmodules = false
\twriteCommitGraph = false
[transfer]
\tbundleURI = false
[gc]
\tauto = 0
[maintenance]
\tauto = false
[extensions]
\tobjectFormat = {format}
"""


def generation_ref(name: str) -> str:
    """The ref that keeps a generation's commit."""
    return f"refs/generations/{name}"


def open_repository(
    paths: InstallPaths, source: Source | None, environ: Mapping[str, str] | None = None
) -> Git:
    """The install's repository, made when it is not there, with the source's objects to read from.

    Raises:
        UpdateError: git is missing or the repository cannot be made.
    """
    environ = dict(os.environ if environ is None else environ)
    git = Git(program=find_git(environ), repo=paths.repo, environ=environ)
    if not (paths.repo / "HEAD").is_file():
        _make(git, source)
    if source is not None:
        refresh_alternates(git, source)
    return git


def repository_aside(paths: InstallPaths, source: Source | None, environ: Mapping[str, str]) -> Git:
    """A new repository beside a damaged one, with all of it that can still be read: only a fetch that works proves that the fault was
    here and not at the remote. `replace_repository` puts it in place; a left-over one is swept.

    Raises:
        UpdateError: it cannot be made.
    """
    old = open_repository(paths, source, environ)
    fresh = attrs.evolve(old, repo=paths.folder / f".tmp.repo.{secrets.token_hex(6)}")
    try:
        _make(fresh, source)
        if source is not None:
            refresh_alternates(fresh, source)
        _carry_over(old, fresh, paths)
    except BaseException:
        discard(fresh.repo)
        raise
    return fresh


def replace_repository(paths: InstallPaths, fresh: Git) -> tuple[Git, Path | None]:
    """Put a repository from `repository_aside` in place; returns it, and where the old one stays when parked work in it was unreadable.

    Raises:
        OSError: the disk refused.
    """
    old = attrs.evolve(fresh, repo=paths.repo)
    folder = paths.repo / PARKED  # a ref that is broken itself is listed by nobody
    parked = {f"{PARKED}{name}" for name in (os.listdir(folder) if folder.is_dir() else ())}
    lost = (parked | {ref for ref in _refs(old) if ref.startswith(PARKED)}) - set(_refs(fresh))
    names = (f"{paths.repo.name}.damaged.{number}" for number in itertools.count(1))
    aside = next(path for name in names if not (path := paths.folder / name).exists())
    os.rename(paths.repo, aside)
    os.rename(fresh.repo, paths.repo)
    if lost:
        return old, aside
    discard(aside)
    return old, None


def _refs(git: Git) -> dict[str, str]:
    """Refs of a repository, as far as it can list them."""
    answer = git.run("for-each-ref", "--format=%(refname) %(objectname)", ok=range(256))
    rows = (line.split() for line in answer.text.splitlines())
    return {row[0]: row[1] for row in rows if len(row) == 2}


def _carry_over(old: Git, fresh: Git, paths: InstallPaths) -> None:
    """Parked work, what was known of the remote, and the trees of generations: together when all is whole, else one by one."""
    refs = _refs(old)
    trees = [
        read_manifest(folder).identity.tree_hash
        for folder in list_generations(paths)
        if is_generation(folder)
    ]
    wanted = dict.fromkeys(oid for oid in (*refs.values(), *trees) if oid)
    if not _copy(old, fresh, wanted):
        for oid in wanted:
            _copy(old, fresh, (oid,))
    for ref, oid in refs.items():
        if _whole(fresh, oid):
            fresh.run("update-ref", ref, oid, ok=range(256))


def _copy(old: Git, fresh: Git, oids: Iterable[str]) -> bool:
    """Copy objects and all they name, but for what the source has; False when something of it cannot be read."""
    listed = "".join(f"{oid}\n" for oid in oids).encode()
    packed = old.run("pack-objects", "--revs", "--local", "--stdout", "--quiet", stdin=listed, ok=range(256))
    if packed.code != 0:
        return False
    return fresh.run("index-pack", "--stdin", stdin=packed.out, ok=range(256)).code == 0


def _whole(git: Git, oid: str) -> bool:
    """Whether everything that an object names can be read."""
    return git.run("rev-list", "--objects", "--quiet", oid, ok=range(256)).code == 0


def _make(git: Git, source: Source | None) -> None:
    wanted = "sha256" if source is not None and len(source.head) == 64 else "sha1"
    discard(git.repo)
    make_folder(git.repo.parent)
    try:
        # refs as files, whatever a later git prefers: `read_ref` reads them without a process
        plain = {"GIT_DEFAULT_REF_FORMAT": "files"}
        git.run(
            "init",
            "--bare",
            "--quiet",
            "--template=",
            f"--object-format={wanted}",
            str(git.repo),
            extra=plain,
        )
        text = CONFIG.format(version=1 if wanted == "sha256" else 0, format=wanted)
        if wanted == "sha1":
            text = text[: text.index("[extensions]")]
        write_bytes(git.repo / "config", text.encode())
    except BaseException:
        discard(git.repo)
        raise


def refresh_alternates(git: Git, source: Source) -> None:
    """Name the source's object folders, and carry over where a shallow history ends.

    Raises:
        UpdateError: a path cannot be written into git's list.
    """
    lines = [str(folder) for folder in source.alternates]
    if any("\n" in line or line.startswith(("#", '"')) for line in lines):
        raise UpdateError("The path of the source cannot be used by git.", stop_class="git")
    wanted = "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape")
    listed = make_folder(git.repo / "objects" / "info") / "alternates"
    if not listed.is_file() or read_bytes(listed) != wanted:
        write_bytes(listed, wanted)
    if source.shallow:
        _carry_shallow(git, source)


def _carry_shallow(git: Git, source: Source) -> None:
    """One bad line in that file ends every git command, and the owner may have any: only whole ids are taken, ours are kept clean."""
    own = git.repo / "shallow"
    lines = read_bytes(own).split() if own.is_file() else []
    ours = set(filter(_ID.match, lines))
    theirs = set(filter(_ID.match, (source.common_dir / "shallow").read_bytes().split()))
    if not theirs <= ours or len(ours) != len(lines):
        write_bytes(own, b"".join(line + b"\n" for line in sorted(ours | theirs)))


def mend_history(git: Git, tips: Iterable[str]) -> int:
    """Note in our repository where a history ends although nothing says so (a lost `shallow` file); returns how many commits that are.

    Looks at most `MAX_CUT_DEPTH` commits deep: a cut history is short. Writes nothing of the owner's.

    Args:
        git: our repository.
        tips: commits to begin with.

    Raises:
        UpdateError: git failed.
    """
    level, seen, cut = set(tips), set(tips), set[str]()
    for _ in range(MAX_CUT_DEPTH):
        parents = _parents(git, level)
        wanted = {parent for found in parents.values() for parent in found} - seen
        if not wanted:
            break
        there = set(_parents(git, wanted))
        cut |= {commit for commit, found in parents.items() if not seen.union(there).issuperset(found)}
        level = there
        seen |= there
    if cut:
        own = git.repo / "shallow"
        known = set(read_bytes(own).decode("ascii").split()) if own.is_file() else set()
        write_bytes(own, "".join(f"{commit}\n" for commit in sorted(known | cut)).encode())
    return len(cut)


def _parents(git: Git, commits: Iterable[str]) -> dict[str, list[str]]:
    """Parents of the commits that are there, as their objects state them."""
    ids = sorted(commits)
    found: dict[str, list[str]] = {}
    out = git.run("cat-file", "--batch", stdin="".join(f"{commit}\n" for commit in ids).encode()).out
    place = 0
    for commit in ids:
        end = out.index(b"\n", place)
        fields = out[place:end].split()
        place = end + 1
        if fields[-1] == b"missing":
            continue
        size = int(fields[2])
        head = out[place : place + size].partition(b"\n\n")[0].decode("utf-8", "replace")
        found[commit] = [line.split()[1] for line in head.splitlines() if line.startswith("parent ")]
        place += size + 1
    return found
