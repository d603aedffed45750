"""What a tree may hold before one byte of it is written (threats.md 1, decision 52). Pure."""

from __future__ import annotations

import posixpath
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import attrs

from nedura.errors import UpdateError
from nedura.text import clean
from nedura.update.generation.start_hooks import is_start_hook

__all__ = [
    "Entry",
    "check_entries",
    "check_link",
    "check_start_hooks",
    "find_twins",
    "left_out",
    "needs_lfs",
    "parse_listing",
]

MAX_FILES: Final = 200_000
MAX_BYTES: Final = 8 << 30
MAX_BLOB: Final = 1 << 30
_DOTGIT: Final = {".git", "git~1"}
_MODES: Final = {"100644", "100755", "120000"}


@attrs.frozen
class Entry:
    """One file of a tree: git mode, blob id, size in bytes, path."""

    mode: str
    oid: str
    size: int
    path: str


def parse_listing(data: bytes) -> list[Entry]:
    """Entries of `git ls-tree -r -l -z --full-tree`."""
    entries = []
    for line in data.split(b"\0"):
        if not line:
            continue
        head, _, name = line.partition(b"\t")
        mode, _, oid, size = head.decode("ascii").split()
        path = name.decode("utf-8", "surrogateescape")
        entries.append(Entry(mode, oid, int(size) if size.isdigit() else 0, path))
    return entries


def _bad(path: str, why: str) -> UpdateError:
    return UpdateError(
        f"The new version holds {clean(ascii_name(path), 160)}, {why}.",
        stop_class="tree",
        advice="Nothing was changed. Tell whoever publishes it.",
    )


def ascii_name(path: str) -> str:
    """A path that can be shown: control characters and undecodable bytes as escapes."""
    return "".join(ch if ch.isprintable() else ch.encode("unicode_escape").decode() for ch in path)


def _check_path(path: str) -> None:
    plain = (
        path.isascii() and path.isprintable()
    )  # nearly every name: letter by letter only where it can matter
    if path.startswith("/") or (not plain and any(unicodedata.category(ch) in ("Cc", "Cs") for ch in path)):
        raise _bad(path, "whose name is absolute or holds control characters")
    for part in path.split("/"):
        folded = part.casefold().rstrip(". ")
        if part in ("", ".", "..") or folded in _DOTGIT:
            raise _bad(path, "whose path leaves the tree or names a git folder")
        if part.startswith("-"):
            raise _bad(path, "whose name looks like an option")


def _fold(path: str) -> str:
    if path.isascii():
        return path.lower()
    return unicodedata.normalize("NFC", path.casefold())


def check_entries(entries: Iterable[Entry], *, submodules: bool = False) -> None:
    """Refuse what could land outside the tree, on top of another file, or fill the disk.

    Args:
        entries: the whole tree.
        submodules: accept a submodule as an empty folder (the product said so).

    Raises:
        UpdateError: names the entry.
    """
    seen: dict[str, str] = {}
    judged: set[str] = set()
    total = count = 0
    for entry in entries:
        count += 1
        total += entry.size
        if entry.mode == "160000" and not submodules:
            raise _bad(entry.path, "a submodule, which is not fetched")
        if entry.mode not in _MODES and entry.mode != "160000":
            raise _bad(entry.path, f"an entry of unknown kind {entry.mode}")
        if entry.size > MAX_BLOB:
            raise _bad(entry.path, f"which is larger than {MAX_BLOB >> 20} MB")
        _check_path(entry.path)
        _check_twins(entry.path, seen, judged)
    if count > MAX_FILES or total > MAX_BYTES:
        raise UpdateError(
            f"The new version holds {count} files and {total >> 20} MB, more than is accepted.",
            stop_class="tree",
        )


def _check_twins(path: str, seen: dict[str, str], judged: set[str]) -> None:
    """Two names that differ only in letter case (or Unicode form) are one file on some systems."""
    while path and path not in judged:
        judged.add(path)
        folded = _fold(path)
        other = seen.setdefault(folded, path)
        if other != path:
            raise _bad(path, f"which differs from {clean(ascii_name(other), 80)} only in letter case")
        path = path.rpartition("/")[0]


def find_twins(names: Iterable[str], added: Iterable[str]) -> dict[str, str]:
    """Path -> the other spelling, for each added path that differs from one of the names (or an earlier one) only in letter case."""
    spelled: dict[str, str] = {}
    for name in names:
        for path in _above(name):
            spelled.setdefault(_fold(path), path)
    found = {}
    for name in added:
        other = next((o for path in _above(name) if (o := spelled.get(_fold(path), path)) != path), "")
        if other:
            found[name] = other
            continue
        for path in _above(name):
            spelled.setdefault(_fold(path), path)
    return found


def _above(path: str) -> Iterator[str]:
    """A path and the folders above it."""
    while path:
        yield path
        path = path.rpartition("/")[0]


def check_start_hooks(entries: Iterable[Entry], roots: Iterable[str]) -> None:
    """Refuse what Python would run at each start, before anything judged it: `sitecustomize` and `usercustomize` on its path.

    Raises:
        UpdateError: names the entry.
    """
    prefixes = [f"{root}/" if root else "" for root in roots]
    for entry in entries:
        if not left_out(entry.path) and any(
            entry.path.startswith(p) and is_start_hook(entry.path[len(p) :]) for p in prefixes
        ):
            raise _bad(entry.path, "which would run at each start of Python")


def check_link(path: str, target: str) -> None:
    """Refuse a symbolic link that leaves the tree.

    Raises:
        UpdateError: it does.
    """
    end = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    if target.startswith("/") or "\0" in target or end == ".." or end.startswith("../"):
        raise _bad(path, "a link that leaves the tree")


def left_out(path: str) -> bool:
    """Whether a file is never materialised: compiled bytecode comes only from sources that we compiled ourselves."""
    return path.endswith((".pyc", ".pyo")) or "__pycache__" in path.split("/")


def needs_lfs(attributes: Mapping[str, str]) -> str:
    """Path of the `.gitattributes` that asks for git-lfs; empty when none does."""
    for path, text in sorted(attributes.items()):
        for line in text.splitlines():
            if not line.lstrip().startswith("#") and "filter=lfs" in line.split():
                return path
    return ""
