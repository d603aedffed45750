"""The candidate's side of the rehearsal: open copied state as a start would. Run as `-m nedura.update.validation.rehearse HOME...`.

Prints one JSON object: home -> what went wrong, empty for none. A release that migrates something does it here too, on the copies,
by the same function that its maintenance uses.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Sequence
from pathlib import Path

from nedura.config import read_config
from nedura.config_migrations import migrate_config
from nedura.errors import NeduraError
from nedura.text import clean
from nedura.update.state.snapshot_set import expand

__all__ = ["main", "rehearse"]


def rehearse(home: Path) -> str:
    """Why a home's state cannot be used; empty when it can.

    Args:
        home: a copy; it may be written to.
    """
    try:
        read_config(home)
        migrate_config(home)
        for source in expand(home):
            if source.database and not source.problem:
                _open(source.path)
    except (
        NeduraError,
        sqlite3.Error,
        OSError,
        UnicodeDecodeError,
    ) as error:  # the last: a damaged schema (sqlite.py)
        return error.message if isinstance(error, NeduraError) else f"{type(error).__name__}: {clean(error)}"
    return ""


def _open(path: Path) -> None:
    connection = sqlite3.connect(path, timeout=5)
    try:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    finally:
        connection.close()


def main(argv: Sequence[str]) -> int:
    """Rehearse every home that is named."""
    sys.stdout.write(json.dumps({home: rehearse(Path(home)) for home in argv}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
