"""One message to the model: streamed line by line, with the skin's faces and verbs while nothing comes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final

import attrs

from nedura.errors import NeduraError
from nedura.text import clean_block
from nedura_cli.look import Look
from nedura_cli.terminal import harmless

__all__ = ["Conversation", "Stream", "Turn"]

Stream = Callable[..., AsyncGenerator[Any, None]]
"""Like `nedura.inference.stream_reply`: pieces of text, or tool events with `name` and `text`."""

LONGEST: Final = 8 * 1024 * 1024
"""Most characters of an answer. It is held in memory, and nobody reads more."""
SHOWN: Final = 4096
"""Characters of an unfinished line that are surely kept for drawing; up to twice as many may be."""
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
        self._line: list[str] = []
        self._size = 0
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
        """Stream the answer; returns all of it. Closing or cancelling ends the request.

        Raises:
            NeduraError: what the stream raises, or the answer is longer than `LONGEST`.
        """
        async with aclosing(stream(home, messages, **options)) as pieces:
            async for piece in pieces:
                await asyncio.sleep(
                    0
                )  # pieces that are here already would keep keys, Ctrl-C among them, from being read
                if isinstance(piece, str):
                    self._take(piece)
                else:
                    self._flush()
                    self._tool(self._look.tool_line(str(piece.name), str(piece.text)))
        self._flush()
        return "".join(self.whole)

    def _take(self, piece: str) -> None:
        self._size += len(piece)
        if self._size > LONGEST:
            raise NeduraError(f"The answer is longer than {LONGEST // 1024**2} MiB; the rest was not taken.")
        self.whole.append(piece)
        *lines, rest = piece.split("\n")
        for line in lines:
            self._end_line(line)
        self._line.append(rest)
        self.tail += rest
        if (
            len(self.tail) > 2 * SHOWN
        ):  # by whole blocks, so that what is drawn does not move with every letter
            self.tail = self.tail[(len(self.tail) - SHOWN) // SHOWN * SHOWN :]
        self._changed()

    def _end_line(self, rest: str) -> None:
        whole = "".join((*self._line, rest))
        self._line, self.tail = [], ""
        self._say(harmless(whole))

    def _flush(self) -> None:
        if self.tail:
            self._end_line("")
        self._changed()

    def cut(self) -> str:
        """What came until it was stopped, printed to its last piece."""
        self._flush()
        return clean_block("".join(self.whole), 100_000)
