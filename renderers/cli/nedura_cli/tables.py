"""Plain tables: at least two blanks between columns, wide characters counted as two (C164)."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence

from nedura.text import clean

__all__ = ["cells", "table"]

GAP = "  "


def cells(text: str) -> int:
    """Columns that a text takes on a terminal."""
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1
        for char in text
    )


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Lines of a table; every cell is cleaned. Without rows there is only the head."""
    lines = [[clean(cell, 300) for cell in row] for row in (head, *rows)]
    widths = [max(cells(line[column]) for line in lines) for column in range(len(head))]
    for line in lines:
        padded = [cell + " " * (width - cells(cell)) for cell, width in zip(line, widths, strict=True)]
        yield GAP.join(padded).rstrip()
