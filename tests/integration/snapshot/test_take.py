"""Snapshots of real homes with real databases."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import aclosing, closing
from pathlib import Path

import pytest

from nedura.errors import LockTimeout
from nedura.locks import FileLock
from nedura.update import events as frame
from nedura.update import events_snapshot
from nedura.update.events import Progress, Skipped, SnapshotTaken
from nedura.update.events_snapshot import SnapshotFailed, SnapshotsStarted
from nedura.update.state.snapshot import SnapshotEvent, take_snapshots
from nedura.update.state.snapshot_manifest import list_snapshots, read_manifest
from nedura.update.state.snapshot_set import SNAPSHOT_SET
from nedura.update.state.snapshot_take import Taken, take_snapshot
from nedura.update.state.sqlite import check_copy
from nedura.wire import from_wire, to_wire


def make_database(path: Path, rows: int = 50, *, wal: bool = True) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path)) as db:
        if wal:
            db.execute("PRAGMA journal_mode=WAL")
        db.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, body TEXT)")
        db.executemany("INSERT INTO t(body) VALUES(?)", [(f"row {n}" * 20,) for n in range(rows)])
        db.commit()
    path.chmod(0o600)


def make_home(home: Path) -> Path:
    """A home with every member of the set."""
    for member in SNAPSHOT_SET:
        path = home / member.path
        if member.tree:
            (path / "sub").mkdir(parents=True)
            (path / "sub" / "one.json").write_text("{}")
        elif member.path.endswith(".db"):
            make_database(path)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f'{{"name": "{member.path}"}}')
    (home / "kanban/boards/workspaces").mkdir()
    (home / "kanban/boards/workspaces/big.bin").write_bytes(b"x")
    return home


async def collect(profiles: list[tuple[str, Path]], **options: object) -> list[SnapshotEvent]:
    async with aclosing(take_snapshots(profiles, **options)) as events:  # type: ignore[arg-type]
        return [event async for event in events]


def taken(events: list[SnapshotEvent]) -> dict[str, SnapshotTaken]:
    return {event.profile: event for event in events if isinstance(event, SnapshotTaken)}


async def test_every_profile_gets_the_identical_set(tmp_path: Path) -> None:
    homes = [(name, make_home(tmp_path / name)) for name in ("default", "a", "b")]
    events = await collect(homes)
    assert isinstance(events[0], SnapshotsStarted)
    assert events[0].profiles == ("default", "a", "b")
    found = taken(events)
    assert set(found) == {"default", "a", "b"}
    sets = []
    for name, home in homes:
        manifest = read_manifest(home / "state-snapshots" / found[name].snapshot_id)
        assert manifest.complete
        assert manifest.profile == name
        assert found[name].files == len(manifest.files) == len(SNAPSHOT_SET)
        sets.append(sorted(manifest.files))
    assert sets[0] == sets[1] == sets[2]
    assert "kanban/boards/sub/one.json" in sets[0]
    assert not any("workspaces" in path for path in sets[0])


async def test_copies_are_whole_private_and_leave_the_home_as_it_was(tmp_path: Path) -> None:
    home = make_home(tmp_path / "h")
    os.umask(os.umask(0))
    before = sorted(str(path) for path in home.rglob("*"))
    event = taken(await collect([("default", home)]))["default"]
    folder = home / "state-snapshots" / event.snapshot_id
    for path in [folder, *folder.rglob("*")]:
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path
    for copy in folder.rglob("*.db"):
        check_copy(copy)
        with closing(sqlite3.connect(f"{copy.as_uri()}?mode=ro&immutable=1", uri=True)) as db:
            assert db.execute("SELECT count(*) FROM t").fetchone() == (50,)
    after = sorted(
        str(p) for p in home.rglob("*") if "state-snapshots" not in p.parts and p.name != ".backup.lock"
    )
    assert after == before, "no side files, nothing else touched"


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_modes_do_not_depend_on_the_umask(tmp_path: Path, umask: int) -> None:
    make_home(tmp_path / "h")
    code = (
        "import os, sys, time; os.umask(int(sys.argv[2]))\n"
        "from pathlib import Path; from nedura.update.state.snapshot_take import take_snapshot\n"
        "t = take_snapshot('default', Path(sys.argv[1]), label='manual', keep=1, now=time.time()); print(t.folder)"
    )
    out = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "h"), str(umask)],
        check=True,
        capture_output=True,
        text=True,
    )
    folder = Path(out.stdout.strip())
    for path in [folder, *folder.rglob("*")]:
        assert path.stat().st_mode & 0o077 == 0, path


def test_rows_that_are_only_in_the_log_are_in_the_copy(tmp_path: Path) -> None:
    """Case C014's heart, with the writer still connected."""
    home = tmp_path / "h"
    make_database(home / "state.db")
    with closing(sqlite3.connect(home / "state.db", isolation_level=None)) as writer:
        writer.execute("PRAGMA wal_autocheckpoint=0")
        writer.execute("BEGIN")
        writer.executemany("INSERT INTO t(body) VALUES(?)", [("late",)] * 1000)
        writer.execute("COMMIT")
        result = take_snapshot("default", home, label="manual", keep=1, now=time.time())
    assert result is not None
    with closing(sqlite3.connect(f"{(result.folder / 'state.db').as_uri()}?immutable=1", uri=True)) as db:
        assert db.execute("SELECT count(*) FROM t").fetchone() == (1050,)
    assert not (result.folder / "state.db-wal").exists()


def test_a_crashed_writers_journal_is_rolled_back(tmp_path: Path) -> None:
    home = tmp_path / "h"
    make_database(home / "state.db", wal=False)
    code = (
        "import sqlite3, os, sys\n"
        "db = sqlite3.connect(sys.argv[1], isolation_level=None); db.execute('PRAGMA cache_size=1'); db.execute('BEGIN')\n"
        "for _ in range(3000): db.execute('INSERT INTO t(body) VALUES(?)', ('x' * 500,))\n"
        "os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", code, str(home / "state.db")], check=True)
    assert (home / "state.db-journal").exists(), "the trap must be set"
    result = take_snapshot("default", home, label="manual", keep=1, now=time.time())
    assert result is not None
    assert result.manifest.complete
    with closing(sqlite3.connect(f"{(result.folder / 'state.db').as_uri()}?immutable=1", uri=True)) as db:
        assert db.execute("SELECT count(*) FROM t").fetchone() == (50,)


def test_a_locked_database_is_named_and_the_rest_is_saved(tmp_path: Path) -> None:
    home = tmp_path / "h"
    make_database(home / "state.db", wal=False)
    (home / "config.yaml").write_text("a: 1\n")
    with closing(sqlite3.connect(home / "state.db", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        started = time.monotonic()
        result = take_snapshot("default", home, label="pre-update", keep=1, now=time.time(), busy_limit=0.3)
        assert 0.3 < time.monotonic() - started < 10, "it was waited for, and not for ever"
    assert result is not None
    assert result.manifest.failed_dbs == ("state.db",)
    assert sorted(result.manifest.files) == ["config.yaml"]
    assert "locked" in result.manifest.failed["state.db"]
    assert not (result.folder / "state.db").exists()


def test_an_incomplete_snapshot_keeps_the_last_good_one(tmp_path: Path) -> None:
    home = tmp_path / "h"
    make_database(home / "state.db")
    (home / "config.yaml").write_text("a: 1\n")
    good = take_snapshot("default", home, label="pre-update", keep=1, now=1_000_000_000)
    (home / "state.db").write_bytes(bytes(200_000))
    bad = [
        take_snapshot("default", home, label="pre-update", keep=1, now=1_000_000_001 + n) for n in range(3)
    ]
    assert good is not None
    names = [one.id for one in list_snapshots(home)[0]]
    assert bad[-1] is not None
    assert names == [good.manifest.id, bad[-1].manifest.id]
    make_database(home / "fresh.db")
    os.replace(home / "fresh.db", home / "state.db")
    whole = take_snapshot("default", home, label="pre-update", keep=1, now=1_000_000_100)
    assert whole is not None
    assert [one.id for one in list_snapshots(home)[0]] == [whole.manifest.id]
    assert set(whole.pruned) == {good.manifest.id, bad[-1].manifest.id}


def test_the_cap_is_judged_before_any_byte_is_read(tmp_path: Path) -> None:
    home = tmp_path / "h"
    home.mkdir()
    (home / "config.yaml").write_bytes(b"x" * 100)
    (home / ".env").write_bytes(b"x" * 101)
    result = take_snapshot("default", home, label="pre-update", keep=1, now=time.time(), cap=100)
    assert result is not None
    assert sorted(result.manifest.files) == ["config.yaml"], "a file of exactly the cap is copied"
    assert result.manifest.oversized_skipped == (".env",)
    assert not result.manifest.complete


def test_an_empty_home_has_no_snapshot(tmp_path: Path) -> None:
    assert take_snapshot("default", tmp_path, label="pre-update", keep=1, now=time.time()) is None
    assert os.listdir(tmp_path) == []


def test_links_of_the_owner_are_read_and_special_files_are_named(tmp_path: Path) -> None:
    home, elsewhere = tmp_path / "h", tmp_path / "dotfiles"
    (home / "pairing").mkdir(parents=True)
    elsewhere.mkdir()
    (elsewhere / "config.yaml").write_text("from: dotfiles\n")
    (home / "config.yaml").symlink_to(elsewhere / "config.yaml")
    os.mkfifo(home / ".env")
    os.mkfifo(home / "pairing/pipe")
    (home / "pairing/link").symlink_to("/etc/passwd")
    (home / "auth.json").symlink_to(tmp_path / "nowhere")
    with socket.socket(socket.AF_UNIX) as sock:
        cwd = os.open(".", os.O_RDONLY)
        try:
            os.chdir(home / "pairing")
            sock.bind("sock")
        finally:
            os.fchdir(cwd)
            os.close(cwd)
        started = time.monotonic()
        result = take_snapshot("default", home, label="pre-update", keep=1, now=time.time())
    assert time.monotonic() - started < 2
    assert result is not None
    assert (result.folder / "config.yaml").read_text() == "from: dotfiles\n"
    assert not (result.folder / "config.yaml").is_symlink()
    assert set(result.manifest.failed) == {".env", "auth.json"}
    assert set(result.manifest.skipped) == {"pairing/pipe", "pairing/link", "pairing/sock"}


async def test_one_profiles_failure_is_kept_from_the_others(tmp_path: Path) -> None:
    homes = [(name, make_home(tmp_path / name)) for name in ("default", "a", "b")]
    lock = FileLock(tmp_path / "a" / ".backup.lock")
    assert lock.try_acquire()
    try:
        events = await collect(homes)
    finally:
        lock.release()
    assert set(taken(events)) == {"default", "b"}
    failed = [event for event in events if isinstance(event, SnapshotFailed)]
    assert [event.profile for event in failed] == ["a"]
    assert "backup is locked" in failed[0].reason


async def test_one_home_under_two_names_is_taken_once(tmp_path: Path) -> None:
    home = make_home(tmp_path / "h")
    (tmp_path / "alias").symlink_to(home)
    events = await collect([("default", home), ("twin", tmp_path / "alias")])
    assert set(taken(events)) == {"default"}
    empty = tmp_path / "empty"
    empty.mkdir()
    assert isinstance((await collect([("e", empty)]))[-1], Skipped)


async def test_the_first_event_comes_before_any_file_is_touched(tmp_path: Path) -> None:
    home = make_home(tmp_path / "h")
    async with aclosing(take_snapshots([("default", home)])) as events:
        first = await anext(events)
        assert first.kind == "snapshots_started"
        assert not (home / "state-snapshots").exists()


async def test_closing_it_early_leaves_nothing_behind(tmp_path: Path) -> None:
    """Close at each event in turn: no staging folder, no thread that writes later, no lock."""
    homes = [(f"p{n}", make_home(tmp_path / f"p{n}")) for n in range(3)]
    for count in range(1, 4):
        async with aclosing(take_snapshots(homes, at_once=2, label="manual")) as events:
            for _ in range(count):
                await anext(events)
        for _, home in homes:
            root = home / "state-snapshots"
            names = os.listdir(root) if root.exists() else []
            assert not [name for name in names if name.startswith(".")]
            lock = FileLock(home / ".backup.lock")
            assert lock.try_acquire()
            lock.release()
        assert len(asyncio.all_tasks()) == 1
    assert not [thread for thread in threading.enumerate() if "snapshot" in thread.name]


async def test_cancelling_the_consumer_leaves_nothing_behind(tmp_path: Path) -> None:
    home = make_home(tmp_path / "h")
    with closing(sqlite3.connect(home / "state.db", isolation_level=None)) as other:
        other.execute("PRAGMA journal_mode=DELETE")
        other.execute("BEGIN EXCLUSIVE")
        task = asyncio.create_task(collect([("default", home)]))
        await asyncio.sleep(0.3)
        task.cancel()
        started = time.monotonic()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert time.monotonic() - started < 2, "the wait for the lock ends when asked"
    assert os.listdir(home / "state-snapshots") == []


async def test_a_large_copy_shows_progress(tmp_path: Path) -> None:
    home = tmp_path / "h"
    make_database(home / "state.db", wal=False)
    with open(home / "state.db", "ab") as file:
        file.truncate(20 * 1024 * 1024)
    with closing(sqlite3.connect(home / "state.db", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        events = await collect([("default", home)], busy_limit=3.0, progress_every=0.1)
    progress = [event for event in events if isinstance(event, Progress)]
    assert progress
    assert progress[0].label == "default: state.db"
    assert progress[0].total >= 20 * 1024 * 1024


def test_stale_staging_of_a_killed_run_is_swept(tmp_path: Path) -> None:
    home = make_home(tmp_path / "h")
    stale = home / "state-snapshots" / ".20200101-000000-pre-update.1.abcd.partial"
    stale.mkdir(parents=True)
    (stale / "state.db").write_bytes(b"half")
    assert take_snapshot("default", home, label="pre-update", keep=1, now=time.time()) is not None
    assert not stale.exists()


def test_another_backup_of_the_same_home_is_waited_for_briefly(tmp_path: Path) -> None:
    home = make_home(tmp_path / "h")
    lock = FileLock(home / ".backup.lock")
    assert lock.try_acquire()
    started = time.monotonic()
    with pytest.raises(LockTimeout):
        take_snapshot("default", home, label="pre-update", keep=1, now=time.time())
    assert 0.2 < time.monotonic() - started < 2
    lock.release()


async def test_its_events_cross_the_wire(tmp_path: Path) -> None:
    known = {cls.kind: cls for cls in (*frame.EVENTS, *events_snapshot.EVENTS)}
    for event in await collect([("default", make_home(tmp_path / "h"))]):
        wire = json.loads(json.dumps(to_wire(event)))
        assert from_wire(wire, known) == event


def test_a_snapshot_is_never_visible_before_it_is_durable(tmp_path: Path) -> None:
    """The order of system calls: every copy is written, then one syncfs for the tree, the manifest, the rename, the folder."""
    if not Path("/usr/bin/strace").exists():
        pytest.skip("strace is not installed")
    home = tmp_path / "h"
    make_database(home / "state.db")
    (home / "config.yaml").write_text("a: 1\n")
    trace = tmp_path / "trace"
    subprocess.run(
        ["strace", "-f", "-y", "-qq", "-o", str(trace), "-e", "trace=write,fsync,syncfs,rename,renameat,renameat2", *take(home)],
        check=True,
    )  # fmt: skip
    lines = [line for line in trace.read_text().splitlines() if "state-snapshots" in line]
    publish = next(
        n
        for n, line in enumerate(lines)
        if "rename" in line and line.count("state-snapshots") == 2 and "manifest" not in line
    )
    before, after = lines[:publish], lines[publish + 1 :]
    flushed = next(n for n, line in enumerate(before) if "syncfs" in line and ".partial>" in line)
    for name in ("state.db>", "config.yaml>"):
        written = [n for n, line in enumerate(before) if "write(" in line and name in line]
        assert written, name
        assert max(written) < flushed, name
    assert all("manifest" in line or "partial>" in line for line in before[flushed:]), (
        "the manifest comes last"
    )
    for name in ("manifest.json", ".partial>"):
        assert any("fsync" in line and name in line for line in before[flushed:]), name
    assert any("fsync" in line and "state-snapshots>" in line for line in after)


def take(home: Path) -> list[str]:
    return [sys.executable, "-c", TAKE, str(home)]


TAKE = (
    "import sys, time; from pathlib import Path; from nedura.update.state.snapshot_take import take_snapshot\n"
    "from nedura.errors import StoreError\n"
    "try: take_snapshot('default', Path(sys.argv[1]), label='pre-update', keep=1, now=time.time())\n"
    "except StoreError as error: print(error.message); sys.exit(3)\n"
)


@pytest.mark.parametrize("fault", ["error=EIO", "error=ENOSPC", "signal=KILL"])
@pytest.mark.parametrize("flush", ["syncfs", "fsync:when=1", "fsync:when=2", "fsync:when=3"])
def test_a_fault_at_any_fsync_leaves_the_older_snapshot(tmp_path: Path, fault: str, flush: str) -> None:
    if not Path("/usr/bin/strace").exists():
        pytest.skip("strace is not installed")
    home = tmp_path / "h"
    make_database(home / "state.db")
    (home / "config.yaml").write_text("a: 1\n")
    old = take_snapshot("default", home, label="pre-update", keep=1, now=1_000_000_000)
    assert isinstance(old, Taken)
    call, colon, when = flush.partition(":")
    done = subprocess.run(
        ["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={call}", "-e", f"inject={call}:{fault}{colon}{when}", *take(home)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == (3 if "error" in fault else -9), done.stdout + done.stderr
    assert [one.id for one in list_snapshots(home)[0]] == [old.manifest.id]
    again = take_snapshot("default", home, label="pre-update", keep=1, now=2_000_000_000)
    assert again is not None
    assert os.listdir(home / "state-snapshots") == [again.manifest.id], "what the killed run left is swept"


@pytest.mark.parametrize("name", ["with blank", "hö-mé-家", "a#b?c%20d&e", "x" * 120, "quote'\"s"])
async def test_any_home_name_works(tmp_path: Path, name: str) -> None:
    home = tmp_path / name
    make_database(home / "state.db")
    event = taken(await collect([("default", home)]))["default"]
    check_copy(home / "state-snapshots" / event.snapshot_id / "state.db")
    assert event.incomplete == ()


def plant(kind: str, path: Path, victim: Path) -> None:
    match kind:
        case "symlink":
            path.symlink_to(victim)
        case "hardlink":
            os.link(victim, path)
        case "fifo":
            os.mkfifo(path)
        case _:
            path.mkdir()
            (path / "inside").write_text("x")


@pytest.mark.parametrize("kind", ["symlink", "hardlink", "fifo", "dir"])
async def test_what_is_planted_at_the_lock_is_not_followed(tmp_path: Path, kind: str) -> None:
    home = tmp_path / "h"
    make_database(home / "state.db")
    (tmp_path / "victim").write_text("precious")
    plant(kind, home / ".backup.lock", tmp_path / "victim")
    started = time.monotonic()
    (event,) = [e for e in await collect([("default", home)]) if isinstance(e, SnapshotFailed)]
    assert time.monotonic() - started < 2
    assert ".backup.lock" in event.reason
    assert (tmp_path / "victim").read_text() == "precious"


@pytest.mark.parametrize("kind", ["symlink", "fifo"])
async def test_what_is_planted_at_the_folder_is_not_followed(tmp_path: Path, kind: str) -> None:
    home, elsewhere = tmp_path / "h", tmp_path / "elsewhere"
    make_database(home / "state.db")
    elsewhere.mkdir(mode=0o755)
    plant(kind, home / "state-snapshots", elsewhere)
    (event,) = [e for e in await collect([("default", home)]) if isinstance(e, SnapshotFailed)]
    assert "state-snapshots" in event.reason
    assert os.listdir(elsewhere) == []
    assert elsewhere.stat().st_mode & 0o777 == 0o755


def test_a_planted_link_among_the_old_ones_is_not_followed(tmp_path: Path) -> None:
    home = tmp_path / "h"
    make_database(home / "state.db")
    old = take_snapshot("default", home, label="pre-update", keep=1, now=1_000_000_000)
    assert old is not None
    precious = tmp_path / "precious"
    os.rename(old.folder, precious)
    old.folder.symlink_to(precious)
    new = take_snapshot("default", home, label="pre-update", keep=1, now=1_000_000_100)
    assert new is not None
    assert (precious / "state.db").exists()
