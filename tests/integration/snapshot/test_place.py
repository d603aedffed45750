"""Many files into a live home: all judged before the first, and what is told when one cannot be put there after all."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from nedura.errors import StoreError, UnsafePath
from nedura.update.state.home_import import UNFINISHED, import_backup
from nedura.update.state.place import cut_off
from nedura.update.state.restore import restore_snapshot
from nedura.update.state.snapshot_manifest import list_snapshots
from tests.integration.snapshot.homes import make_database, rows, snap

NOW = 1_000_000_000.0


def saved_home(tmp_path: Path) -> tuple[Path, str]:
    """A home with a snapshot, and everything changed since."""
    home = tmp_path / "h"
    for name in ("state.db", "kanban.db"):
        make_database(home / name, 5)
    (home / "config.yaml").write_text("a: saved\n")
    (home / "cron").mkdir()
    (home / "cron/jobs.json").write_text("[1]")
    (home / "pairing").mkdir()
    (home / "pairing/one").write_text("one")
    name = snap(home)
    with closing(sqlite3.connect(home / "state.db")) as db:
        db.execute("DELETE FROM t")
        db.commit()
    (home / "config.yaml").write_text("a: live\n")
    return home, name


def remove(path: Path) -> None:
    if path.is_file():
        path.unlink()
    else:
        shutil.rmtree(path)


BLOCKED: dict[str, Callable[[Path], object]] = {
    "cron/jobs.json": Path.mkdir,
    "kanban.db": Path.mkdir,
    "pairing": Path.touch,
    "cron": Path.touch,
    "pairing/one": os.mkfifo,
}


@pytest.mark.parametrize("place", BLOCKED)
def test_a_restore_is_judged_whole_before_the_first_file(tmp_path: Path, place: str) -> None:
    home, name = saved_home(tmp_path)
    remove(home / place)
    BLOCKED[place](home / place)
    with pytest.raises(StoreError, match="nothing was changed"):
        restore_snapshot(home, name, profile="default", now=NOW)
    assert rows(home / "state.db") == 0
    assert (home / "config.yaml").read_text() == "a: live\n"
    assert not list(home.glob("*.corrupt*"))


def test_a_restore_that_cannot_fit_is_refused_before_the_first_file(tmp_path: Path) -> None:
    home, name = saved_home(tmp_path)
    with pytest.raises(StoreError, match="MB free; nothing was changed"):
        restore_snapshot(home, name, profile="default", now=NOW, free=lambda folder: 1000)
    assert rows(home / "state.db") == 0


@pytest.mark.parametrize("record", ["gateway_state.json", "processes.json"])
def test_live_records_of_processes_stay(tmp_path: Path, record: str) -> None:
    """An old one says that a process died which had ended as it should, or hides the one that runs."""
    home = tmp_path / "h"
    home.mkdir()
    (home / record).write_text('{"pid": 1}')
    (home / "kanban/boards").mkdir(parents=True)
    (home / "kanban/boards" / record).write_text("old")
    name = snap(home)
    (home / record).write_text('{"pid": 2}')
    (home / "kanban/boards" / record).write_text('{"new": 1}')
    done = restore_snapshot(home, name, profile="default", now=NOW)
    assert json.loads((home / record).read_text()) == {"pid": 2}
    assert (home / "kanban/boards" / record).read_text() == "old", "only the home's own record is one"
    assert set(done.kept) == {record}
    (home / record).unlink()
    assert record in restore_snapshot(home, name, profile="default", now=NOW).restored


def test_the_longest_name_comes_back(tmp_path: Path) -> None:
    home = tmp_path / "h"
    (home / "pairing").mkdir(parents=True)
    path = home / "pairing" / ("x" * 255)
    path.write_text("saved")
    name = snap(home)
    path.write_text("live")
    restore_snapshot(home, name, profile="default", now=NOW)
    assert path.read_text() == "saved"


def test_a_process_that_had_it_open_during_a_copy_is_no_holder_any_more(tmp_path: Path) -> None:
    home = tmp_path / "h"
    make_database(home / "state.db", 5)
    with closing(sqlite3.connect(home / "state.db")) as db:
        db.execute("SELECT count(*) FROM t").fetchone()
        name = snap(home)
    restore_snapshot(home, name, profile="default", now=NOW)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root comes by another user's folder")
def test_root_is_not_told_to_move_another_users_snapshots_away(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("a: 1\n")
    (tmp_path / "state-snapshots").mkdir()
    os.chown(tmp_path / "state-snapshots", 12345, 12345)
    with pytest.raises(UnsafePath) as told:
        snap(tmp_path)
    assert told.value.advice == "Run it as that user: sudo -u '#12345' ..."


def archive_of(path: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


@pytest.mark.parametrize("member", ["sessions", "notes/x", "pipe", "zz/y"])
def test_an_import_is_judged_whole_before_the_first_file(tmp_path: Path, member: str) -> None:
    home = tmp_path / "h"
    make_database(home / "state.db", 5)
    (home / "sessions").mkdir()
    (home / "notes").write_text("a file")
    (home / "zz").symlink_to("notes")
    os.mkfifo(home / "pipe")
    other = make_database(tmp_path / "o/state.db", 9).read_bytes()
    archive = archive_of(tmp_path / "a.zip", {"state.db": other, "aaa": b"x", member: b"x"})
    with pytest.raises(StoreError, match="nothing was changed"):
        import_backup(archive, home, now=NOW)
    assert rows(home / "state.db") == 5
    assert not (home / "aaa").exists()
    assert list_snapshots(home)[0] == []


@pytest.mark.parametrize("member", ["memory_store.db", "profiles/coder/cron/executions.db"])
def test_what_is_no_database_is_not_brought_in_as_one(tmp_path: Path, member: str) -> None:
    archive = archive_of(tmp_path / "a.zip", {"aaa": b"x", member: b"no database"})
    with pytest.raises(StoreError, match="not a SQLite database"):
        import_backup(archive, tmp_path / "h", now=NOW)
    assert not (tmp_path / "h/aaa").exists()


def test_after_an_import_that_was_cut_off_the_first_copy_of_what_was_there_stays(tmp_path: Path) -> None:
    """The second one finds a mixed home: what it saves must not replace the only copy of the whole one."""
    home = tmp_path / "h"
    make_database(home / "state.db", 5)
    other = make_database(tmp_path / "o/state.db", 9).read_bytes()
    archive = archive_of(tmp_path / "a.zip", {"state.db": other})
    import_backup(archive, home, now=NOW)
    assert not (home / UNFINISHED).exists()
    (home / UNFINISHED).touch()  # as a killed one leaves it, between two files
    for number in range(3):
        import_backup(archive, home, now=NOW + 10 + number)
        (home / UNFINISHED).touch()
    (home / UNFINISHED).unlink()
    found = {manifest.label: manifest.id for manifest in list_snapshots(home)[0]}
    assert rows(home / "state-snapshots" / found["pre-import"] / "state.db") == 5
    assert len(list_snapshots(home)[0]) == 2, "and tries without end do not fill the disk"
    import_backup(archive, home, now=NOW + 99)
    assert [m.label for m in list_snapshots(home)[0]] == ["pre-import-again", "pre-import"]


def test_what_is_told_when_it_ends_in_the_middle() -> None:
    told = cut_off(OSError(28, "No space left on device"), 2, 5).diagnostics()
    assert "No space left on device. 2 of 5 files are in place already" in told
    first = StoreError("x cannot be written.")
    assert cut_off(first, 0, 5) is first
