"""What a declared build may leave as its artifact: plain files, folders, and links that stay inside it. Opens no file, follows no link."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import attrs

from nedura.errors import UpdateError
from nedura.text import clean
from nedura.update.generation.environment import discard

__all__ = ["ARTIFACT_LIMITS", "ArtifactLimits", "check_artifact", "drop", "is_artifact", "leaves_trace"]


@attrs.frozen(kw_only=True)
class ArtifactLimits:
    """What an artifact may cost: it is copied, hashed and read again with each verification.

    Attributes:
        files: most names in it.
        size: most bytes, as its files state them: a hole counts like content, since a copy may fill it.
    """

    files: int = 100_000
    size: int = 4 << 30


ARTIFACT_LIMITS: Final = ArtifactLimits()
_KINDS: Final = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def is_artifact(place: Path, *, links: bool = True) -> bool:
    """Whether something that can be an artifact stands there: a file or a folder.

    Args:
        place: where to look.
        links: a link that leads to one counts: in a checkout its owner may have put the artifact on another disk.
    """
    try:
        mode = os.stat(place, follow_symlinks=links).st_mode
    except OSError:
        return False
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode)


def leaves_trace(place: Path) -> bool:
    """Whether anything at all stands there, be it a broken link: this install had the artifact once (#90495)."""
    return os.path.lexists(place)


def check_artifact(made: Path, tree: Path, limits: ArtifactLimits = ARTIFACT_LIMITS) -> None:
    """Judge what a build left, before any byte of it is taken; afterwards no file of it has a second name elsewhere.

    Args:
        made: the artifact.
        tree: the copy of the tree that it was built in.
        limits: what it may cost.

    Raises:
        UpdateError: it is missing, of another kind, too large, unreadable, or leads outside; `stop_class` is `build`.
        OSError: the disk refused.
    """
    name = made.relative_to(tree).as_posix()
    if Path(os.path.realpath(made.parent)) != Path(os.path.realpath(tree), name).parent:
        raise _bad(name, "lies behind a link")
    try:
        info = made.lstat()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UpdateError(f"{clean(name)} was not made", stop_class="build") from error
    if stat.S_ISLNK(info.st_mode):
        raise _bad(name, "is a link, and what it leads to would not come along")
    left = limits.size
    shared = []
    for count, (path, found) in enumerate(_everything(made, info), 1):
        shown = path.relative_to(tree).as_posix()
        if problem := _problem(path, found, made):
            raise _bad(shown, problem)
        left -= found.st_size if stat.S_ISREG(found.st_mode) else 0
        if left < 0:
            raise _bad(name, f"has more than {limits.size // 1_000_000} MB, holes included")
        if count > limits.files:
            raise _bad(name, f"has more than {limits.files} files")
        if stat.S_ISREG(found.st_mode) and found.st_nlink > 1:
            shared.append(path)
    for path in shared:
        _own_copy(path)


def _bad(name: str, why: str) -> UpdateError:
    return UpdateError(
        f"{clean(name, 160)} {why}; an artifact holds plain files, folders, and links that stay inside it",
        stop_class="build",
    )


def _everything(made: Path, info: os.stat_result) -> Iterator[tuple[Path, os.stat_result]]:
    """The artifact and what is below it; a folder is entered after it was judged."""
    waiting = [(made, info)]
    while waiting:
        path, found = waiting.pop()
        yield path, found
        if stat.S_ISDIR(found.st_mode):
            with os.scandir(path) as entries:
                waiting += [(Path(entry.path), entry.stat(follow_symlinks=False)) for entry in entries]


def _problem(path: Path, info: os.stat_result, made: Path) -> str:
    """Why one name cannot be part of an artifact; empty when it can. Asked before a folder is entered."""
    kind = stat.S_IFMT(info.st_mode)
    if not all(ch.isprintable() for ch in path.name):
        return "has control characters or undecodable bytes in its name"
    if kind in _KINDS:
        return f"is {_KINDS[kind]}"
    if kind == stat.S_IFLNK:
        return "" if _stays_inside(path, made) else "leads outside"
    if not os.access(path, os.R_OK | (os.X_OK if kind == stat.S_IFDIR else 0)):
        return "cannot be read"
    return ""


def _stays_inside(link: Path, made: Path) -> bool:
    """Whether a link leads to a place in the artifact: as it is written, without a detour outside, and through the other links."""
    target = os.readlink(link)
    top, here = str(made), str(link.parent)
    for part in target.split("/"):
        here = os.path.normpath(os.path.join(here, part))
        if here != top and not here.startswith(f"{top}/"):
            return False
    real, inside = os.path.realpath(link), os.path.realpath(made)
    return not os.path.isabs(target) and (real == inside or real.startswith(f"{inside}/"))


def _own_copy(path: Path) -> None:
    """Replace a file that has other names by a copy: a build tool's cache must not change what is sealed, nor the seal the cache."""
    copy = path.with_name(f".{path.name[:100]}.own")
    shutil.copy2(path, copy, follow_symlinks=False)
    os.replace(copy, path)


def drop(place: Path) -> None:
    """Remove what stands there, of whatever kind, without following a link.

    Raises:
        UpdateError, OSError: the system refused.
    """
    if place.is_dir() and not place.is_symlink():
        discard(place)
    else:
        place.unlink(missing_ok=True)
