"""Banner art: a few style tags, everything else is text. Never rich markup, which could hold links (threats.md 7)."""

from __future__ import annotations

import re
from typing import Final

from rich.style import Style
from rich.text import Text

__all__ = ["art"]

_TAG: Final = re.compile(r"\[(bold|dim|italic|#[0-9a-fA-F]{6}|/)\]")


def art(source: str, *, colors: bool = True) -> Text:
    """Style a skin's art.

    Args:
        source: cleaned text with `[bold]`, `[dim]`, `[italic]`, `[#rrggbb]` and `[/]`.
        colors: whether the terminal has colours.
    """
    text, stack, last = Text(no_wrap=True), [Style()], 0
    for tag in _TAG.finditer(source):
        text.append(source[last : tag.start()], stack[-1])
        last = tag.end()
        if tag[1] == "/":
            stack = stack[:-1] or [Style()]
        else:
            stack.append(stack[-1] + _style(tag[1], colors))
    text.append(source[last:], stack[-1])
    return text


def _style(name: str, colors: bool) -> Style:
    if name.startswith("#"):
        return Style(color=name) if colors else Style()
    return Style(bold=name == "bold" or None, dim=name == "dim" or None, italic=name == "italic" or None)
