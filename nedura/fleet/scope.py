"""What is ours: judged by the home a runtime really runs on, and by its install, never by a name (decision 38).

The judgement is pure; `home_key` does the one bit of IO it needs.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import attrs

from nedura.fleet.model import ForeignReason
from nedura.homes import PROFILE_NAME, profiles_root
from nedura.product import NEDURA, Product
from nedura.profiles import is_deleted

__all__ = ["HomeKey", "Scope", "home_from_environ", "home_key", "home_of_process", "homes_of", "same_home"]


@attrs.frozen
class HomeKey:
    """A home in a form that all its spellings share.

    Attributes:
        path: resolved path.
        inode: (device, inode), None when it does not exist.
    """

    path: str
    inode: tuple[int, int] | None = None


def home_key(home: Path | str) -> HomeKey:
    """Resolve a home: links, trailing slashes and bind mounts fall together."""
    path = os.path.realpath(os.path.expanduser(home))
    try:
        info = os.stat(path)
    except (OSError, ValueError):
        return HomeKey(path)
    return HomeKey(path, (info.st_dev, info.st_ino))


def same_home(first: HomeKey, second: HomeKey) -> bool:
    """Whether two keys mean one folder."""
    return first.path == second.path or (first.inode is not None and first.inode == second.inode)


def home_from_environ(environ: Mapping[str, str] | None, product: Product = NEDURA) -> str | None:
    """The home that a process of ours with this environment serves: the variable, else the default under its HOME.

    Only for processes that are proven to be ours: another product ignores our variable and has its own default.
    """
    if environ is None:
        return None
    named = product.setting(environ, "HOME")
    if named:
        return named
    base = environ.get("HOME", "")
    return f"{base}/{product.home_folder}" if base.startswith("/") else None


def home_of_process(
    pid: int, environ: Mapping[str, str] | None, product: Product = NEDURA, *, proc: str = "/proc"
) -> str | None:
    """`home_from_environ` of a live process; a relative path counts from the folder that this process is in.

    Args:
        pid: the process.
        environ: the environment it was started with.
        product: names.
        proc: the process file system.
    """
    named = home_from_environ(environ, product)
    if named is None or named.startswith("~") or os.path.isabs(named):
        return named
    try:
        return os.path.join(os.readlink(f"{proc}/{pid}/cwd"), named)
    except OSError:
        return None  # a relative path alone names no folder


def homes_of(root: Path, *extra: Path) -> tuple[Path, ...]:
    """Homes of an install: the root if it exists, every live profile by name, and what the caller adds (the invoking home)."""
    homes = [root] if root.is_dir() else []
    folder = profiles_root(root)
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        names = []
    homes += [folder / name for name in names if PROFILE_NAME.fullmatch(name) and _live(folder, name)]
    known = [home_key(home) for home in homes]
    for home in extra:
        key = home_key(home)
        if home.is_dir() and not any(same_home(key, other) for other in known):
            homes.append(home)
            known.append(key)
    return tuple(homes)


def _live(folder: Path, name: str) -> bool:
    """Whether a profile is there and not marked as deleted."""
    return (folder / name).is_dir() and not is_deleted(folder.parent, name)


@attrs.frozen
class Scope:
    """What one install owns.

    Attributes:
        homes: its homes with their keys.
        install_id: its id; empty when its code has none.
    """

    homes: tuple[tuple[Path, HomeKey], ...]
    install_id: str = ""

    @classmethod
    def of(cls, homes: Iterable[Path], install_id: str = "") -> Scope:
        """The scope of an install with these homes."""
        return cls(tuple((home, home_key(home)) for home in homes), install_id)

    def home(self, key: HomeKey | None) -> Path | None:
        """Which of our homes a key means; None for a foreign one."""
        if key is None:
            return None
        return next((home for home, own in self.homes if same_home(own, key)), None)

    def foreign_reason(
        self,
        key: HomeKey | None,
        install_id: str,
        *,
        our_entry: bool = True,
        our_unit: bool = False,
        pending: bool = False,
    ) -> ForeignReason | None:
        """Why a runtime is not ours; None when it is.

        Args:
            key: the home it runs on, None when that could not be read.
            install_id: the install its code belongs to, empty when unknown.
            our_entry: its command line, socket or lock proves that it is this product.
            our_unit: its unit or label is of our families and carries our marker.
            pending: it has not published what it runs yet.
        """
        if key is None:
            return "home unreadable"
        if self.home(key) is None:
            return "another home" if our_entry else "another product"
        if not our_entry:
            return "another product"
        if install_id:
            return None if not self.install_id or install_id == self.install_id else "another install"
        return None if our_unit or pending or not self.install_id else "another install"
