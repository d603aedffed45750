"""Who may pass a held lock, and where it lies: an ancestor's lock is ours, a stranger's never is, whatever our own marker says."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from nedura.product import NEDURA
from nedura.update.ledger.lock import LockHeld, LockRecord, UpdateLock, format_record, is_live, lock_place
from nedura.update.ledger.owner import Owner

KEEPER = """
import sys, time
from pathlib import Path
from nedura.product import NEDURA
from nedura.update.ledger.lock import UpdateLock
UpdateLock(Path(sys.argv[1]), Path(sys.argv[2]), NEDURA, {}).acquire(time.time())
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def stranger(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Another home's update that holds the shared install."""
    argv = [sys.executable, "-c", KEEPER, str(tmp_path / "other"), str(tmp_path / "shared")]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    yield process
    process.communicate()


def adopted(home: Path, shared: Path, **environ: str) -> UpdateLock:
    """Our home's marker names the process above us: it has begun this update and we go on for it."""
    above = psutil.Process(os.getppid())
    record = LockRecord(Owner(above.pid, above.create_time()), 1000.0)
    home.mkdir(mode=0o700)
    (home / ".nedura-update-in-progress").write_bytes(format_record(record))
    return UpdateLock(home, shared, NEDURA, environ)


def test_an_adopted_run_does_not_pass_a_strangers_lock(
    tmp_path: Path, stranger: subprocess.Popen[bytes]
) -> None:
    """Two updates of one checkout ran at once: only the marker was ours, the install was another home's."""
    with pytest.raises(LockHeld) as told:
        adopted(tmp_path / "home", tmp_path / "shared").acquire(1000.0)
    assert told.value.holder == stranger.pid


@pytest.mark.parametrize("record", [b"", b"\0" * 20], ids=["empty", "torn"])
def test_an_adopted_run_asks_who_really_holds_a_lock_that_names_nobody(
    tmp_path: Path, stranger: subprocess.Popen[bytes], record: bytes
) -> None:
    (tmp_path / "shared").write_bytes(record)
    with pytest.raises(LockHeld):
        adopted(tmp_path / "home", tmp_path / "shared").acquire(1000.0)


def test_an_adopted_run_passes_the_lock_of_the_process_it_acts_for(
    tmp_path: Path, stranger: subprocess.Popen[bytes]
) -> None:
    lock = adopted(tmp_path / "home", tmp_path / "shared", NEDURA_UPDATE_HANDOFF_PID=str(stranger.pid))
    lock.acquire(1000.0)
    assert lock.fds == ()
    lock.release()


def test_an_old_marker_from_a_clock_that_was_set_back_ages_out() -> None:
    me = Owner(os.getpid(), 0.0)
    assert is_live(LockRecord(me, 1000.0, version=1), 990.0)
    assert not is_live(LockRecord(me, 9e9, version=1), 1000.0)


def test_the_lock_of_a_linked_worktree_lies_in_its_git_folder_too(tmp_path: Path) -> None:
    """In the working tree it was an untracked file for ever, and a stash of its owner took the lock away."""
    git_folder, tree = tmp_path / "main/.git/worktrees/tree", tmp_path / "tree"
    git_folder.mkdir(parents=True)
    tree.mkdir()
    for text in (f"gitdir: {git_folder}\n", "gitdir: ../main/.git/worktrees/tree\n"):
        (tree / ".git").write_text(text)
        place = lock_place(tmp_path, tree, NEDURA)
        assert os.path.realpath(place) == str(git_folder / "nedura-update-holder")
    for text in ("gitdir: /nowhere\n", "junk", ""):
        (tree / ".git").write_text(text)
        assert lock_place(tmp_path, tree, NEDURA) == tree / ".nedura-update.lock"
