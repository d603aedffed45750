"""Asking the terminal for its background colour (OSC 11), so that a skin can be read on a light one.

The question waits a bounded time and never costs a key: what is typed meanwhile is kept in order, and an answer that comes late (a slow
line) is taken out of the keys whenever it comes. A request for the terminal's attributes (DA1) follows the question: every terminal
answers it, also one that does not know the first.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from typing import Final, TextIO

from prompt_toolkit.input.typeahead import store_typeahead
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.input.vt100_parser import Vt100Parser
from prompt_toolkit.key_binding import KeyPress

from nedura.skin_colors import is_light

__all__ = ["QUERY", "Answers", "AskingInput", "ask_background", "may_ask"]

QUERY: Final = "\x1b]11;?\x1b\\\x1b[c"
WAIT: Final = 0.15
"""Seconds that a start waits for the answer; a terminal on this machine needs a few milliseconds."""

_ANSWER: Final = re.compile(
    r"\x1b\]11;(?P<color>[^\x07\x1b]{0,64})(?:\x07|\x1b\\)|\x1b\[\?(?P<attributes>[0-9;]{0,64})c"
)
_UNFINISHED: Final = re.compile(
    r"\x1b(?:\](?:1(?:1(?:;[^\x07\x1b]{0,64}\x1b?)?)?)?|\[(?:\?[0-9;]{0,64})?)?\Z"
)
_COLOR: Final = re.compile(
    r"rgba?:([0-9a-f]{1,4})/([0-9a-f]{1,4})/([0-9a-f]{1,4})(?:/[0-9a-f]{1,4})?", re.IGNORECASE
)
_SILENT: Final = ("", "dumb", "linux", "cons25", "emacs", "unknown")
"""Terminals that are not asked: they know no answer, or would show the question."""


def may_ask(environ: Mapping[str, str], background: str) -> bool:
    """Whether the question makes sense: nobody has said how the background is, and the terminal can be asked.

    Args:
        environ: TERM and COLORFGBG count.
        background: `display.background` of the config.
    """
    known = background in ("light", "dark") or bool(environ.get("COLORFGBG"))
    term = environ.get("TERM", "")
    return not known and term not in _SILENT and not term.startswith(("vt1", "vt2"))


class Answers:
    """Takes a terminal's answers out of what is typed. No IO.

    Attributes:
        light: whether the background is light; None until it is known.
        done: the terminal has answered what it can.
    """

    def __init__(self) -> None:
        self.light: bool | None = None
        self.done = False
        self._held = ""

    def feed(self, text: str) -> str:
        """What of a text was typed. The beginning of an answer is held back until its end comes, or `flush`."""
        if self.done and self.light is not None and not self._held:
            return text
        typed = _ANSWER.sub(self._take, self._held + text)
        unfinished = _UNFINISHED.search(typed)
        self._held = unfinished.group() if unfinished else ""
        return typed[: len(typed) - len(self._held)]

    def flush(self) -> str:
        """What was held back and proved to be typed, like a single Escape."""
        held, self._held = self._held, ""
        return held

    def _take(self, found: re.Match[str]) -> str:
        if found["attributes"] is not None:
            self.done = True
            return ""
        color = _COLOR.fullmatch(found["color"])
        if color is not None:
            self.light = is_light("#" + "".join(_channel(part) for part in color.groups()))
        return ""


def _channel(digits: str) -> str:
    """XParseColor: one to four hexadecimal digits, each form scaled to its own full value."""
    return f"{round(255 * int(digits, 16) / (16 ** len(digits) - 1)):02x}"


class AskingInput(Vt100Input):
    """A terminal's keys without the answers that it was asked for.

    Attributes:
        answers: what it has answered.
    """

    def __init__(self, stdin: TextIO) -> None:
        super().__init__(stdin)
        self.answers = Answers()
        self._keys: list[KeyPress] = []
        self.vt100_parser = Vt100Parser(self._keys.append)

    def read_keys(self) -> list[KeyPress]:
        """The keys that were pressed."""
        self.vt100_parser.feed(self.answers.feed(self.stdin_reader.read()))
        return self._taken()

    def flush_keys(self) -> list[KeyPress]:
        """The keys of what nothing followed."""
        self.vt100_parser.feed(self.answers.flush())
        self.vt100_parser.flush()
        return self._taken()

    def _taken(self) -> list[KeyPress]:
        keys = list(self._keys)
        self._keys.clear()
        return keys


async def ask_background(source: AskingInput, write: Callable[[str], None], wait: float = WAIT) -> None:
    """Ask, and wait a while for the answer; `source.answers` knows it then or later.

    Args:
        source: where the answer comes from. What is typed meanwhile is kept for the next application on it.
        write: sends the question to the terminal.
        wait: seconds at most.
    """
    heard = asyncio.Event()
    typed: list[KeyPress] = []

    def ready() -> None:
        typed.extend(source.read_keys())
        if source.answers.done or source.answers.light is not None or source.closed:
            heard.set()

    with source.raw_mode(), source.attach(ready):
        write(QUERY)
        try:
            await asyncio.wait_for(heard.wait(), wait)
        except TimeoutError:
            pass
    store_typeahead(source, typed)
