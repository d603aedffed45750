"""Where every line goes: wire JSON, plain lines or rich text; stdout for results, stderr for remarks."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

import attrs

from nedura.wire import Event, to_json_line
from nedura_cli.tables import cells, stacked, table, wrapped
from nedura_cli.terminal import Terminal, harmless, to_ascii

__all__ = ["Output", "safe_json", "safe_lines"]


def safe_lines(text: str) -> str:
    """`harmless` for text of several lines."""
    return "\n".join(map(harmless, text.split("\n")))


def safe_json(line: str) -> str:
    """A JSON line in which every character that a terminal could act on is written as an escape; the value stays the same."""
    if line.isprintable():
        return line
    return "".join(char if char.isprintable() else _escaped(char) for char in line)


def _escaped(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


@attrs.define
class Output:
    """One command's output.

    Attributes:
        as_json: stdout holds wire JSON lines and nothing else.
        plain: append-only lines, no redraws, no glyph art.
        debug: tracebacks are shown.
    """

    as_json: bool = False
    plain: bool = False
    debug: bool = False
    stdout: TextIO = attrs.field(factory=lambda: sys.stdout)
    stderr: TextIO = attrs.field(factory=lambda: sys.stderr)

    @property
    def interactive(self) -> bool:
        """Whether a person looks at stdout and redraws are welcome."""
        return (
            not self.as_json and not self.plain and self.stdout.isatty() and os.environ.get("TERM") != "dumb"
        )

    def width(self, stream: TextIO) -> int:
        """Columns of the terminal that a stream leads to; 0 for a file or pipe, and where lines must stay as they are (`--plain`)."""
        if self.plain or not stream.isatty():
            return 0
        try:
            return os.get_terminal_size(stream.fileno()).columns
        except OSError:
            return 0

    def fit(self, text: str, stream: TextIO) -> str:
        """Harmless lines in the characters that a terminal has, broken between words; a file or pipe keeps them all."""
        safe = safe_lines(text)
        if not safe.isascii() and stream.isatty() and not Terminal.detect(stream).unicode:
            safe = to_ascii(safe)
        width = self.width(stream)
        return "\n".join(part for line in safe.split("\n") for part in wrapped(line, width))

    def table(self, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """A table of the result for people; each row as lines of its own where the terminal is too narrow."""
        lines, width = [*table(head, rows)], self.width(self.stdout)
        fits = not width or all(cells(line) <= width for line in lines)
        for line in lines if fits else stacked(head, rows):
            self.line(line)

    def line(self, text: str = "") -> None:
        """A line of the result for people; nothing under `--json`."""
        if not self.as_json:
            self.stdout.write(self.fit(text, self.stdout) + "\n")
            self.stdout.flush()

    def remark(self, text: str) -> None:
        """A line beside the result, on stderr."""
        self.stderr.write(self.fit(text, self.stderr) + "\n")
        self.stderr.flush()

    def record(self, value: Mapping[str, Any]) -> None:
        """A result for machines; nothing without `--json`."""
        if self.as_json:
            line = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
            self.stdout.write(safe_json(line) + "\n")
            self.stdout.flush()

    def event(self, event: Event) -> None:
        """An event: its wire form under `--json`, else its terminal copy."""
        if self.as_json:
            self.stdout.write(safe_json(to_json_line(event)) + "\n")
            self.stdout.flush()
        elif event.copy_terminal:
            self.line(event.copy_terminal)
