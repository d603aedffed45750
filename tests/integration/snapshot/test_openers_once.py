"""Many databases are judged by one look at all processes, and a holder is found all the same."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping
from contextlib import closing
from pathlib import Path

import pytest

from nedura.errors import RefusedError
from nedura.openers import FileKey, open_files
from nedura.update.state.place import Openers, place_database, refuse_if_held
from nedura.update.state.restore import restore_snapshot
from tests.integration.snapshot.homes import make_database, rows, snap
from tests.integration.snapshot.test_restore import hold_in_child

MANY = 40


class Counted:
    """Looks, counted, at a time that stands still until it is moved."""

    def __init__(self) -> None:
        self.looks, self.at = 0, 0.0
        self.openers = Openers(self.look, lambda: self.at)

    def look(self) -> Mapping[FileKey, Collection[int]] | None:
        self.looks += 1
        return open_files()


def test_one_look_serves_a_whole_restore(tmp_path: Path) -> None:
    """Each database had two looks of its own: 200 small ones took ten seconds."""
    boards = [tmp_path / f"kanban/boards/b{number}.db" for number in range(MANY)]
    (tmp_path / "kanban/boards").mkdir(parents=True)
    for board in boards:
        make_database(board, 3)
    name = snap(tmp_path)
    for board in boards:
        with closing(sqlite3.connect(board)) as database, database:
            database.execute("DELETE FROM t")
    counted = Counted()
    restore_snapshot(tmp_path, name, profile="default", now=0, openers=counted.openers)
    assert counted.looks == 1
    assert [rows(board) for board in boards] == [3] * MANY


def test_a_holder_is_found_by_the_shared_look(tmp_path: Path) -> None:
    path, counted = make_database(tmp_path / "state.db", 3), Counted()
    name = snap(tmp_path)
    child = hold_in_child(path)
    try:
        with pytest.raises(RefusedError, match=str(child.pid)):
            restore_snapshot(tmp_path, name, profile="default", now=0, openers=counted.openers)
    finally:
        child.communicate(b"")
    refuse_if_held(path, openers=counted.openers)  # called held by the old look: asked again by itself
    assert counted.looks == 1


def test_a_holder_that_came_after_the_look_is_found(tmp_path: Path) -> None:
    """By its lock at once, by its descriptor when the look is a second old; this process by both."""
    path, counted = make_database(tmp_path / "state.db", 3), Counted()
    copy = make_database(tmp_path / "copy.db", 1)
    refuse_if_held(path, openers=counted.openers)
    with closing(sqlite3.connect(path)) as database:
        database.execute("SELECT count(*) FROM t").fetchone()
        with pytest.raises(RefusedError):
            refuse_if_held(path, openers=counted.openers)
    quiet = path.open("rb")  # no lock, as of a connection at rest
    with quiet:
        counted.at = Openers.FRESH
        with pytest.raises(RefusedError):
            place_database(copy, path, now=0, openers=counted.openers)
    assert counted.looks == 2
    assert rows(path) == 3
