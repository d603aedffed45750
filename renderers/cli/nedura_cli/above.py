"""Printing above a running prompt_toolkit application without leaving raw mode: keys that are typed meanwhile are not lost."""

from __future__ import annotations

import io
from typing import Any

from prompt_toolkit.application import Application
from rich.console import RenderableType

from nedura_cli.look import Look

__all__ = ["drawn", "print_above"]


def print_above(app: Application[Any], text: str) -> None:
    """Write text into the terminal's scrollback, just above what the application draws."""
    if not app.is_running:
        app.output.write_raw(text)
        app.output.flush()
        return
    app.renderer.erase(leave_alternate_screen=False)
    app.output.write_raw(text.replace("\n", "\r\n"))
    app.output.flush()
    app.renderer.request_absolute_cursor_position()
    app._redraw()


def drawn(app: Application[Any], look: Look, what: RenderableType, *, wrap: bool = True) -> str:
    """Something that rich draws, as text for `print_above`.

    Args:
        app: whose terminal.
        look: colours.
        what: what to draw.
        wrap: break long lines; without it they are left to the terminal, so that a link stays whole.
    """
    stream = io.StringIO()
    look.console(stream, width=app.output.get_size().columns).print(what, soft_wrap=not wrap)
    return stream.getvalue()
