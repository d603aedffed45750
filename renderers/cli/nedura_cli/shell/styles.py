"""A look as prompt_toolkit wants it. Typed text keeps the terminal's colour; only the prompt symbol is coloured."""

from __future__ import annotations

from typing import Final

from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.styles import Style

from nedura_cli.look import Look
from nedura_cli.shell.login import LoginPanel

__all__ = ["depth_of", "panel_fragments", "style_of"]

_DEPTHS: Final = {
    0: ColorDepth.DEPTH_1_BIT,
    16: ColorDepth.DEPTH_4_BIT,
    256: ColorDepth.DEPTH_8_BIT,
    16777216: ColorDepth.DEPTH_24_BIT,
}

_TEXT: Final = {
    "prompt": "prompt",
    "rule": "input_rule",
    "panel": "banner_text",
    "panel.head": "banner_title",
    "panel.hint": "banner_dim",
    "wait": "ui_accent",
    "tail": "banner_text",
}
_ON_BAR: Final = {
    "status": "status_bar_text",
    "status_bar_text": "status_bar_text",
    "status_bar_strong": "status_bar_strong",
    "status_bar_dim": "status_bar_dim",
    "status_bar_good": "status_bar_good",
    "status_bar_warn": "status_bar_warn",
    "status_bar_bad": "status_bar_bad",
    "status_bar_critical": "status_bar_critical",
}


def depth_of(look: Look) -> ColorDepth:
    """Colour depth of the terminal."""
    return _DEPTHS[look.terminal.depth]


def style_of(look: Look) -> Style:
    """Every class that the shell draws with."""
    if not look.terminal.depth:
        plain = dict.fromkeys((*_TEXT, *_ON_BAR), "noreverse")
        menu = {"completion-menu": "noinherit", "completion-menu.completion.current": "reverse"}
        return Style.from_dict({**plain, "status": "reverse", **menu})
    rules = {name: look.color(key) for name, key in _TEXT.items()}
    bar = look.color("status_bar_bg")
    rules |= {name: f"bg:{bar} {look.color(key)}" for name, key in _ON_BAR.items()}
    text = look.color("status_bar_text")
    rules |= {
        "completion-menu": f"bg:{look.color('completion_menu_bg')} {text}",
        "completion-menu.completion": f"bg:{look.color('completion_menu_bg')} {text}",
        "completion-menu.completion.current": f"bg:{look.color('completion_menu_current_bg')} {text} noreverse",
        "completion-menu.meta.completion": f"bg:{look.color('completion_menu_meta_bg')} {text}",
        "completion-menu.meta.completion.current": f"bg:{look.color('completion_menu_meta_current_bg')} {text}",
        "selected": f"bg:{look.color('selection_bg')}",
        "panel.qr": "bg:#000000 #ffffff",  # dark on light whatever the terminal: that is what cameras look for
    }
    return Style.from_dict(rules)


def panel_fragments(panel: LoginPanel, look: Look, width: int, height: int) -> StyleAndTextTuples:
    """A sign-in's panel as prompt_toolkit draws it."""
    shown: StyleAndTextTuples = []
    for part, line in panel.lines(width, height, unicode=look.terminal.unicode):
        shown += [("", "\n")] if shown else []
        shown.append((f"class:panel.{part}", look.fit(line)))
    return shown
