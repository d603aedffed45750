"""One message to the model: streamed line by line, with the skin's faces and verbs while nothing comes."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final

import attrs

from nedura.text import clean_block
from nedura_cli.look import Look
from nedura_cli.terminal import harmless

__all__ = ["Conversation", "Stream", "Turn"]

Stream = Callable[..., AsyncGenerator[Any, None]]
"""Like `nedura.inference.stream_reply`: pieces of text, or tool events with `name` and `text`."""

LONGEST: Final = 100_000
KEEP: Final = 40
"""Messages of a conversation that are sent along."""


@attrs.define
class Conversation:
    """What was said, oldest first."""

    messages: list[dict[str, str]] = attrs.field(factory=list)

    def asked(self, text: str) -> Sequence[Mapping[str, str]]:
        """The messages to send for a new one."""
        return [*self.messages[-KEEP:], {"role": "user", "content": text}]

    def answered(self, text: str, answer: str) -> None:
        """Keep a pair."""
        self.messages += [{"role": "user", "content": text}, {"role": "assistant", "content": answer}]


class Turn:
    """One answer on its way.

    Args:
        look: how it looks.
        say: prints a finished line above the prompt.
        tool: prints a line about a tool.
        changed: called when the unfinished line should be drawn again.
        now: seconds.
    """

    def __init__(
        self,
        look: Look,
        say: Callable[[str], None],
        tool: Callable[[str], None],
        changed: Callable[[], None],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._look = look
        self._say = say
        self._tool = tool
        self._changed = changed
        self._now = now
        self._faces, self._verbs = look.faces(), look.verbs()
        self._started = self._turned = now()
        self._shown = f"{next(self._faces)} {next(self._verbs)}"
        self.tail = ""
        self.whole: list[str] = []

    def waiting(self) -> str:
        """The line that proves it lives: a face, and once it thinks for long a verb in its wings."""
        now = self._now()
        if now - self._turned >= 0.8:
            thinking = now - self._started > 3
            face = next(self._look.faces(thinking=True) if thinking and not self.whole else self._faces)
            self._shown, self._turned = f"{face} {next(self._verbs)}", now
        return f"{self._shown} · {now - self._started:.0f} s · Ctrl-C stops"

    async def run(
        self, stream: Stream, home: Path, messages: Sequence[Mapping[str, str]], **options: Any
    ) -> str:
        """Stream the answer; returns all of it. Closing or cancelling ends the request."""
        async with aclosing(stream(home, messages, **options)) as pieces:
            async for piece in pieces:
                if isinstance(piece, str):
                    self._take(piece)
                else:
                    self._flush()
                    self._tool(self._look.tool_line(str(piece.name), str(piece.text)))
        self._flush()
        return "".join(self.whole)

    def _take(self, piece: str) -> None:
        self.whole.append(piece)
        *lines, self.tail = (self.tail + piece).split("\n")
        for line in lines:
            self._say(harmless(line[:LONGEST]))
        self._changed()

    def _flush(self) -> None:
        if self.tail:
            self._say(harmless(self.tail[:LONGEST]))
            self.tail = ""
        self._changed()

    def cut(self) -> str:
        """What came until it was stopped, printed to its last piece."""
        self._flush()
        return clean_block("".join(self.whole), 100_000)
