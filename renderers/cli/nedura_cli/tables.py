"""Plain tables: at least two blanks between columns, wide characters counted as two (C164)."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence

from nedura.text import clean

__all__ = ["cells", "last_rows", "stacked", "table", "wrapped"]

GAP = "  "


def cells(text: str) -> int:
    """Columns that a text takes on a terminal."""
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1
        for char in text
    )


def last_rows(text: str, width: int, rows: int) -> str:
    """The end of a line that a terminal breaks at `width`, as much as fits into some rows; cut by whole rows, so that it stands still."""
    room = max(1, width) * max(1, rows)
    while (over := cells(text) - room) > 0:
        text = text[-(-over // (2 * width)) * width :]  # a character is two columns at most
    return text


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Lines of a table; every cell is cleaned. Without rows there is only the head."""
    lines = [[clean(cell, 300) for cell in row] for row in (head, *rows)]
    widths = [max(cells(line[column]) for line in lines) for column in range(len(head))]
    for line in lines:
        padded = [cell + " " * (width - cells(cell)) for cell, width in zip(line, widths, strict=True)]
        yield GAP.join(padded).rstrip()


def stacked(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """The rows of a table below each other for a narrow terminal: the first named cell, then the others with their names."""
    first = next((column for column, name in enumerate(head) if name), 0)
    for row in rows:
        line = [clean(cell, 300) for cell in row]
        yield GAP.join(
            cell for column, cell in enumerate(line) if cell and (column == first or not head[column])
        )
        for name, cell in list(zip(head, line, strict=True))[first + 1 :]:
            if name and cell:
                yield f"    {name}: {cell}"


def wrapped(line: str, width: int) -> Iterator[str]:
    """A line in parts no wider than a terminal, broken at blanks only: a link or a path stays whole.

    Args:
        line: one line.
        width: columns; 0 leaves it as it is.
    """
    if not width or cells(line) <= width:
        yield line
        return
    start = line[: len(line) - len(line.lstrip())]
    more = f"{start}  " if start else ""
    part = ""
    for word in re.findall(r"\s*\S+", line):
        if part and cells(part + word) > width:
            yield part
            part = more + word.lstrip()
        else:
            part += word
    yield part
