"""Which home is meant: context override, environment, platform default; and the root that profiles hang from.

Standard library only: an entry point asks this before anything else is imported.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Final

__all__ = [
    "DEFAULT_PROFILE",
    "PROFILE_NAME",
    "current_home",
    "home_for_profile",
    "home_override",
    "native_home",
    "process_home",
    "profile_name",
    "profiles_root",
    "root_home",
]

HOME_VARIABLE: Final = "NEDURA_HOME"
HOME_FOLDER: Final = ".nedura"
DEFAULT_PROFILE: Final = "default"
PROFILE_NAME: Final = re.compile(r"^[a-z0-9][a-z0-9_-]{0,63}$")
"""The one name rule of profiles (facts/runtime.md 6.1)."""

_override: ContextVar[str | None] = ContextVar("nedura_home_override", default=None)


def native_home(environ: Mapping[str, str] | None = None, folder: str = HOME_FOLDER) -> Path:
    """The platform's default home, `~/.nedura`."""
    environ = os.environ if environ is None else environ
    base = environ.get("HOME") or os.path.expanduser("~")
    return Path(base) / folder


def process_home(
    environ: Mapping[str, str] | None = None, variable: str = HOME_VARIABLE, folder: str = HOME_FOLDER
) -> Path:
    """The home this process was started for: the environment, else the platform default. Identity files live here."""
    environ = os.environ if environ is None else environ
    named = environ.get(variable, "").strip()
    return Path(os.path.abspath(os.path.expanduser(named))) if named else native_home(environ, folder)


def current_home(environ: Mapping[str, str] | None = None) -> Path:
    """The home of the running activity: context override, else `process_home`."""
    override = _override.get()
    return Path(override) if override is not None else process_home(environ)


@contextmanager
def home_override(home: Path) -> Iterator[None]:
    """Bind an activity of a process that serves several profiles to one home. The environment is never changed."""
    token = _override.set(str(home))
    try:
        yield
    finally:
        _override.reset(token)


def root_home(home: Path, environ: Mapping[str, str] | None = None) -> Path:
    """The root that a home's profiles hang from: the native home if inside it, the grandparent of `profiles/<x>`, else itself."""
    native = native_home(environ)
    if home == native or native in home.parents:
        return native
    if home.parent.name == "profiles":
        return home.parent.parent
    return home


def profiles_root(root: Path) -> Path:
    """Where named profiles of a root live."""
    return root / "profiles"


def home_for_profile(root: Path, name: str) -> Path:
    """Home of a profile by name; the name must already have passed `PROFILE_NAME`."""
    return root if name == DEFAULT_PROFILE else profiles_root(root) / name


def profile_name(home: Path, root: Path | None = None) -> str:
    """Profile name of a home: `default`, its folder name, or `custom` for a home outside the tree."""
    root = root_home(home) if root is None else root
    if home == root:
        return DEFAULT_PROFILE
    if home.parent == profiles_root(root):
        return home.name
    real, real_root = Path(os.path.realpath(home)), Path(os.path.realpath(root))
    if real == real_root:
        return DEFAULT_PROFILE
    return real.name if real.parent == profiles_root(real_root) else "custom"
