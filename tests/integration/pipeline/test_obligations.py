"""Obligations on real files: durable, undone byte for byte, one record per install and host; the lock's marker and flock."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

import nedura
from nedura.errors import StoreError
from nedura.installs import CodeIdentity
from nedura.product import NEDURA
from nedura.update.bounded import run_bounded
from nedura.update.ledger.lock import (
    LockHeld,
    LockRecord,
    UpdateLock,
    UpdateLockUnusable,
    format_record,
    parse_record,
)
from nedura.update.ledger.obligations import Attempts, RestartObligation, TailObligation, restart_folder
from nedura.update.ledger.owner import Owner, is_alive, myself
from nedura.update.ledger.restart_record import restarted, with_inventory

NEW = CodeIdentity(code_sha="b" * 40, generation="000002")


@pytest.fixture
def debt(tmp_path: Path) -> RestartObligation:
    (tmp_path / "home").mkdir()
    return RestartObligation(tmp_path / "locks", tmp_path / "install", tmp_path / "home")


def arm(debt: RestartObligation, owner: str = "run-1", rows: list[dict[str, str]] | None = None):  # type: ignore[no-untyped-def]
    return debt.arm(
        now=1.0, owner=owner, expected=NEW, inventory=rows if rows is not None else [{"profile": "a"}]
    )


def test_the_tail_is_armed_and_handed_back(tmp_path: Path) -> None:
    tail = TailObligation(tmp_path / "state")
    undo = tail.arm()
    assert tail.is_armed()
    assert (tmp_path / "state/source-completion-pending").stat().st_mode & 0o777 == 0o600
    undo()
    assert not tail.is_armed()


def test_an_older_tail_comes_back_byte_for_byte(tmp_path: Path) -> None:
    tail = TailObligation(tmp_path)
    tail.path.write_bytes(b"older form\x00\n")
    undo = tail.arm()
    undo()
    assert tail.path.read_bytes() == b"older form\x00\n"


def test_a_tail_that_cannot_be_read_is_owed(tmp_path: Path) -> None:
    tail = TailObligation(tmp_path)
    tail.path.symlink_to(tmp_path / "elsewhere")
    assert tail.is_armed()


@pytest.mark.parametrize(
    ("count", "since", "due"),
    [
        (0, 0, True),
        (1, 1, True),
        (2, 10, False),
        (2, 901, True),
        (5, 901, True),
        (6, 9e9, False),
        (2, -50, True),
    ],
)
def test_launches_back_off_and_stop(count: int, since: float, due: bool) -> None:
    assert Attempts(count, 1000.0).due(1000.0 + since) is due


def test_attempts_are_counted_before_they_begin(tmp_path: Path) -> None:
    tail = TailObligation(tmp_path)
    assert tail.count_attempt(5.0) == Attempts(1, 5.0)
    assert tail.count_attempt(9.0) == tail.attempts() == Attempts(2, 9.0)
    tail.attempts_path.write_bytes(b"\xff\xfe")
    assert tail.attempts() == Attempts()


def test_a_failed_commit_hands_the_restart_record_back_exactly(debt: RestartObligation) -> None:
    arm(debt)
    before = debt.host_path.read_bytes()
    undo = arm(debt, "run-2")
    assert debt.host_path.read_bytes() != before
    undo()
    assert debt.host_path.read_bytes() == before


def test_undo_keeps_what_another_run_has_a_stake_in(debt: RestartObligation) -> None:
    undo = arm(debt, "run-1")
    arm(debt, "run-2")
    undo()
    record = debt.read()
    assert record is not None
    assert record.owners == ("run-2",)


def test_an_explicit_empty_inventory_is_never_armed(debt: RestartObligation) -> None:
    arm(debt, rows=[])
    assert debt.read() is None


def test_a_corrupt_record_counts_as_armed_and_is_changed_by_nobody(debt: RestartObligation) -> None:
    arm(debt)
    debt.host_path.write_bytes(b"{torn")
    record = debt.read()
    assert record is not None
    assert not record.readable
    debt.change(lambda old: with_inventory(old, []))
    assert debt.host_path.read_bytes() == b"{torn"


def test_a_second_profile_attaches_to_a_restart_that_was_done(debt: RestartObligation) -> None:
    arm(debt)
    debt.change(lambda record: restarted(record, pid=1, now=2.0))
    record = debt.read()
    assert record is not None
    assert record.restarted is not None
    assert record.restarted["sha"] == NEW.code_sha


def test_an_unwritable_host_folder_falls_back_only_where_one_home_is_all(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "file").write_text("")
    debt = RestartObligation(tmp_path / "file" / "locks", tmp_path, tmp_path / "home")
    arm(debt)
    assert debt.fallback_path.exists()
    assert debt.read() is not None
    debt.clear()
    (tmp_path / "home/profiles/alpha").mkdir(parents=True)
    with pytest.raises(StoreError):
        arm(debt)


def test_the_host_folder_follows_its_variables() -> None:
    assert restart_folder({"NEDURA_GATEWAY_LOCK_DIR": "/x"}, NEDURA) == Path("/x")
    assert restart_folder({"XDG_STATE_HOME": "/s"}, NEDURA) == Path("/s/nedura/gateway-locks")
    assert restart_folder({"XDG_STATE_HOME": "relative", "HOME": "/h"}, NEDURA) == Path(
        "/h/.local/state/nedura/gateway-locks"
    )


def test_records_of_both_versions_are_read() -> None:
    record = LockRecord(Owner(7, 123.4567), 1000.0)
    assert format_record(record) == b"7\n1000\nct:123.457\n"
    parsed = parse_record(format_record(record))
    assert parsed is not None
    assert (parsed.owner.pid, parsed.started, parsed.version) == (7, 1000.0, 2)
    old = parse_record(b"7\n1000\n")
    assert old is not None
    assert old.version == 1
    assert parse_record(b"\x00\x00") is None
    assert parse_record(b"") is None


@pytest.fixture
def other() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "60"])
    yield process
    process.kill()
    process.wait()


def lock(home: Path, **environ: str) -> UpdateLock:
    return UpdateLock(home, home / "installs/x/.nedura-update.lock", NEDURA, environ)


def test_a_dead_owner_is_reclaimed_and_a_reused_pid_is_not_believed(
    tmp_path: Path, other: subprocess.Popen[bytes]
) -> None:
    marker = tmp_path / ".nedura-update-in-progress"
    marker.write_text(f"{other.pid}\n1\nct:12345.000\n")  # the pid lives, but was born at another time
    one = lock(tmp_path)
    one.acquire(100.0)
    assert marker.read_bytes().startswith(f"{os.getpid()}\n".encode())
    one.release()
    assert not marker.exists()


def test_a_live_owner_refuses_and_is_named(tmp_path: Path, other: subprocess.Popen[bytes]) -> None:
    created = psutil.Process(other.pid).create_time()
    (tmp_path / ".nedura-update-in-progress").write_text(f"{other.pid}\n100\nct:{created:.3f}\n")
    with pytest.raises(LockHeld) as caught:
        lock(tmp_path).acquire(400.0)
    assert caught.value.holder == other.pid
    assert "5 minutes" in caught.value.message
    assert caught.value.exit_code == 2
    lock(tmp_path, NEDURA_UPDATE_HANDOFF_PID=str(other.pid)).acquire(400.0)  # we act for it


def test_version_1_ages_out_and_version_2_never_does(tmp_path: Path, other: subprocess.Popen[bytes]) -> None:
    marker = tmp_path / ".nedura-update-in-progress"
    marker.write_text(f"{other.pid}\n1000\n")
    with pytest.raises(LockHeld):
        lock(tmp_path).acquire(1000.0 + 60)
    one = lock(tmp_path)
    one.acquire(1000.0 + 21 * 60)
    one.release()


def test_an_inherited_descriptor_keeps_the_install_locked_after_the_parent(tmp_path: Path) -> None:
    """A killed parent with a live child stays locked (facts/update.md 5.1)."""
    one = lock(tmp_path)
    one.acquire(1.0)
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=one.fds)
    try:
        one.release()
        with pytest.raises(LockHeld):
            lock(tmp_path).acquire(2.0)
    finally:
        child.communicate(b"\n")
    two = lock(tmp_path)
    two.acquire(3.0)
    two.release()


def test_what_a_dead_update_left_behind_with_the_lock_is_named(tmp_path: Path) -> None:
    """The record names a process that is gone; who really keeps the install locked is asked of the kernel."""
    code = (
        "import subprocess, sys; from pathlib import Path\n"
        "from nedura.product import NEDURA\n"
        "from nedura.update.ledger.lock import UpdateLock\n"
        "home = Path(sys.argv[1]); one = UpdateLock(home, home / 'installs/x/.nedura-update.lock', NEDURA, {}); one.acquire(1.0)\n"
        "quiet = {'stdout': subprocess.DEVNULL, 'stderr': subprocess.DEVNULL}\n"
        "left = subprocess.Popen(['sleep', '60'], pass_fds=one.fds, start_new_session=True, **quiet)\n"
        "print(left.pid, flush=True)\n"
        "import os; os._exit(9)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False
    )
    left = psutil.Process(int(done.stdout))
    bystander = os.open(
        tmp_path / "installs/x/.nedura-update.lock", os.O_RDONLY
    )  # has it open, holds nothing
    try:
        with pytest.raises(LockHeld) as caught:
            lock(tmp_path).acquire(100.0)
    finally:
        os.close(bystander)
        left.kill()
    assert caught.value.holder == left.pid
    assert f"process {left.pid} (sleep)" in caught.value.message
    assert f"kill {left.pid}" in caught.value.advice
    left.wait(5)
    one = lock(tmp_path)
    one.acquire(200.0)
    one.release()


def test_what_a_build_step_or_a_probe_leaves_behind_does_not_hold_the_lock(tmp_path: Path) -> None:
    """Only the completion inherits it; every other program of a run is started without it, daemons that it makes included."""
    one = lock(tmp_path)
    one.acquire(1.0)
    assert not any(os.get_inheritable(handle) for handle in one.fds)
    done = run_bounded(
        ["/bin/sh", "-c", "setsid sleep 60 >/dev/null 2>&1 & echo $!"],
        env={"PATH": os.environ["PATH"]},
        timeout=10,
    )
    left = psutil.Process(int(done.out))
    try:
        one.release()
        two = lock(tmp_path)
        two.acquire(2.0)
        two.release()
    finally:
        left.kill()


def test_the_bootstrap_keeps_the_lock_from_whatever_it_starts_and_hands_it_on_to_itself(
    tmp_path: Path,
) -> None:
    """Also from a program that is started with every descriptor that can be inherited."""
    script = (
        "import importlib.util, json, os, sys\n"
        "spec = importlib.util.spec_from_file_location('b', sys.argv[1])\n"
        "b = importlib.util.module_from_spec(spec)\n"
        "spec.loader.exec_module(b)\n"
        "fd = int(sys.argv[2])\n"
        "seen = [os.get_inheritable(fd)]\n"
        "handles = b.keep_handles()\n"
        "seen += [os.get_inheritable(fd), fd in handles, os.system(f'test -e /proc/self/fd/{fd}') == 0]\n"
        "b.hand_on(handles)\n"
        "seen += [os.get_inheritable(fd)]\n"
        "print(json.dumps(seen))\n"
    )
    bootstrap = Path(nedura.__file__).parent / "update/bootstrap.py"
    with (tmp_path / "lock").open("w") as held:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", script, bootstrap, str(held.fileno())],
            pass_fds=[held.fileno()],
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [True, False, True, False, True]


def test_two_homes_that_share_an_install_exclude_each_other(tmp_path: Path) -> None:
    shared = tmp_path / "shared.lock"
    first = UpdateLock(tmp_path / "one", shared, NEDURA, {})
    first.acquire(1.0)
    with pytest.raises(LockHeld):
        UpdateLock(tmp_path / "two", shared, NEDURA, {}).acquire(1.0)
    assert not (tmp_path / "two/.nedura-update-in-progress").exists()
    first.release()


def test_an_update_never_runs_unlocked(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UpdateLockUnusable):
        UpdateLock(tmp_path / "file/home", tmp_path / "file/lock", NEDURA, {}).acquire(1.0)


def test_a_lock_that_a_full_disk_refuses_is_no_lock_and_no_traceback(tmp_path: Path) -> None:
    """The install's disk may be another one than the home's: the flock is there, who holds it cannot be written."""
    lock = tmp_path / "install/lock"
    code = (
        "import os, resource, signal, sys; from pathlib import Path\n"
        "from nedura.product import NEDURA\n"
        "from nedura.update.ledger.lock import UpdateLock, UpdateLockUnusable\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n"
        "before = len(os.listdir('/proc/self/fd'))\n"
        "lock = UpdateLock(Path(sys.argv[1]), Path(sys.argv[2]), NEDURA, {})\n"
        "try: lock.acquire(1.0)\n"
        "except UpdateLockUnusable as error: print(error.message)\n"
        "assert lock.fds == () and len(os.listdir('/proc/self/fd')) == before, 'a handle stays open and locked'\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "home"), str(lock)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout.startswith("Cannot lock this install")) == (0, True), done.stderr
    assert "install/lock" in done.stdout
    second = UpdateLock(tmp_path / "two", lock, NEDURA, {})
    second.acquire(1.0)
    second.release()


def test_owners_are_told_by_pid_and_birth(other: subprocess.Popen[bytes]) -> None:
    me = myself()
    assert is_alive(me)
    assert is_alive(Owner(me.pid, me.create_time + 1.5))
    assert not is_alive(Owner(me.pid, me.create_time + 10))
    assert not is_alive(Owner(0, 0.0))
    created = psutil.Process(other.pid).create_time()
    other.kill()
    while psutil.Process(other.pid).status() != psutil.STATUS_ZOMBIE:
        pass
    assert not is_alive(Owner(other.pid, created)), "a zombie is dead"
