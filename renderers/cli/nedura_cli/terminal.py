"""What the terminal can show: colours, light or dark, unicode. Decided once from the environment and the stream."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Final, Literal, TextIO

import attrs

__all__ = ["Depth", "Terminal", "harmless", "to_ascii"]

Depth = Literal[0, 16, 256, 16777216]


_ASCII: Final = str.maketrans(
    {
        "✓": "+", "✗": "x", "→": ">", "⚠": "!", "↷": "~", "↻": "@", "◆": "*", "·": "-", "…": "...", "┊": "|", "│": "|",
        "╎": "|", "❯": ">", "⚔": ">", "⚕": "*", "⚙": "*", "—": "-", "–": "-", "“": '"', "”": '"', "’": "'", "•": "*",
        "⟪": "<", "⟫": ">",
    }
)  # fmt: skip


def harmless(text: str) -> str:
    """Text with a blank for every control, escape and direction character: the last net before a terminal (threats.md 7).

    Unlike `nedura.text.clean` it keeps blanks as they are, so that what is aligned stays aligned.
    """
    return text if text.isprintable() else "".join(char if char.isprintable() else " " for char in text)


def to_ascii(text: str) -> str:
    """Text for a terminal that shows nothing else: our glyphs have stand-ins, the rest becomes a question mark."""
    return text.translate(_ASCII).encode("ascii", "replace").decode()


@attrs.frozen(kw_only=True)
class Terminal:
    """What may be drawn.

    Attributes:
        depth: number of colours; 0 means no colour codes at all.
        light: the background is light.
        unicode: characters beyond ASCII can be shown.
        redraws: a person looks, and the cursor may be moved.
        plain: lines alone were asked for: no boxes, no blocks of colour.
    """

    depth: Depth = 0
    light: bool = False
    unicode: bool = True
    redraws: bool = False
    plain: bool = False

    @classmethod
    def detect(
        cls,
        stream: TextIO,
        environ: Mapping[str, str] | None = None,
        *,
        background: str = "auto",
        plain: bool = False,
    ) -> Terminal:
        """Look at a stream and the environment.

        Args:
            stream: where output goes.
            environ: default the process's own.
            background: `light`, `dark` or `auto` (config `display.background`).
            plain: append-only output was asked for.
        """
        environ = os.environ if environ is None else environ
        person = stream.isatty() and environ.get("TERM", "") not in ("dumb", "")
        return cls(
            depth=_depth(environ) if person and not plain else 0,
            light=background == "light" or (background != "dark" and _light(environ)),
            unicode=_unicode(environ, getattr(stream, "encoding", "") or ""),
            redraws=person and not plain,
            plain=plain,
        )


def _depth(environ: Mapping[str, str]) -> Depth:
    """NO_COLOR (any value but the empty one) wins over everything."""
    if environ.get("NO_COLOR"):
        return 0
    if environ.get("COLORTERM", "").strip().lower() in ("truecolor", "24bit"):
        return 16777216
    return 256 if "256color" in environ.get("TERM", "") else 16


def _light(environ: Mapping[str, str]) -> bool:
    """COLORFGBG is `fg;bg` or `fg;default;bg` with the sixteen colours by number."""
    background = environ.get("COLORFGBG", "").rpartition(";")[2]
    return background.isdecimal() and int(background) in (7, 9, 10, 11, 12, 13, 14, 15)


def _unicode(environ: Mapping[str, str], encoding: str) -> bool:
    """The first locale variable that is set names the terminal's encoding; Python's own may be coerced to UTF-8."""
    if not re.fullmatch(r"utf[-_]?8", encoding, re.IGNORECASE):
        return False
    named = next((environ[name] for name in ("LC_ALL", "LC_CTYPE", "LANG") if environ.get(name)), "")
    if named.partition(".")[0].partition("@")[0] in ("C", "POSIX") and "." not in named:
        return False
    return "." not in named or re.search(r"utf[-_]?8", named, re.IGNORECASE) is not None
