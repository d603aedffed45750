"""Whether and how a page is opened for the user (facts/signin.md 6). Link and code are always shown as text first."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from typing import Final

from nedura.programs import find_program
from nedura.urls import plain_url

__all__ = ["browser_command", "open_page", "why_not"]

REMOTE: Final = (
    "SSH_CLIENT", "SSH_TTY", "CLOUD_SHELL", "CODESPACES", "CODESPACE_NAME", "GITPOD_WORKSPACE_ID", "REPL_ID", "STACKBLITZ",
)  # fmt: skip
TEXT_BROWSERS: Final = frozenset({"w3m", "lynx", "links", "links2", "elinks", "www-browser", "browsh"})


def why_not(environ: Mapping[str, str], platform: str = sys.platform) -> str:
    """Why no browser is opened here; empty when one may be. A text-mode browser would take the terminal over."""
    if any(environ.get(name) for name in REMOTE):
        return "this is a remote session"
    named = environ.get("BROWSER", "").split()
    if named and PurePath(named[0]).name in TEXT_BROWSERS:
        return "the browser is a text-mode one"
    if platform.startswith("linux") and not (environ.get("DISPLAY") or environ.get("WAYLAND_DISPLAY")):
        return "there is no display"
    return ""


def browser_command(
    environ: Mapping[str, str], platform: str = sys.platform, find: Callable[..., object] = find_program
) -> list[str]:
    """The argv that opens a page, without the page; empty when there is none."""
    name = "open" if platform == "darwin" else "xdg-open"
    found = None if platform == "win32" else find(name, environ)
    return [str(found)] if found else []


def _start(argv: Sequence[str]) -> None:
    subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def open_page(
    url: str,
    environ: Mapping[str, str] | None = None,
    platform: str = sys.platform,
    start: Callable[[Sequence[str]], None] = _start,
) -> bool:
    """Open a page in a graphical browser; False when that is not wanted or not possible here.

    The URL is one argument of an argv, never a shell's, and only when it has the plain form of an address (threats.md 8).
    """
    environ = os.environ if environ is None else environ
    if why_not(environ, platform) or plain_url(url) is None:
        return False
    command = browser_command(environ, platform)
    if not command:
        return False
    try:
        start([*command, url])
    except OSError:
        return False
    return True
