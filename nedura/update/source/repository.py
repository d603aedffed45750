"""Our own bare repository of an install: a configuration that we write, the source's objects as alternates."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import Final

from nedura.errors import UpdateError
from nedura.installs import InstallPaths
from nedura.records import make_folder, read_bytes, write_bytes
from nedura.update.generation.environment import discard
from nedura.update.generation.generations import is_generation, list_generations, read_manifest
from nedura.update.source.git import Git, find_git
from nedura.update.source.owner_checkout import Source

__all__ = [
    "CONFIG",
    "generation_ref",
    "mend_history",
    "open_repository",
    "rebuild_repository",
    "refresh_alternates",
]

MAX_CUT_DEPTH: Final = 200
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


def rebuild_repository(paths: InstallPaths, source: Source | None, environ: Mapping[str, str]) -> Git:
    """A new repository in place of a damaged one: it holds nothing that cannot be fetched again. Generations stay, their refs where
    their commits can be found.

    Raises:
        UpdateError: it cannot be made.
    """
    discard(paths.repo)
    git = open_repository(paths, source, environ)
    for folder in list_generations(paths):
        if is_generation(folder):
            commit = read_manifest(folder).identity.code_sha
            git.run("update-ref", generation_ref(folder.name), commit, ok=range(256))
    return git


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
