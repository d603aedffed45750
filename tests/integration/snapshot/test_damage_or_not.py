"""A database is replaced only when its bytes are damaged: what cannot be looked at just now keeps its newest rows."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from nedura.errors import StoreError
from nedura.update.events_snapshot import NetRestored
from nedura.update.state.nets import run_nets
from nedura.update.state.place import place_database, set_aside
from nedura.update.state.restore import restore_snapshot
from nedura.update.state.snapshot_take import take_snapshot
from nedura.update.state.sqlite import DamagedDatabase, DatabaseError, check_live, holders
from nedura.update.validation.rehearse import rehearse
from tests.integration.snapshot.homes import make_database, rows, snap
from tests.integration.snapshot.test_restore import crash_with_log

NOW = 1_000_000_000.0


async def nets_of(home: Path, snapshot: str) -> list[NetRestored]:
    return [event async for event in run_nets([("default", home)], {"default": snapshot})]


def listed(home: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in home.glob("state.db*") if path.is_file()}


def make_unreadable(home: Path) -> None:
    """As root reads everything: a log that SQLite cannot open."""
    Path(f"{home / 'state.db'}-wal").unlink(missing_ok=True)
    Path(f"{home / 'state.db'}-wal").mkdir()
    (home / "state.db-wal/x").touch()


async def test_a_database_that_cannot_be_opened_is_left_alone_and_told(tmp_path: Path) -> None:
    make_database(tmp_path / "state.db", 5)
    snapshot = snap(tmp_path)
    with closing(sqlite3.connect(tmp_path / "state.db")) as db:
        db.execute("INSERT INTO t(body) VALUES('new')")
        db.commit()
    make_unreadable(tmp_path)
    before = listed(tmp_path)
    (told,) = await nets_of(tmp_path, snapshot)
    assert (told.net, told.ok) == ("state_db", False)
    assert "cannot be checked" in told.detail
    assert listed(tmp_path) == before
    with pytest.raises(StoreError):
        restore_snapshot(tmp_path, snapshot, profile="default", now=NOW)
    shutil.rmtree(tmp_path / "state.db-wal")
    assert rows(tmp_path / "state.db") == 6


def test_a_lock_is_no_damage(tmp_path: Path) -> None:
    path = make_database(tmp_path / "state.db", 5, wal=False)
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("BEGIN EXCLUSIVE")
        with pytest.raises(DatabaseError) as found:
            check_live(path, busy=0.05)
    assert not isinstance(found.value, DamagedDatabase)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "zeros": lambda path: path.write_bytes(bytes(8192)),
    "text": lambda path: path.write_bytes(b"no database"),
    "cut within a page": lambda path: os.truncate(path, 5000),
    "cut within the header": lambda path: os.truncate(path, 60),
    "a torn page": lambda path: path.write_bytes(
        path.read_bytes()[:4096] + os.urandom(4096) + path.read_bytes()[8192:]
    ),
    "a schema that is no text": lambda path: path.write_bytes(
        path.read_bytes().replace(b"CREATE TABLE", b"CREATE \xff\xfe\xfdLE")
    ),
}


@pytest.mark.parametrize("kind", DAMAGE)
async def test_damage_of_every_kind_is_mended(tmp_path: Path, kind: str) -> None:
    make_database(tmp_path / "state.db", 200)
    snapshot = snap(tmp_path)
    DAMAGE[kind](tmp_path / "state.db")
    content = (tmp_path / "state.db").read_bytes()
    (told,) = await nets_of(tmp_path, snapshot)
    assert told.ok, told.detail
    assert rows(tmp_path / "state.db") == 200
    (kept,) = tmp_path.glob("state.db.corrupt-*")
    assert kept.read_bytes() == content
    assert kept.name in told.detail


def test_a_schema_that_is_no_text_is_left_out_of_a_snapshot_and_named(tmp_path: Path) -> None:
    """Python cannot decode what SQLite says about it: neither library nor system error."""
    path = make_database(tmp_path / "state.db", 5)
    (tmp_path / "config.yaml").write_text("a: 1\n")
    DAMAGE["a schema that is no text"](path)
    taken = take_snapshot("default", tmp_path, label="pre-update", keep=1, cap=None, now=NOW)
    assert taken is not None
    assert list(taken.manifest.files) == ["config.yaml"]
    assert taken.manifest.failed_dbs == ("state.db",)
    assert "UnicodeDecodeError" in rehearse(tmp_path)


CRASH = """
import os, sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("PRAGMA cache_size=2")
db.execute("BEGIN")
db.executemany("INSERT INTO t(body) VALUES(?)", [("x" * 500,) for _ in range(200)])
os.kill(os.getpid(), 9)
"""


async def test_the_journal_of_a_killed_writer_is_no_fault(tmp_path: Path) -> None:
    """Whoever opens the database next rolls it back, as a copy does; it kept a restore out for good."""
    path = make_database(tmp_path / "state.db", 5, wal=False)
    snapshot = snap(tmp_path)
    subprocess.run([sys.executable, "-c", CRASH, str(path)], check=False)
    assert (tmp_path / "state.db-journal").stat().st_size
    assert await nets_of(tmp_path, snapshot) == []
    assert rows(path) == 5
    subprocess.run([sys.executable, "-c", CRASH, str(path)], check=False)
    done = restore_snapshot(tmp_path, snapshot, profile="default", now=NOW)
    assert "state.db" in done.restored
    assert sorted(listed(tmp_path)) == ["state.db"]


async def test_a_database_that_lost_every_byte_comes_back(tmp_path: Path) -> None:
    """SQLite takes an empty file for a new database (case C019: zero bytes)."""
    make_database(tmp_path / "state.db", 5)
    snapshot = snap(tmp_path)
    os.truncate(tmp_path / "state.db", 0)
    (told,) = await nets_of(tmp_path, snapshot)
    assert told.ok
    assert "is empty" in told.detail
    assert rows(tmp_path / "state.db") == 5


async def test_one_that_was_empty_before_stays_empty(tmp_path: Path) -> None:
    (tmp_path / "state.db").touch()
    (tmp_path / "config.yaml").write_text("a: 1\n")
    assert await nets_of(tmp_path, snap(tmp_path)) == []


def test_what_cannot_be_set_aside_keeps_its_log(tmp_path: Path) -> None:
    """A folder cannot be linked or copied; before, its log had been moved away by then."""
    (tmp_path / "state.db").mkdir()
    (tmp_path / "state.db-wal").write_bytes(b"rows")
    with pytest.raises(StoreError, match="cannot be set aside"):
        set_aside(tmp_path / "state.db", now=NOW)
    assert sorted(os.listdir(tmp_path)) == ["state.db", "state.db-wal"]


def test_two_damages_in_one_second_are_both_kept(tmp_path: Path) -> None:
    live, copy = tmp_path / "state.db", make_database(tmp_path / "copy.db", 5)
    for content in (b"first", b"second"):
        live.write_bytes(content)
        place_database(copy, live, now=NOW)
    assert sorted(path.read_bytes() for path in tmp_path.glob("state.db.corrupt-*")) == [b"first", b"second"]


def test_a_healthy_database_with_other_pages_is_overwritten_and_not_called_damaged(tmp_path: Path) -> None:
    copy = make_database(tmp_path / "copy.db", 5)
    live = tmp_path / "state.db"
    with closing(sqlite3.connect(live)) as db:
        db.execute("PRAGMA page_size=1024")
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, body TEXT)")
        db.commit()
    crash_with_log(live, 3)
    assert place_database(copy, live, now=NOW) is None
    assert rows(live) == 5
    assert not list(tmp_path.glob("*.corrupt-*"))


HOLD = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("BEGIN IMMEDIATE")
db.execute("INSERT INTO t(body) VALUES('held')")
print("ready", flush=True)
sys.stdin.read()
db.execute("COMMIT")
"""
ELSEWHERE = """
import sys
from pathlib import Path
from nedura.errors import RefusedError
from nedura.update.state.restore import restore_snapshot
from nedura.update.state.sqlite import holders
home = Path(sys.argv[1])
print(holders(home / "state.db"))
try:
    restore_snapshot(home, sys.argv[2], profile="default", now=1e9)
except RefusedError as error:
    print(error)
"""
UNSHARE = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")


def can_unshare() -> bool:
    if shutil.which("unshare") is None:
        return False
    return subprocess.run([*UNSHARE, "true"], capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not can_unshare(), reason="no pid namespace of one's own here")
def test_a_holder_in_another_container_is_refused(tmp_path: Path) -> None:
    """A home on a shared volume: neither its descriptors nor its pid can be seen, only its lock."""
    make_database(tmp_path / "state.db", 5)
    snapshot = snap(tmp_path)
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "state.db")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    assert holders(tmp_path / "state.db") == [child.pid]
    seen = subprocess.run(
        [*UNSHARE, sys.executable, "-c", ELSEWHERE, str(tmp_path), snapshot],
        capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    child.communicate("")
    assert seen.stdout.splitlines()[0] == "[0]", seen
    assert "another container" in seen.stdout
    assert rows(tmp_path / "state.db") == 6


def test_the_wait_for_locked_members_has_one_limit(tmp_path: Path) -> None:
    """One that holds several made a snapshot wait its limit for each (case C009)."""
    (tmp_path / "config.yaml").write_text("a: 1\n")
    names = ("state.db", "projects.db", "response_store.db", "memory_store.db", "kanban.db")
    held = []
    for name in names:
        make_database(tmp_path / name, 1, wal=False)
        held.append(sqlite3.connect(tmp_path / name, isolation_level=None))
        held[-1].execute("BEGIN EXCLUSIVE")
    started = time.monotonic()
    taken = take_snapshot("default", tmp_path, label="manual", keep=1, now=NOW, busy_limit=0.3)
    for each in held:
        each.close()
    assert taken is not None
    assert time.monotonic() - started < 1.2
    assert set(taken.manifest.failed_dbs) == set(names)


def test_a_left_over_that_cannot_go_costs_no_snapshot(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("a: 1\n")
    (tmp_path / "state-snapshots").mkdir()
    (tmp_path / "state-snapshots/.x.partial").symlink_to(tmp_path)  # refused by the one that removes
    taken = take_snapshot("default", tmp_path, label="manual", keep=1, now=NOW)
    assert taken is not None
    assert (tmp_path / "config.yaml").exists()
