"""How everything looks: one skin on one terminal, for rich and for prompt_toolkit alike."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal, TextIO

import attrs
from rich.box import ASCII, ROUNDED, Box
from rich.console import Console
from rich.style import Style
from rich.text import Text

from nedura.config import read_config
from nedura.errors import ConfigError
from nedura.homes import process_home
from nedura.skins import Skin, load_active
from nedura.text import clean
from nedura_cli.terminal import Terminal, harmless, to_ascii

__all__ = ["Look", "background_of", "find_look"]

LONGEST: Final = 100_000
"""Characters of one drawn text."""

_SYSTEMS: Final[dict[int, Literal["standard", "256", "truecolor"]]] = {
    16: "standard",
    256: "256",
    16777216: "truecolor",
}


@attrs.frozen
class Look:
    """A skin on a terminal.

    Attributes:
        skin: what is wanted.
        terminal: what can be shown.
    """

    skin: Skin
    terminal: Terminal

    def color(self, key: str) -> str:
        """A colour of the skin for this terminal; empty without colours."""
        return self.skin.color(key, light=self.terminal.light) if self.terminal.depth else ""

    def style(self, key: str, *, bold: bool = False, on: str = "") -> Style:
        """A rich style of a colour key, on the background of another."""
        if not self.terminal.depth:
            return Style(bold=bold)
        return Style(color=self.color(key), bgcolor=self.color(on) if on else None, bold=bold)

    def text(self, text: str, key: str = "", *, bold: bool = False) -> Text:
        """Harmless text in a colour, blanks as they are. Never markup."""
        style = self.style(key, bold=bold) if key else Style(bold=bold)
        return Text(self.fit(harmless(text[:LONGEST])), style=style)

    def whole_text(self, text: str, key: str = "") -> Text:
        """As `text`, but nothing is cut off however long it is: for what a person asked for."""
        return Text(self.fit(harmless(text)), style=self.style(key) if key else Style())

    def fit(self, text: str) -> str:
        """Text that this terminal can show: glyphs of ours have ASCII stand-ins, the rest becomes a question mark."""
        if self.terminal.unicode:
            return text
        return to_ascii(text)

    @property
    def box(self) -> Box:
        """Lines of panels."""
        return ROUNDED if self.terminal.unicode else ASCII

    def faces(self, *, thinking: bool = False) -> Iterator[str]:
        """Faces one after the other, without end; those that the terminal cannot show are left out."""
        spinner = self.skin.spinner
        wanted = spinner.thinking_faces if thinking else spinner.waiting_faces
        shown = [face for face in wanted if self.terminal.unicode or face.isascii()]
        return itertools.cycle(shown or ["(-)", "(\\)", "(|)", "(/)"])

    def verbs(self) -> Iterator[str]:
        """Verbs with their wings, without end."""
        wings = [pair for pair in self.skin.spinner.wings if self.terminal.unicode or "".join(pair).isascii()]
        pairs = itertools.cycle(wings or [("", "")])
        for verb, (left, right) in zip(
            itertools.cycle(self.skin.spinner.thinking_verbs), pairs, strict=False
        ):
            yield " ".join(part for part in (left, self.fit(verb), right) if part)

    def tool_line(self, name: str, text: str) -> str:
        """One line about what a tool does: prefix, emoji, name, text."""
        emoji = self.skin.emoji(name)
        if not self.terminal.unicode and not emoji.isascii():
            emoji = ""
        parts = (self.fit(self.skin.tool_prefix), emoji, clean(name, 60), self.fit(clean(text, 300)))
        return " ".join(part for part in parts if part)

    def console(
        self, stream: TextIO | None = None, *, record: bool = False, width: int | None = None
    ) -> Console:
        """A rich console that keeps to what the terminal can show."""
        system = _SYSTEMS.get(self.terminal.depth)
        return Console(
            file=stream or sys.stdout,
            color_system=system,
            no_color=system is None,
            force_terminal=self.terminal.redraws or None,
            highlight=False,
            markup=False,
            emoji=False,
            record=record,
            width=width,
            legacy_windows=False,
        )


def background_of(home: Path) -> str:
    """`display.background` of a home: `light`, `dark` or `auto`."""
    try:
        return str(read_config(home).get("display.background", "auto"))
    except ConfigError:
        return "auto"


def find_look(
    stream: TextIO | None = None, home: Path | None = None, *, plain: bool = False, skin: Skin | None = None
) -> Look:
    """The look of a home on a stream.

    Args:
        stream: default stdout.
        home: default the one in use.
        plain: append-only output was asked for.
        skin: in place of the one that the home has chosen.
    """
    home = process_home() if home is None else home
    terminal = Terminal.detect(stream or sys.stdout, background=background_of(home), plain=plain)
    return Look(skin or load_active(home), terminal)
