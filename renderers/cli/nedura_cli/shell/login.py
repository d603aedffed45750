"""A sign-in beside the prompt: what the panel shows, and what its keys do. One at a time; a second `/login` joins it."""

from __future__ import annotations

import io
import os
import re
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Final, Literal

from nedura.signin import Code, Completed, SignInState, open_page, why_not
from nedura_cli.shell.clipboard import copy

__all__ = ["LoginPanel", "four_lines", "qr_lines", "settled_model"]

HINTS: Final = ("Enter opens a browser", "c copies the link", "r shows a QR code", "Esc cancels")

States = AsyncGenerator[SignInState, None]
Part = Literal["head", "qr", "hint"]


def qr_lines(link: str, width: int, height: int) -> list[str]:
    """The link as a QR code of block characters; empty when it does not fit."""
    import segno

    drawn = io.StringIO()
    segno.make(link, error="l").terminal(drawn, compact=True, border=1)
    lines = _plain(drawn.getvalue())
    fits = len(lines) <= height and all(len(line) <= width for line in lines)
    return lines if fits else []


def _plain(text: str) -> list[str]:
    return [line for line in re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines() if line.strip()]


def _hints(width: int) -> list[str]:
    """The keys in as few lines as the width allows."""
    lines = [""]
    for part in HINTS:
        longer = f"{lines[-1]} · {part}" if lines[-1] else part
        if len(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(part)
    return lines


def four_lines(code: Code) -> list[str]:
    """What to do, the link, the code, and what to beware of, each a line of its own."""
    return ["Open this page and check that it shows the code:", code.link, code.code, code.copy_terminal]


class LoginPanel:
    """One running sign-in.

    Args:
        make: makes the states, given the question whether the user cancelled.
        say: prints a line above the prompt.
        changed: called when the panel should be drawn again.
        write: sends an escape sequence to the terminal.
        announce: the lines for a code; default link and code in four lines.
        now: seconds.
    """

    def __init__(
        self,
        make: Callable[[Callable[[], bool]], States],
        say: Callable[[str], None],
        changed: Callable[[], None],
        write: Callable[[str], None],
        *,
        announce: Callable[[Code], list[str]] | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._make = make
        self._say = say
        self._changed = changed
        self._write = write
        self._announce = announce or four_lines
        self._now = now
        self._code: Code | None = None
        self._deadline = 0.0
        self._cancelled = False
        self._note = ""
        self._qr = False

    @property
    def cancelled(self) -> bool:
        """Whether the user gave up."""
        return self._cancelled

    async def run(self) -> SignInState | None:
        """Go through the states; returns the last one."""
        last: SignInState | None = None
        async with aclosing(self._make(lambda: self._cancelled)) as states:
            async for state in states:
                last = state
                self._take(state)
        return last

    def _take(self, state: SignInState) -> None:
        if isinstance(state, Code):
            self._deadline = self._now() + state.expires_in
            for line in self._announce(state):  # before the panel shows its keys: they act on what was said
                self._say(line)
            self._code = state
        elif state.terminal:
            for line in state.copy_terminal.split("\n"):
                self._say(line)
        elif getattr(state, "trouble", False):
            self._note = state.copy_terminal
        self._changed()

    def show_code(self) -> None:
        """Link and code as plain lines that nobody wraps; also for whoever asks again while it runs."""
        if self._code is None:
            return
        for line in self._announce(self._code):
            self._say(line)

    def lines(self, width: int, height: int, *, unicode: bool = True) -> list[tuple[Part, str]]:
        """The panel as it is now: what each line is, and the line.

        Args:
            width: columns for it.
            height: rows for it.
            unicode: the terminal has block characters.
        """
        if self._code is None:
            return [("head", "Signing in: asking for a code ...")]
        left = max(0, round(self._deadline - self._now()))
        head = f"Signing in: code {self._code.code}, {left // 60}:{left % 60:02d} left"
        drawn = qr_lines(self._code.link, width, height - 3) if self._qr and unicode else []
        note = self._note
        if self._qr and not drawn:
            note = note or f"The QR code does not fit this terminal{'' if unicode else ': it needs Unicode'}."
        hints = [*([note] if note else []), *_hints(width)]
        return [("head", head), *(("qr", line) for line in drawn), *(("hint", line) for line in hints)]

    def key(self, name: str) -> None:
        """A key while nothing is typed: `enter`, `c`, `r` or `escape`."""
        match name:
            case "escape":
                self._cancelled = True
                self._note = "Cancelling ..."
            case "enter" if self._code is not None:
                self._open(self._code)
            case "c" if self._code is not None:
                self._note = copy(self._code.link, self._write)
            case "r" if self._code is not None:
                self._qr = not self._qr
                self._note = ""
        self._changed()

    def _open(self, code: Code) -> None:
        reason = why_not(os.environ)
        if reason:
            self._note = f"No browser is opened here: {reason}."
        else:
            self._note = "The page is opening." if open_page(code.link) else "No browser could be started."


def settled_model(state: SignInState | None) -> str:
    """The model that a sign-in settled on; empty when it left it alone."""
    return state.model if isinstance(state, Completed) and state.model_changed else ""
