"""The real program in a real terminal: a pty that pyte draws."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pexpect
import pyte

__all__ = ["Screen", "open_screen", "ready"]

ROOT = Path(__file__).resolve().parents[2]


class Screen:
    """One program on one terminal.

    Attributes:
        raw: every byte that it wrote.
        replies: what the terminal answers to which question.
        moments: when it was started, and when it wrote something (monotonic seconds).
    """

    def __init__(
        self, child: pexpect.spawn, rows: int, columns: int, replies: Mapping[bytes, str] | None = None
    ) -> None:
        self.child = child
        self.child.delaybeforesend = None  # pexpect's own 50 ms before each key
        self.replies = dict(replies or {})
        self.raw = b""
        self.moments: list[float] = [time.monotonic()]
        self._screen = pyte.HistoryScreen(columns, rows, history=2000)
        self._stream = pyte.ByteStream(self._screen)

    def pump(self, seconds: float = 0.05) -> None:
        """Draw what comes for a while."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            try:
                data = self.child.read_nonblocking(65536, timeout=0.02)
            except pexpect.TIMEOUT:
                continue
            except pexpect.EOF:
                return
            self.raw += data
            self.moments.append(time.monotonic())
            self._stream.feed(data)
            for question, answer in self.replies.items():
                if question in data:
                    self.child.send(answer)

    @property
    def lines(self) -> list[str]:
        """What is seen now."""
        return [line.rstrip() for line in self._screen.display]

    @property
    def text(self) -> str:
        """What is seen now, with everything that scrolled away above it."""
        above = [
            "".join(line[column].data for column in range(self._screen.columns)).rstrip()
            for line in self._screen.history.top
        ]
        return "\n".join([*above, *self.lines])

    @property
    def rows(self) -> int:
        """Its height."""
        return int(self._screen.lines)

    @property
    def columns(self) -> int:
        """Its width."""
        return int(self._screen.columns)

    def cell(self, row: int, column: int) -> Any:
        """One character with its colours."""
        return self._screen.buffer[row][column]

    @property
    def column(self) -> int:
        """The cursor's column."""
        return int(self._screen.cursor.x)

    def colors(self, row: int) -> set[str]:
        """Foreground colours of a row."""
        return {str(cell.fg) for cell in self._screen.buffer[row].values()}

    def until(self, wanted: str | Callable[[Screen], object], timeout: float = 15.0) -> None:
        """Wait until a text is seen, or something holds."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            if (wanted in self.text) if isinstance(wanted, str) else wanted(self):
                return
            self.pump()
        raise AssertionError(f"{wanted!r} did not come. Seen:\n{self.text}")

    def send(self, text: str) -> None:
        """Type."""
        self.child.send(text)

    def resize(self, rows: int, columns: int) -> None:
        """Change the terminal's size."""
        self.child.setwinsize(rows, columns)
        self._screen.resize(rows, columns)

    def ended(self, timeout: float = 15.0) -> int:
        """Wait for its end; the exit code."""
        deadline = time.monotonic() + timeout
        while self.child.isalive() and time.monotonic() < deadline:
            self.pump()
        self.pump(0.1)
        self.child.close()
        return int(
            self.child.exitstatus if self.child.exitstatus is not None else -(self.child.signalstatus or 0)
        )


@contextmanager
def open_screen(
    *argv: str,
    home: Path,
    rows: int = 24,
    columns: int = 80,
    environ: Mapping[str, str] | None = None,
    launcher: Path | None = None,
    replies: Mapping[bytes, str] | None = None,
) -> Iterator[Screen]:
    """`nedura ARGS` on a terminal of a size; with `launcher` the installed command, with `replies` a terminal that answers questions."""
    wanted = {
        **os.environ,
        "TERM": "xterm-256color",
        "PROMPT_TOOLKIT_NO_CPR": "1",
        "NEDURA_HOME": str(home),
        **(environ or {}),
    }
    program, first = (str(launcher), []) if launcher else (sys.executable, ["-m", "nedura_cli"])
    child = pexpect.spawn(program, [*first, *argv], env=wanted, dimensions=(rows, columns), timeout=30)
    screen = Screen(child, rows, columns, replies)
    try:
        yield screen
    finally:
        child.close(force=True)


def ready(screen: Screen) -> None:
    """The shell's prompt is there: banner, prompt symbol, status bar."""
    screen.until("/help")
    screen.until("gateway")
