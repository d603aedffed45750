"""Commands of a profile's own: `~/.local/bin/<alias>` that runs the launcher with `-p <profile>` (facts/runtime.md 6.3)."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import stat
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

import attrs

from nedura.errors import ProfileError
from nedura.homes import PROFILE_NAME
from nedura.profile_flag import normal_name
from nedura.records import make_folder, remove, write_bytes
from nedura.text import clean

__all__ = ["Wrapper", "find_wrappers", "make_wrapper", "remove_wrapper", "retarget_wrapper", "wrapper_folder"]

LONGEST: Final = 8192
"""Bytes of a file that are looked at."""

_OURS: Final = re.compile(r"^# nedura -p (?P<profile>[a-z0-9][a-z0-9_-]{0,63})$", re.MULTILINE)


@attrs.frozen(kw_only=True)
class Wrapper:
    """One command of ours.

    Attributes:
        alias: its name.
        profile: whom it serves.
        path: its file.
    """

    alias: str
    profile: str
    path: Path


def wrapper_folder(environ: Mapping[str, str] | None = None) -> Path:
    """Where wrappers go."""
    environ = os.environ if environ is None else environ
    return Path(environ.get("HOME") or os.path.expanduser("~")) / ".local" / "bin"


def _script(launcher: Path, profile: str) -> str:
    command = shlex.quote(str(launcher))
    return f'#!/bin/sh\n# nedura -p {profile}\nexec {command} -p {profile} "$@"\n'


def _read(path: Path) -> str:
    """The head of a small regular file; empty for everything else. Folders of programs hold huge files and pipes (C190)."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return ""
    try:
        info = os.fstat(handle)
        if not stat.S_ISREG(info.st_mode) or info.st_size > LONGEST:
            return ""
        data = os.read(handle, LONGEST)
    except OSError:
        return ""
    finally:
        os.close(handle)
    return data.decode("utf-8", "replace") if data.startswith(b"#!") else ""


def _profile_of(path: Path) -> str:
    found = _OURS.search(_read(path))
    return found["profile"] if found else ""


def find_wrappers(environ: Mapping[str, str] | None = None) -> tuple[Wrapper, ...]:
    """Every wrapper of ours, by alias. Only names that can be one and the head of small files are looked at."""
    folder = wrapper_folder(environ)
    try:
        names = sorted(name for name in os.listdir(folder) if PROFILE_NAME.fullmatch(name))
    except OSError:
        return ()
    found = ((name, _profile_of(folder / name)) for name in names)
    return tuple(
        Wrapper(alias=name, profile=profile, path=folder / name) for name, profile in found if profile
    )


def make_wrapper(
    profile: str,
    alias: str,
    launcher: Path,
    *,
    reserved: Collection[str] = (),
    environ: Mapping[str, str] | None = None,
) -> Wrapper:
    """Write a wrapper.

    Args:
        profile: whom it serves.
        alias: its name; the rule of profile names.
        launcher: what it runs.
        reserved: names that it must not take: our own subcommands.
        environ: default the process's own.

    Raises:
        ProfileError: the name is impossible, reserved or taken by another program.
        StoreError: it cannot be written.
    """
    environ = os.environ if environ is None else environ
    name = normal_name(alias)
    if not PROFILE_NAME.fullmatch(name):
        raise ProfileError(f"{clean(alias, 70)!r} is no command name.", advice="Use a-z, 0-9, _ and -.")
    if name in reserved:
        raise ProfileError(f"The name {name!r} is a command of nedura itself.", advice="Choose another one.")
    path = wrapper_folder(environ) / name
    taken = shutil.which(name, path=environ.get("PATH"))
    if (os.path.lexists(path) and not _profile_of(path)) or (taken and Path(taken) != path):
        raise ProfileError(f"There is a command {name!r} already: {clean(taken or path, 200)}.")
    make_folder(path.parent, 0o755)
    write_bytes(path, _script(launcher, profile).encode(), 0o755)
    return Wrapper(alias=name, profile=profile, path=path)


def retarget_wrapper(wrapper: Wrapper, profile: str, *, environ: Mapping[str, str] | None = None) -> Wrapper:
    """Let a wrapper serve a profile's new name; the one that was named after the old is renamed too, if the name is free.

    Free means that no other program has it: a profile that is renamed to `git` must not take the place of git.

    Raises:
        StoreError: it cannot be written.
    """
    environ = os.environ if environ is None else environ
    script = _read(wrapper.path).replace(f"-p {wrapper.profile}", f"-p {profile}")
    alias = profile if wrapper.alias == wrapper.profile else wrapper.alias
    path = wrapper.path.with_name(alias)
    if path != wrapper.path and (os.path.lexists(path) or shutil.which(alias, path=environ.get("PATH"))):
        alias, path = wrapper.alias, wrapper.path
    write_bytes(path, script.encode(), 0o755)
    if path != wrapper.path:
        remove(wrapper.path)
    return Wrapper(alias=alias, profile=profile, path=path)


def remove_wrapper(wrapper: Wrapper) -> bool:
    """Remove a wrapper if it is still ours; False when it is not there or not ours."""
    return _profile_of(wrapper.path) == wrapper.profile and remove(wrapper.path)
