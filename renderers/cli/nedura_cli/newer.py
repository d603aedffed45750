"""The passive notice at a start: that a newer version is there."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from nedura.installs import running_code
from nedura.product import NEDURA
from nedura.update import Launch, passive_notice

__all__ = ["newer_version"]


def newer_version(root: Path, environ: Mapping[str, str] | None = None, *, sparing: bool = False) -> str:
    """One line about a newer version of the install that this code belongs to, or nothing. Reads files; never raises.

    Code that runs straight from a checkout which is no install of this home has nothing to say about the install that is one.

    Args:
        root: the root home.
        environ: default the process's own.
        sparing: say it at most daily, as a command that is typed all day does; the shell says it at each start.
    """
    environ = os.environ if environ is None else environ
    if environ.get(NEDURA.env("SUPERVISED_CHILD")):
        return ""
    launch = Launch.here(lambda _: None, environ)
    if launch is None or launch.install.root_home != root or not launch.install.record.is_file():
        return ""
    current = running_code().code_sha
    launcher = launch.install.launcher(NEDURA.command)
    return (
        passive_notice(root, NEDURA, current, launcher, environ=environ, sparing=sparing) if current else ""
    )
