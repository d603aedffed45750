"""Choosing, renaming and deleting profiles: what runs on them is stopped first, and nothing outside the profile is touched."""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
import time
from collections.abc import Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any, Literal, Protocol

from nedura.errors import ProfileError, StoreError
from nedura.homes import DEFAULT_PROFILE, home_for_profile, profiles_root
from nedura.profile_card import edit_card
from nedura.profile_flag import STICKY_FILE, sticky_profile
from nedura.profiles import RENAMING, Profile, check_free, check_name, find_profile, profiles_lock, tombstone
from nedura.records import fsync_folder, make_folder, remove, write_bytes
from nedura.wrappers import find_wrappers, remove_wrapper, retarget_wrapper

__all__ = ["RealRuntimes", "Runtimes", "delete_profile", "rename_profile", "use_profile"]


class Runtimes(Protocol):
    """What runs on a home. Tests pass their own."""

    async def disable(self, home: Path) -> None:
        """Stop and remove the service of a home, if it has one.

        Raises:
            FleetError: it could not be done.
        """
        ...

    async def stop(self, home: Path) -> bool:
        """Stop the gateway of a home; False when none ran.

        Raises:
            FleetError: it survives or cannot be proven to be this home's.
        """
        ...


class RealRuntimes:
    """The real ones."""

    async def disable(self, home: Path) -> None:
        """Remove the home's own services; one of the same name that is pinned to another home is left alone."""
        from nedura.fleet import ServiceRow, gateway_services

        services = gateway_services(home)
        async with aclosing(services.status()) as rows:
            found = [row async for row in rows if isinstance(row, ServiceRow)]
        scopes: set[Literal["user", "system"]] = {
            "system" if row.scope == "system" else "user" for row in found if row.name and row.ours
        }
        for scope in scopes:
            async with aclosing(services.uninstall(scope=scope)) as events:
                async for _ in events:
                    pass

    async def stop(self, home: Path) -> bool:
        """Stop the holder of the home's claim."""
        from nedura.fleet import stop_member

        return await stop_member(home)


def use_profile(root: Path, text: str) -> Profile:
    """Make a profile the one that commands without a flag use.

    Raises:
        ProfileError: there is none of that name.
        StoreError: the choice cannot be saved.
    """
    profile = find_profile(root, text)
    _stick(root, profile.name)
    return find_profile(root, text)


def _stick(root: Path, name: str) -> None:
    if name == DEFAULT_PROFILE:
        remove(root / STICKY_FILE)
    else:
        write_bytes(root / STICKY_FILE, f"{name}\n".encode())


def _mark(root: Path, name: str, content: bytes = b"") -> None:
    make_folder(tombstone(root, name).parent)
    write_bytes(tombstone(root, name), content)


def _own_folder(root: Path, name: str) -> Path:
    """The profile's folder, proven to be a real folder of its own (C116)."""
    if name == DEFAULT_PROFILE:
        raise ProfileError("The default profile is the root itself and cannot be deleted.")
    home = home_for_profile(root, name)
    info = os.lstat(home)
    if not stat.S_ISDIR(info.st_mode):
        raise ProfileError(
            f"{home} is a link, not a profile's own folder.", advice="Remove the link by hand."
        )
    return home


async def delete_profile(
    root: Path, text: str, *, runtimes: Runtimes | None = None, environ: Mapping[str, str] | None = None
) -> Profile:
    """Delete a profile: service off, gateway stopped, tombstone, wrappers, then its folder.

    Args:
        root: the root home.
        text: its name.
        runtimes: what runs on it; default the real ones.
        environ: default the process's own.

    Raises:
        ProfileError: there is none of that name, or it is the default.
        FleetError: something that runs on it could not be stopped; nothing was deleted.
        StoreError: its folder could not be removed.
    """
    runtimes = RealRuntimes() if runtimes is None else runtimes
    profile = find_profile(root, text, half_deleted=True)
    home = _own_folder(root, profile.name)
    await runtimes.disable(home)
    await runtimes.stop(home)
    await asyncio.to_thread(_delete, root, profile.name, environ)
    return profile


def _delete(root: Path, name: str, environ: Mapping[str, str] | None) -> None:
    with profiles_lock(root):
        _mark(root, name)
        for wrapper in find_wrappers(environ):
            if wrapper.profile == name:
                remove_wrapper(wrapper)
        if sticky_profile(root) == name:
            _stick(root, DEFAULT_PROFILE)
        _remove_tree(home_for_profile(root, name))


def _remove_tree(home: Path) -> None:
    """Several tries over a second: somebody may still write while the first one runs.

    Raises:
        StoreError: something of it stays.
    """

    def unlock(function: Any, path: str, _: Any) -> None:
        try:
            os.chmod(os.path.dirname(path), 0o700)
            os.chmod(path, 0o700, follow_symlinks=False)
            function(path)
        except OSError:
            return  # the next try, or the check below, sees it

    for number in range(8):
        time.sleep(0.04 * number)  # in a thread: a writer that is told to stop needs a moment to hear it
        shutil.rmtree(home, onerror=unlock)
        if not os.path.lexists(home):
            fsync_folder(home.parent)
            return
    raise StoreError(f"{home} could not be removed whole.", advice="Remove what is left of it by hand.")


async def rename_profile(
    root: Path,
    text: str,
    to: str,
    *,
    runtimes: Runtimes | None = None,
    environ: Mapping[str, str] | None = None,
) -> Profile:
    """Rename a profile. The default keeps its name and gets a display name.

    Args:
        root: the root home.
        text: its name.
        to: its new name.
        runtimes: what runs on it; default the real ones.
        environ: default the process's own.

    Raises:
        ProfileError: there is none of that name, or the new name is impossible or taken.
        FleetError: what runs on it could not be stopped; nothing was renamed.
        StoreError: it could not be renamed; its files are as before, a service it had is gone and its gateway stopped.
    """
    runtimes = RealRuntimes() if runtimes is None else runtimes
    profile = find_profile(root, text)
    if profile.name == DEFAULT_PROFILE:
        edit_card(root, display_name=to)
        return profile
    name = check_name(to, new=True)
    home = _own_folder(root, profile.name)
    check_free(root, name)
    await runtimes.disable(home)
    await runtimes.stop(home)
    await asyncio.to_thread(_rename, root, profile.name, name, environ)
    return find_profile(root, name)


def _rename(root: Path, old: str, new: str, environ: Mapping[str, str] | None) -> None:
    home, target = home_for_profile(root, old), home_for_profile(root, new)
    with profiles_lock(root):
        sticky = sticky_profile(root) == old
        check_free(root, new)
        remove(tombstone(root, new))
        _mark(root, old, RENAMING)  # killed from here on, the profile is there under one of its names
        try:
            os.rename(home, target)
        except OSError as error:
            remove(tombstone(root, old))
            raise StoreError(f"{home} cannot be renamed: {error.strerror}.") from error
        fsync_folder(profiles_root(root))
        _mark(root, old)
        for wrapper in find_wrappers(environ):
            if wrapper.profile == old:
                retarget_wrapper(wrapper, new, environ=environ)
        if sticky:
            _stick(root, new)
