"""Putting a snapshot back: beside left-over logs, under live holders, over damage, without losing newer sign-ins."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from nedura.errors import NeduraError, RecordCorrupt, RefusedError, StoreError, UsageError
from nedura.update.state.place import ASIDE_KEEP
from nedura.update.state.restore import restore_snapshot, verify_snapshot
from nedura.update.state.sqlite import holders
from tests.integration.snapshot.homes import jwt, make_database, rows, snap


def crash_with_log(path: Path, more: int) -> None:
    """A writer dies with rows that are only in the write-ahead log."""
    code = (
        "import sqlite3, os, sys\n"
        "db = sqlite3.connect(sys.argv[1], isolation_level=None); db.execute('PRAGMA wal_autocheckpoint=0')\n"
        "for _ in range(int(sys.argv[2])): db.execute('INSERT INTO t(body) VALUES(?)', ('late',))\n"
        "os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", code, str(path), str(more)], check=True)
    assert Path(f"{path}-wal").stat().st_size > 0, "the trap must be set"


def plain_home(tmp_path: Path) -> Path:
    home = tmp_path / "h"
    make_database(home / "state.db", 50)
    (home / "config.yaml").write_text("a: 1\n")
    (home / "cron").mkdir()
    (home / "cron/jobs.json").write_text('{"jobs": [1, 2]}')
    return home


def test_lost_files_come_back(tmp_path: Path) -> None:
    home = plain_home(tmp_path)
    name = snap(home)
    for path in ("state.db", "config.yaml", "cron/jobs.json"):
        (home / path).unlink()
    event = restore_snapshot(home, name, profile="default", now=0)
    assert set(event.restored) == {"state.db", "config.yaml", "cron/jobs.json"}
    assert rows(home / "state.db") == 50
    assert (home / "config.yaml").read_text() == "a: 1\n"
    assert (home / "config.yaml").stat().st_mode & 0o777 == 0o600


def test_a_left_over_log_of_a_live_database_is_dealt_with(tmp_path: Path) -> None:
    home = plain_home(tmp_path)
    name = snap(home)
    crash_with_log(home / "state.db", 500)
    restore_snapshot(home, name, profile="default", now=0)
    assert rows(home / "state.db") == 50


def test_a_left_over_log_without_its_database_is_never_replayed(tmp_path: Path) -> None:
    """First the trap: beside the log, a plain copy of the same database shows rows that the snapshot never had."""
    home = plain_home(tmp_path)
    name = snap(home)
    copy = (home / "state-snapshots" / name / "state.db").read_bytes()
    crash_with_log(home / "state.db", 500)
    (home / "state.db").write_bytes(copy)
    log = Path(f"{home / 'state.db'}-wal").read_bytes()
    assert rows(home / "state.db") == 550, "the unguarded way mixes two contents"
    for side in ("", "-wal", "-shm"):
        Path(f"{home / 'state.db'}{side}").unlink(missing_ok=True)
    Path(f"{home / 'state.db'}-wal").write_bytes(log)
    restore_snapshot(home, name, profile="default", now=0)
    assert rows(home / "state.db") == 50


def hold_in_child(path: Path) -> subprocess.Popen[bytes]:
    code = (
        "import sqlite3, sys\ndb = sqlite3.connect(sys.argv[1]); db.execute('SELECT count(*) FROM t').fetchone()\n"
        "print('ready', flush=True); sys.stdin.read()"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    assert child.stdout.readline() == b"ready\n"
    return child


@pytest.mark.parametrize("wal", [True, False])
def test_a_live_holder_is_refused_and_nothing_changes(tmp_path: Path, wal: bool) -> None:
    home = plain_home(tmp_path)
    make_database(home / "projects.db", 3, wal=wal)
    name = snap(home)
    (home / "config.yaml").write_text("changed: true\n")
    child = hold_in_child(home / "projects.db")
    try:
        assert holders(home / "projects.db") == [child.pid]
        with pytest.raises(RefusedError, match=str(child.pid)):
            restore_snapshot(home, name, profile="default", now=0)
        assert (home / "config.yaml").read_text() == "changed: true\n"
    finally:
        child.communicate(b"")
    restore_snapshot(home, name, profile="default", now=0)
    assert (home / "config.yaml").read_text() == "a: 1\n"


def test_locks_alone_give_a_holder_away(tmp_path: Path) -> None:
    """Where descriptors cannot be listed, SQLite's own locks answer."""
    path = make_database(tmp_path / "state.db")
    child = hold_in_child(path)
    try:
        (tmp_path / "proc").mkdir()
        assert holders(path, proc=tmp_path / "proc") == [child.pid]
    finally:
        child.communicate(b"")


def test_this_process_counts_as_a_holder(tmp_path: Path) -> None:
    path = make_database(tmp_path / "state.db")
    with closing(sqlite3.connect(path)) as db:
        db.execute("SELECT count(*) FROM t").fetchone()
        assert holders(path) == [os.getpid()]
    assert holders(path) == []


def test_a_damaged_live_database_is_set_aside_byte_for_byte(tmp_path: Path) -> None:
    home = plain_home(tmp_path)
    name = snap(home)
    junk = bytes(100_000)
    (home / "state.db").write_bytes(junk)
    restore_snapshot(home, name, profile="default", now=1_000_000_000)
    assert rows(home / "state.db") == 50
    assert (home / "state.db.corrupt-20010909-014640").read_bytes() == junk


def test_sets_of_damaged_files_are_bounded(tmp_path: Path) -> None:
    home = plain_home(tmp_path)
    name = snap(home)
    for number in range(6):
        (home / "state.db").write_bytes(bytes([number]) * 5000)
        restore_snapshot(home, name, profile="default", now=1_000_000_000 + number)
    kept = sorted(path.name for path in home.glob("state.db.corrupt-*"))
    assert len(kept) == ASIDE_KEEP
    assert (home / kept[-1]).read_bytes() == bytes([5]) * 5000


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (flip, "content"),
        (lambda path: path.write_bytes(b""), "size"),
        (lambda path: path.unlink(), "missing"),
        (lambda path: (path.unlink(), path.symlink_to("/etc/passwd")), "missing"),
    ],
)
def test_a_damaged_snapshot_is_refused_whole(
    tmp_path: Path, damage: Callable[[Path], object], why: str
) -> None:
    home = plain_home(tmp_path)
    name = snap(home)
    damage(home / "state-snapshots" / name / "state.db")
    _, wrong = verify_snapshot(home, name)
    assert why in wrong["state.db"]
    (home / "config.yaml").write_text("changed: true\n")
    with pytest.raises(RecordCorrupt, match=r"state\.db"):
        restore_snapshot(home, name, profile="default", now=0)
    assert (home / "config.yaml").read_text() == "changed: true\n"


@pytest.mark.parametrize("change", [{"../../x": 1}, {"/etc/x": 1}, {"bin/nedura": 1}])
def test_a_manifest_that_leaves_the_home_is_refused(tmp_path: Path, change: dict[str, int]) -> None:
    home = plain_home(tmp_path)
    name = snap(home)
    manifest = home / "state-snapshots" / name / "manifest.json"
    record = json.loads(manifest.read_text())
    record["files"] |= change
    record["sha256"] |= dict.fromkeys(change, "0" * 64)
    manifest.write_text(json.dumps(record))
    with pytest.raises(RecordCorrupt):
        restore_snapshot(home, name, profile="default", now=0)
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("cut", range(0, 700, 64))
def test_a_truncated_manifest_is_never_an_empty_snapshot(tmp_path: Path, cut: int) -> None:
    home = plain_home(tmp_path)
    name = snap(home)
    manifest = home / "state-snapshots" / name / "manifest.json"
    manifest.write_bytes(manifest.read_bytes()[:cut])
    with pytest.raises(StoreError):
        restore_snapshot(home, name, profile="default", now=0)


@pytest.mark.parametrize("name", ["..", "../x", "a/b", "20200101-000000-none"])
def test_an_id_cannot_name_another_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises((UsageError, StoreError)):
        restore_snapshot(plain_home(tmp_path), name, profile="default", now=0)


def account(sub: str, refresh: str, at: str) -> dict[str, object]:
    return {"access_token": jwt(sub, refresh), "refresh_token": refresh, "obtained_at": at}


def store(**providers: object) -> str:
    return json.dumps(
        {"version": 1, "providers": providers, "credential_pool": {name: [name] for name in providers}}
    )


def test_a_newer_grant_of_the_same_account_stays(tmp_path: Path) -> None:
    home = plain_home(tmp_path)
    (home / "auth.json").write_text(
        store(nous=account("u1", "old", "2026-01-01T00:00:00Z"), other=account("x", "o1", "2026"))
    )
    name = snap(home)
    (home / "auth.json").write_text(store(nous=account("u1", "rotated", "2026-01-02T00:00:00Z")))
    event = restore_snapshot(home, name, profile="default", now=0)
    providers = json.loads((home / "auth.json").read_text())["providers"]
    assert providers["nous"]["refresh_token"] == "rotated"
    assert providers["other"]["refresh_token"] == "o1"
    assert "newer sign-in of nous" in event.kept["auth.json"]
    assert "auth.json" in event.restored


@pytest.mark.parametrize(
    "live",
    [
        account("u2", "theirs", "2026-01-02T00:00:00Z"),
        account("u1", "older", "2025-01-01T00:00:00Z"),
        {"anon_token": "anon_x", "obtained_at": "2027"},
    ],
)
def test_another_identity_or_an_older_grant_gives_way(tmp_path: Path, live: dict[str, object]) -> None:
    home = plain_home(tmp_path)
    (home / "auth.json").write_text(store(nous=account("u1", "saved", "2026-01-01T00:00:00Z")))
    name = snap(home)
    (home / "auth.json").write_text(store(nous=live))
    restore_snapshot(home, name, profile="default", now=0)
    assert json.loads((home / "auth.json").read_text())["providers"]["nous"]["refresh_token"] == "saved"


def test_a_live_hand_off_record_stays(tmp_path: Path) -> None:
    home = plain_home(tmp_path)
    (home / "guest_handoff.json").write_text('{"records": ["pending"]}')
    name = snap(home)
    (home / "guest_handoff.json").write_text('{"records": ["claimed"]}')
    event = restore_snapshot(home, name, profile="default", now=0)
    assert "claimed" in (home / "guest_handoff.json").read_text()
    assert "guest_handoff.json" not in event.restored
    (home / "guest_handoff.json").write_text("{")
    restore_snapshot(home, name, profile="default", now=0)
    assert "pending" in (home / "guest_handoff.json").read_text()


def test_the_owners_link_is_written_through(tmp_path: Path) -> None:
    home = plain_home(tmp_path)
    (tmp_path / "dotfiles").mkdir()
    os.rename(home / "config.yaml", tmp_path / "dotfiles/config.yaml")
    (home / "config.yaml").symlink_to(tmp_path / "dotfiles/config.yaml")
    name = snap(home)
    (tmp_path / "dotfiles/config.yaml").write_text("broken")
    restore_snapshot(home, name, profile="default", now=0)
    assert (home / "config.yaml").is_symlink()
    assert (tmp_path / "dotfiles/config.yaml").read_text() == "a: 1\n"


def linked_home(tmp_path: Path) -> tuple[Path, Path, str]:
    """A home whose state.db is its owner's own link to a database elsewhere: home, the real database, a snapshot's id."""
    home, real = tmp_path / "h", make_database(tmp_path / "elsewhere/real.db", 50)
    home.mkdir()
    (home / "state.db").symlink_to(real)
    return home, real, snap(home)


def test_a_holder_of_a_linked_database_is_refused(tmp_path: Path) -> None:
    home, real, name = linked_home(tmp_path)
    child = hold_in_child(real)
    try:
        assert holders(home / "state.db") == [child.pid]
        with pytest.raises(RefusedError, match=str(child.pid)):
            restore_snapshot(home, name, profile="default", now=0)
    finally:
        child.communicate(b"")


@pytest.mark.parametrize("left", ["nothing", "damaged"])
def test_the_log_beside_the_target_of_a_link_is_never_replayed(tmp_path: Path, left: str) -> None:
    """SQLite keeps its side files beside the real file, not beside the link."""
    home, real, name = linked_home(tmp_path)
    crash_with_log(real, 500)
    if left == "nothing":
        real.unlink()
    else:
        real.write_bytes(bytes(5000))
    restore_snapshot(home, name, profile="default", now=0)
    assert (home / "state.db").is_symlink()
    assert rows(real) == 50
    if left == "damaged":
        sides = ("-wal", "-shm")
        (aside,) = [path for path in real.parent.glob("real.db.corrupt-*") if not path.name.endswith(sides)]
        assert aside.read_bytes() == bytes(5000)


def test_a_folder_in_the_place_of_a_file_is_named(tmp_path: Path) -> None:
    home = plain_home(tmp_path)
    name = snap(home)
    (home / "config.yaml").unlink()
    (home / "config.yaml").mkdir()
    with pytest.raises(NeduraError, match=r"config\.yaml"):
        restore_snapshot(home, name, profile="default", now=0)


@pytest.mark.parametrize("when", [1, 2, 3])
def test_killed_while_restoring_a_database_leaves_old_or_new(tmp_path: Path, when: int) -> None:
    if not Path("/usr/bin/strace").exists():
        pytest.skip("strace is not installed")
    home = tmp_path / "h"
    make_database(home / "state.db", 50)
    name = snap(home)
    with closing(sqlite3.connect(home / "state.db")) as db:
        db.executemany("INSERT INTO t(body) VALUES(?)", [("more",)] * 30)
        db.commit()
    code = (
        "import sys; from pathlib import Path; from nedura.update.state.restore import restore_snapshot\n"
        "restore_snapshot(Path(sys.argv[1]), sys.argv[2], profile='default', now=0)"
    )
    calls = "fsync,fdatasync,unlink,rename"
    strace = [
        "strace",
        "-f",
        "-qq",
        "-o",
        "/dev/null",
        "-e",
        f"trace={calls}",
        "-e",
        f"inject={calls}:signal=KILL:when={when}",
    ]
    done = subprocess.run([*strace, sys.executable, "-c", code, str(home), name], check=False)
    assert done.returncode == -9
    assert rows(home / "state.db") in (50, 80)
    restore_snapshot(home, name, profile="default", now=0)
    assert rows(home / "state.db") == 50
