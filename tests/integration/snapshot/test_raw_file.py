"""Reading a database's bytes beside SQLite: nobody's locks go, and bytes are copied only while a read transaction holds them still."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest

from nedura.openers import file_key
from nedura.update.state import raw_file
from nedura.update.state.sqlite import PIECE, check_copy, copy_database, is_sqlite
from tests.integration.snapshot.homes import make_database, rows

BEGIN = (
    "import sqlite3, sys\n"
    "db = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=0)\n"
    "try:\n    db.execute('BEGIN IMMEDIATE'); print('free')\n"
    "except sqlite3.OperationalError as error: print(error)\n"
)
MOVE = (
    "import sqlite3, sys\n"
    "db = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=0)\n"
    "try:\n"
    "    db.execute('BEGIN IMMEDIATE')\n"
    "    db.execute('UPDATE account SET money = money - 5 WHERE id = 0')\n"
    "    db.execute('UPDATE account SET money = money + 5 WHERE id = 2000')\n"
    "    db.execute('COMMIT')\n"
    "    db.execute('PRAGMA wal_checkpoint(PASSIVE)').fetchall()\n"
    "    print('moved')\n"
    "except sqlite3.OperationalError as error: print(error)\n"
)


def others_may_write(path: Path) -> str:
    """What another process is told that wants to write."""
    done = subprocess.run(
        [sys.executable, "-c", BEGIN, str(path)], capture_output=True, text=True, check=True, timeout=30
    )
    return done.stdout.strip()


def opened(path: Path) -> int:
    """Descriptors of a file in this process."""
    found = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            info = os.fstat(int(name))
        except OSError:
            continue
        found += (info.st_dev, info.st_ino) == file_key(path)
    return found


def copied(path: Path, to: Path) -> Path:
    to.touch(0o600)
    copy_database(path, to)
    return to


def test_looking_at_a_database_keeps_the_locks_of_this_process(tmp_path: Path) -> None:
    """A plain open and close took them: another process could write into a running transaction."""
    path = make_database(tmp_path / "a.db", wal=False)
    with closing(sqlite3.connect(path, isolation_level=None)) as mine:
        mine.execute("BEGIN IMMEDIATE")
        assert others_may_write(path) == "database is locked"
        handle = os.open(path, os.O_RDONLY)
        os.close(handle)
        assert others_may_write(path) == "free", "the trap itself works"
        mine.execute("ROLLBACK")
        mine.execute("BEGIN IMMEDIATE")
        assert is_sqlite(path)
        assert rows(copied(path, tmp_path / "copy.db")) == 50
        assert others_may_write(path) == "database is locked"


def test_a_descriptor_is_kept_once_and_goes_with_the_connection(tmp_path: Path) -> None:
    path = make_database(tmp_path / "a.db", wal=False)
    with closing(sqlite3.connect(path, isolation_level=None)) as mine:
        mine.execute("BEGIN IMMEDIATE")
        for _ in range(5):
            assert is_sqlite(path)
        assert opened(path) == 2
        assert raw_file.is_open_here(path)
    assert not raw_file.is_open_here(path), "what is only kept is nobody's"
    assert is_sqlite(path)
    assert opened(path) == 0


def test_two_readers_at_once_close_both(tmp_path: Path) -> None:
    path = make_database(tmp_path / "a.db")
    with raw_file.raw_file(path) as first, raw_file.raw_file(path) as second:
        assert first != second
    assert is_sqlite(path)
    assert opened(path) == 0


@pytest.mark.parametrize("wal", [True, False])
def test_a_database_at_rest_is_copied_byte_for_byte(tmp_path: Path, wal: bool) -> None:
    path = make_database(tmp_path / "a.db", 500, wal=wal)
    before = sorted(os.listdir(tmp_path))
    copy = copied(path, tmp_path / "copy.db")
    assert copy.read_bytes() == path.read_bytes()
    assert sorted(os.listdir(tmp_path)) == sorted([*before, "copy.db"])
    check_copy(copy)
    assert opened(path) == 0


def test_a_stop_is_heard_while_bytes_are_copied(tmp_path: Path) -> None:
    path = make_database(tmp_path / "a.db")
    (tmp_path / "copy.db").touch(0o600)
    stop = threading.Event()
    stop.set()
    with pytest.raises(Exception, match="stopped"):
        copy_database(path, tmp_path / "copy.db", stop=stop)


def test_a_log_that_waits_is_in_the_copy(tmp_path: Path) -> None:
    """Left by a process that was killed: the bytes of the file alone would lack its rows."""
    path = make_database(tmp_path / "a.db", 10)
    code = (
        "import sqlite3, os, sys\n"
        "db = sqlite3.connect(sys.argv[1], isolation_level=None); db.execute('PRAGMA wal_autocheckpoint=0')\n"
        "for _ in range(30): db.execute('INSERT INTO t(body) VALUES(?)', ('late',))\n"
        "os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], check=True)
    assert (tmp_path / "a.db-wal").stat().st_size > 0
    assert rows(copied(path, tmp_path / "copy.db")) == 40


class Between(threading.Event):
    """Never set; asked between two pieces of a copy, and at the second of those moments another process writes."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path, self.asked, self.said = path, 0, ""

    def is_set(self) -> bool:
        self.asked += 1
        if self.asked == 2:
            done = subprocess.run(
                [sys.executable, "-c", MOVE, str(self.path)],
                capture_output=True, text=True, check=True, timeout=30,
            )  # fmt: skip
            self.said = done.stdout.strip()
        return False


@pytest.mark.parametrize(("mode", "said"), [("wal", "moved"), ("delete", "database is locked")])
def test_a_writer_in_the_middle_of_the_copy_cannot_tear_it(tmp_path: Path, mode: str, said: str) -> None:
    """Money moves from the first page to the last, checkpoint included: a torn copy would make some."""
    path = tmp_path / "a.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA journal_mode={mode}")
        db.execute("CREATE TABLE account(id INTEGER PRIMARY KEY, money INTEGER, fill TEXT)")
        db.executemany("INSERT INTO account VALUES(?, 1000, ?)", [(n, "x" * 9000) for n in range(2001)])
        db.commit()
    assert path.stat().st_size > 2 * PIECE
    copy, between = tmp_path / "copy.db", Between(path)
    copy.touch(0o600)
    copy_database(path, copy, stop=between)
    assert between.said == said
    assert between.asked >= 3
    check_copy(copy)
    with closing(sqlite3.connect(f"{copy.as_uri()}?mode=ro&immutable=1", uri=True)) as db:
        assert db.execute("SELECT sum(money) FROM account").fetchone() == (2_001_000,)
