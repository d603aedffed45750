"""Files of a home's own trees under names that nobody foresaw."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from nedura.update.state.restore import restore_snapshot, verify_snapshot
from nedura.update.state.snapshot_manifest import list_snapshots
from nedura.update.state.snapshot_set import expand
from nedura.update.state.snapshot_take import take_snapshot
from tests.integration.snapshot.homes import make_database, rows
from tests.integration.snapshot.test_restore import crash_with_log


def test_a_database_of_any_name_is_copied_as_one(tmp_path: Path) -> None:
    """Copied as plain bytes it would be torn, and its log would be replayed into whatever is restored later."""
    board = make_database(tmp_path / "kanban/boards/b/board.sqlite", 20)
    (board.parent / "daily-journal").write_text("mine")
    crash_with_log(board, 30)
    taken = take_snapshot("default", tmp_path, label="manual", keep=1, now=0)
    assert taken is not None
    assert set(taken.manifest.files) == {"kanban/boards/b/board.sqlite", "kanban/boards/b/daily-journal"}
    assert rows(taken.folder / "kanban/boards/b/board.sqlite") == 50
    with closing(sqlite3.connect(board)) as writer:
        writer.execute("DELETE FROM t")
        writer.commit()
    restore_snapshot(tmp_path, taken.manifest.id, profile="default", now=0)
    assert rows(board) == 50


def test_a_name_that_no_snapshot_can_hold_is_told_and_spoils_nothing(tmp_path: Path) -> None:
    """It was in the copy, and then the whole snapshot was refused for naming it."""
    (tmp_path / "config.yaml").write_text("a: 1\n")
    (tmp_path / "pairing").mkdir()
    for name in ("DOMAIN\\me.json", "line\nbreak.json", "plain.json", os.fsdecode(b"latin\xe9.json")):
        (tmp_path / "pairing" / name).write_text("{}")
    taken = take_snapshot("default", tmp_path, label="manual", keep=1, now=0)
    assert taken is not None
    assert not taken.manifest.complete
    assert list(taken.manifest.failed) == ["pairing/DOMAIN\\me.json", "pairing/latin\\udce9.json"]
    assert list_snapshots(tmp_path) == ([taken.manifest], {})
    (tmp_path / "pairing/plain.json").unlink()
    assert verify_snapshot(tmp_path, taken.manifest.id)[1] == {}
    restore_snapshot(tmp_path, taken.manifest.id, profile="default", now=0)
    assert (tmp_path / "pairing/plain.json").exists()


def test_a_file_that_goes_while_a_tree_is_listed_is_no_failure(tmp_path: Path) -> None:
    """A live board writes and removes files all the time; one of them cost the whole profile its snapshot."""
    (tmp_path / "pairing").mkdir()
    for name in ("a", "b", "c"):
        (tmp_path / "pairing" / name).write_text("{}")
    found = expand(tmp_path)
    first = next(found)
    (tmp_path / "pairing/b").unlink()
    assert [source.relative for source in (first, *found)] == ["pairing/a", "pairing/c"]


def test_a_tree_that_the_home_lies_in_is_not_walked(tmp_path: Path) -> None:
    (tmp_path / "h").mkdir()
    (tmp_path / "h/config.yaml").write_text("a: 1\n")
    (tmp_path / "h/pairing").symlink_to(tmp_path)
    taken = take_snapshot("default", tmp_path / "h", label="manual", keep=1, now=0)
    assert taken is not None
    assert (set(taken.manifest.files), list(taken.manifest.failed)) == ({"config.yaml"}, ["pairing"])
