"""What was typed, kept in `<home>/shell_history` as JSON lines, readable by its owner alone."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from prompt_toolkit.history import History

from nedura.errors import StoreError
from nedura.records import append_line, read_bytes, write_bytes
from nedura.text import redact

__all__ = ["LineHistory"]

KEEP: Final = 2000
LONGEST: Final = 8000


class LineHistory(History):
    """History of one home. A file that cannot be used is no reason to fail: the session has its own memory.

    Args:
        home: whose.
    """

    def __init__(self, home: Path) -> None:
        super().__init__()
        self._path = home / "shell_history"

    def load_history_strings(self) -> Iterable[str]:
        """Newest first."""
        try:
            lines = read_bytes(self._path, 16 * 1024 * 1024).decode("utf-8", "replace").splitlines()
        except StoreError:
            return
        if len(lines) > 2 * KEEP:
            self._shorten(lines)
        for line in reversed(lines[-KEEP:]):
            try:
                text = json.loads(line)
            except ValueError:
                continue
            if isinstance(text, str):
                yield text

    def _shorten(self, lines: list[str]) -> None:
        try:
            write_bytes(self._path, ("\n".join(lines[-KEEP:]) + "\n").encode())
        except StoreError:
            return

    def store_string(self, string: str) -> None:
        """Keep a line; what looks like a credential is masked."""
        try:
            append_line(self._path, json.dumps(redact(string[:LONGEST])))
        except StoreError:
            return
