"""Durable records and locks on a real filesystem."""

from __future__ import annotations

import json
import os
import resource
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from nedura import records
from nedura.errors import LockTimeout, RecordCorrupt, RecordMissing, RecordUnreadable, StoreError, UnsafePath
from nedura.locks import FileLock, holder_of, locked


def test_a_record_comes_back_and_is_private_whatever_the_umask(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    old = os.umask(0)
    try:
        records.write_json(path, {"a": 1})
        records.append_line(tmp_path / "log", "x")
    finally:
        os.umask(old)
    assert records.read_json(path) == {"a": 1}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "log").stat().st_mode) == 0o600
    assert sorted(os.listdir(tmp_path)) == ["log", "r.json"]


def test_missing_corrupt_and_large_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    with pytest.raises(RecordMissing):
        records.read_json(path)
    path.write_bytes(b'{"a": ')
    with pytest.raises(RecordCorrupt):
        records.read_json(path)
    path.write_bytes(b"[" * 100_000)
    with pytest.raises(RecordCorrupt):
        records.read_json(path)
    with path.open("wb") as handle:
        handle.truncate(2 << 30)
    with pytest.raises(RecordCorrupt):
        records.read_json(path)


def test_every_truncation_of_a_record_is_an_error_and_never_empty(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    records.write_json(path, {"owed": ["gateway"] * 40})
    whole = path.read_bytes()
    for cut in range(0, len(whole) - 2, 64):
        path.write_bytes(whole[:cut])
        with pytest.raises(RecordCorrupt):
            records.read_json(path)


def _plant_symlink(path: Path, victim: Path) -> None:
    path.symlink_to(victim)


def _plant_hardlink(path: Path, victim: Path) -> None:
    os.link(victim, path)


def _plant_fifo(path: Path, victim: Path) -> None:
    os.mkfifo(path)


def _plant_folder(path: Path, victim: Path) -> None:
    path.mkdir()


def _plant_socket(path: Path, victim: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


PLANTS = [_plant_symlink, _plant_hardlink, _plant_fifo, _plant_folder, _plant_socket]


@pytest.mark.parametrize("plant", PLANTS)
@pytest.mark.parametrize("act", ["read", "append", "lock"])
def test_a_planted_path_is_refused_and_its_victim_untouched(
    tmp_path: Path, plant: Callable[[Path, Path], None], act: str
) -> None:
    victim, path = tmp_path / "victim", tmp_path / "r"
    victim.write_bytes(b'"precious"')
    plant(path, victim)
    start = time.monotonic()
    with pytest.raises(UnsafePath):
        match act:
            case "read":
                records.read_json(path)
            case "append":
                records.append_line(path, "x")
            case _:
                FileLock(path).try_acquire()
    assert time.monotonic() - start < 2
    assert victim.read_bytes() == b'"precious"'


@pytest.mark.parametrize("plant", PLANTS)
def test_a_write_never_goes_through_a_planted_path(
    tmp_path: Path, plant: Callable[[Path, Path], None]
) -> None:
    victim, path = tmp_path / "victim", tmp_path / "r"
    victim.write_bytes(b'"precious"')
    plant(path, victim)
    if plant is _plant_hardlink:  # replaced by a new file; the other name keeps its bytes
        records.write_json(path, 1)
    else:
        with pytest.raises(UnsafePath):
            records.write_json(path, 1)
    assert victim.read_bytes() == b'"precious"'


def test_an_unwritable_place_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="does not exist"):
        records.write_json(tmp_path / "no" / "r.json", 1)
    (tmp_path / "f").write_bytes(b"")
    with pytest.raises(RecordUnreadable):
        records.read_json(tmp_path / "f" / "r.json")


def test_a_group_writable_folder_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o770)
    with pytest.raises(UnsafePath, match="other users"):
        records.check_folder(folder)
    folder.chmod(0o700)
    records.check_folder(folder)


def test_a_log_line_stays_one_line(tmp_path: Path) -> None:
    records.append_line(tmp_path / "log", "a\nb\x1b[2J\u2028c")
    assert len((tmp_path / "log").read_bytes().splitlines()) == 1


def test_make_folder_ignores_the_umask(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        records.make_folder(tmp_path / "a" / "b")
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "a" / "b").stat().st_mode) == 0o700


HOLD = """
import sys, time
from pathlib import Path
from nedura.locks import FileLock
lock = FileLock(Path(sys.argv[1]))
lock.acquire()
print("held", flush=True)
time.sleep(60)
"""


def test_a_lock_names_its_holder_and_is_free_when_the_holder_dies(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    with subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"held\n"
        with pytest.raises(LockTimeout) as caught, locked(path, timeout=0.1):
            pass
        assert caught.value.holder == child.pid == holder_of(path)
        child.kill()
        child.wait()
    with locked(path, timeout=0.5):
        assert holder_of(path) == os.getpid()


def test_a_lock_is_reentrant_in_its_thread(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    with locked(path), locked(path):
        assert not FileLock(path).try_acquire()
    assert FileLock(path).try_acquire()


async def test_waiting_for_a_lock_does_not_hold_the_loop(tmp_path: Path) -> None:
    first = FileLock(tmp_path / "x.lock")
    first.acquire()
    with pytest.raises(LockTimeout):
        await FileLock(tmp_path / "x.lock").acquire_async(timeout=0.1)
    first.release()
    second = FileLock(tmp_path / "x.lock")
    await second.acquire_async(timeout=0.1)
    second.release()


def test_json_written_is_json_read(tmp_path: Path) -> None:
    value = {"ü": ["\u2028", None, 1.5], "n": {"m": []}}
    records.write_json(tmp_path / "r.json", value, sort_keys=True)
    assert json.loads((tmp_path / "r.json").read_text("utf-8")) == value


def test_a_full_disk_takes_no_lock_away(tmp_path: Path) -> None:
    lock, other = FileLock(tmp_path / "a.lock"), FileLock(tmp_path / "a.lock")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))  # a write of one byte fails as on a full disk
    try:
        assert lock.try_acquire()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not other.try_acquire()
    lock.release()
    assert other.try_acquire()
    other.release()


def test_a_new_file_replaces_nothing_and_follows_no_link(tmp_path: Path) -> None:
    fresh = tmp_path / "fresh"
    records.write_new(fresh, b"x" * 3_000_000, 0o444)
    assert (fresh.stat().st_size, fresh.stat().st_mode & 0o777) == (3_000_000, 0o444)
    (tmp_path / "dangling").symlink_to(tmp_path / "elsewhere")
    for taken in (fresh, tmp_path / "dangling"):
        with pytest.raises(FileExistsError):
            records.write_new(taken, b"other")
    assert fresh.read_bytes()[:5] == b"xxxxx"
    assert not (tmp_path / "elsewhere").exists()
