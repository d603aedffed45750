"""Helper programs (git, uv, systemctl, ...) found once by absolute path, and the environment that children get.

Standard library only: the completion bootstrap uses it before any dependency exists.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping
from typing import Final

__all__ = ["DEFAULT_PATH", "KEPT", "child_environment", "find_program", "safe_path"]

DEFAULT_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

PROXIES: Final = (
    "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy",
)  # fmt: skip
KEPT: Final = ("HOME", "LANG", "LC_CTYPE", "TZ", "TMPDIR", "USER", "LOGNAME", *PROXIES)
"""What every child may inherit. Everything else must be named by who starts it (threats.md 2)."""


def _trusted(folder: str) -> bool:
    """An absolute folder that other users cannot write to."""
    if not os.path.isabs(folder):
        return False
    try:
        info = os.stat(folder)
    except OSError:
        return False
    return stat.S_ISDIR(info.st_mode) and not info.st_mode & stat.S_IWOTH


def safe_path(environ: Mapping[str, str]) -> tuple[str, ...]:
    """PATH without its empty, relative, missing and other-writable parts."""
    parts = (environ.get("PATH") or DEFAULT_PATH).split(os.pathsep)
    return tuple(dict.fromkeys(part for part in parts if _trusted(part)))


def find_program(name: str, environ: Mapping[str, str] | None = None) -> str | None:
    """Absolute path of a helper program on the safe part of PATH; None when it is not there."""
    for folder in safe_path(os.environ if environ is None else environ):
        path = os.path.join(folder, name)
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return None


def child_environment(
    environ: Mapping[str, str] | None = None, *, keep: Iterable[str] = (), **extra: str
) -> dict[str, str]:
    """Environment of a child: the allow-list, the safe PATH, and what the caller adds by name.

    Args:
        environ: where values are taken from; default this process's own.
        keep: further names to inherit.
        extra: values to set.
    """
    environ = os.environ if environ is None else environ
    kept = {name: environ[name] for name in (*KEPT, *keep) if environ.get(name)}
    return {**kept, "PATH": os.pathsep.join(safe_path(environ)), **extra}
