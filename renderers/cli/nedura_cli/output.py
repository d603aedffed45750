"""Where every line goes: wire JSON, plain lines or rich text; stdout for results, stderr for remarks."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import Any, TextIO

import attrs

from nedura.wire import Event, to_json_line
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

    def _fit(self, text: str, stream: TextIO) -> str:
        """Harmless lines in the characters that a terminal has; a file or pipe keeps them all."""
        safe = safe_lines(text)
        return (
            safe
            if safe.isascii() or not stream.isatty() or Terminal.detect(stream).unicode
            else to_ascii(safe)
        )

    def line(self, text: str = "") -> None:
        """A line of the result for people; nothing under `--json`."""
        if not self.as_json:
            self.stdout.write(self._fit(text, self.stdout) + "\n")
            self.stdout.flush()

    def remark(self, text: str) -> None:
        """A line beside the result, on stderr."""
        self.stderr.write(self._fit(text, self.stderr) + "\n")
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
