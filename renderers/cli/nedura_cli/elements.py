"""The pieces every surface is made of: banner, answer box, status bar. All from one `Look`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.text import Text

import nedura
from nedura.text import clean, clean_block
from nedura_cli.art import art
from nedura_cli.look import Look
from nedura_cli.tables import cells

__all__ = ["StatusFacts", "answer_box", "answer_edges", "banner", "heading", "status_parts"]

COMPACT: Final = 60
"""Columns under which the banner is one line."""


@attrs.frozen(kw_only=True)
class StatusFacts:
    """What the status bar knows.

    Attributes:
        profile: active profile.
        account: signed-in account, empty for none.
        model: model that answers, empty for none.
        gateway: version of the running gateway, empty for none.
        owed: what of an update is owed, in its words; empty for nothing.
        busy: something runs: its words.
    """

    profile: str = "default"
    account: str = ""
    model: str = ""
    gateway: str = ""
    owed: str = ""
    busy: str = ""


def heading(look: Look, text: str) -> Text:
    """Title of a section."""
    return look.text(text, "banner_accent", bold=True)


def banner(look: Look, facts: StatusFacts, width: int) -> RenderableType:
    """The welcome: art, name, what is in use; one line on a narrow terminal."""
    words = look.skin.branding
    title = look.text(f"{words.agent_name} {nedura.__version__}", "banner_title", bold=True)
    if width < COMPACT:
        return Group(title, look.text(words.welcome, "banner_text"))
    lines: list[RenderableType] = [
        art(look.fit(look.skin.art[key]), colors=bool(look.terminal.depth))
        for key in ("banner_logo", "banner_hero")
        if look.skin.art[key]
    ]
    if look.terminal.plain:
        lines = [title]
    lines += [_fact(look, name, value) for name, value in _rows(facts)]
    lines += ["", look.text(words.welcome, "banner_text")]
    if look.terminal.plain:
        return Group(*lines)
    return Panel(
        Group(*lines),
        title=title,
        title_align="left",
        border_style=look.style("banner_border"),
        box=look.box,
        padding=(1, 2),
        width=min(width, 84),
    )


def _rows(facts: StatusFacts) -> Sequence[tuple[str, str]]:
    return (
        ("profile", facts.profile),
        ("account", facts.account or "not signed in"),
        ("model", facts.model or "none chosen"),
        ("gateway", facts.gateway or "not running"),
    )


def _fact(look: Look, name: str, value: str) -> Text:
    return Text.assemble(look.text(f"{name:<9}", "banner_dim"), look.text(value, "banner_text"))


def answer_box(look: Look, text: str, width: int) -> RenderableType:
    """A whole answer in its box."""
    label = look.fit(look.skin.branding.response_label.strip())
    answer = Text(look.fit(clean_block(text, 100_000)), style=look.style("banner_text"))
    if look.terminal.plain:
        return Group(look.text(label, "banner_title"), answer)
    return Panel(
        answer,
        title=Text(label, style=look.style("banner_title", bold=True)),
        title_align="left",
        border_style=look.style("response_border"),
        box=look.box,
        width=min(width, 100),
    )


def answer_edges(look: Look, width: int) -> tuple[str, str]:
    """The upper and the lower edge of an answer that streams between them: its lines stay free of borders, so that they can be copied."""
    width = min(width, 100)
    label = f" {look.skin.branding.response_label.strip()} "
    top = f"╭─{label}{'─' * max(0, width - 4 - cells(label))}─╮"
    bottom = f"╰{'─' * (width - 2)}╯"
    return _edge(look, top), _edge(look, bottom)


def _edge(look: Look, line: str) -> str:
    if look.terminal.unicode:
        return line
    return look.fit(line.translate(str.maketrans("╭╮╰╯─", "++++-")))


def status_parts(look: Look, facts: StatusFacts, width: int) -> list[tuple[str, str]]:
    """The status bar as (colour key, text) parts that fit a width; what matters least goes first."""
    parts = [
        ("status_bar_strong", facts.profile),
        ("status_bar_text", facts.account or "not signed in"),
        ("status_bar_text", facts.model or "no model"),
        ("status_bar_good" if facts.gateway else "status_bar_dim", f"gateway {facts.gateway or 'off'}"),
    ]
    if facts.owed:
        parts.append(("status_bar_warn", facts.owed))
    if facts.busy:
        parts.append(("status_bar_warn", facts.busy))
    shown = [(key, look.fit(clean(text, 60))) for key, text in parts]
    for victim in (1, 2, 3):
        if _width(shown) <= width:
            break
        shown = [part for part in shown if part[1] != look.fit(clean(parts[victim][1], 60))]
    return shown


def _width(parts: Sequence[tuple[str, str]]) -> int:
    return sum(cells(text) + 3 for _, text in parts)
