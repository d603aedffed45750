"""Copying a text: a local tool where there is a desktop, else the terminal's own OSC 52, said honestly."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from nedura.programs import find_program

__all__ = ["copy"]

_REMOTE: Final = ("SSH_CLIENT", "SSH_TTY", "SSH_CONNECTION")
_MAX: Final = 4096


def _tool(environ: Mapping[str, str]) -> Sequence[str] | None:
    if any(environ.get(name) for name in _REMOTE):
        return None  # a tool there would copy on the other machine
    wanted: list[tuple[bool, tuple[str, ...]]] = [
        (bool(environ.get("WAYLAND_DISPLAY")), ("wl-copy",)),
        (bool(environ.get("DISPLAY")), ("xclip", "-selection", "clipboard")),
        (bool(environ.get("DISPLAY")), ("xsel", "--clipboard", "--input")),
        (sys.platform == "darwin", ("pbcopy",)),
    ]
    for fits, command in wanted:
        program = find_program(command[0], environ) if fits else None
        if program:
            return (program, *command[1:])
    return None


def copy(text: str, write: Callable[[str], None], environ: Mapping[str, str] | None = None) -> str:
    """Copy a text and say what was done. Never raises.

    Args:
        text: at most 4096 characters.
        write: sends an escape sequence to the terminal.
        environ: default the process's own.
    """
    environ = os.environ if environ is None else environ
    text = text[:_MAX]
    command = _tool(environ)
    if command is not None:
        try:
            subprocess.run(command, input=text.encode(), check=True, timeout=3, capture_output=True)
        except (OSError, subprocess.SubprocessError):
            pass
        else:
            return "Copied."
    sequence = f"\x1b]52;c;{base64.b64encode(text.encode()).decode()}\x07"
    write(f"\x1bPtmux;\x1b{sequence}\x1b\\" if environ.get("TMUX") else sequence)
    return "Asked your terminal to copy it. If it cannot, mark the link by hand."
