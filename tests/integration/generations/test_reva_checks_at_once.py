"""Checks beside each other and beside an update: each has a ref and a lock of its own, and nobody waits or is refused for them."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from pathlib import Path

from nedura.errors import RefusedError
from nedura.programs import find_program
from nedura.testing.installs import Site
from nedura.update.commit.gitlocks import clear_stale_locks
from nedura.update.source.check import check_for_update

CHECKS = "refs/nedura/checks"


def test_two_checks_of_one_process_do_not_share_a_ref(site: Site, tmp_path: Path) -> None:
    """The end of one took the ref from the other, which then said that the branch was no commit at the remote."""
    log, program = tmp_path / "log", tmp_path / "bin/git"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$*" >> "{log}"\nexec "{find_program("git")}" "$@"\n')
    program.chmod(0o755)
    environ = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"}
    for _ in range(2):
        check_for_update(site.home, site.product, environ)
    asked = [line.rpartition(":")[2] for line in log.read_text().splitlines() if " fetch " in f" {line} "]
    assert len(asked) == len(set(asked)) == 2
    assert all(ref.startswith(f"{CHECKS}/") for ref in asked)


def test_an_update_is_not_refused_for_the_lock_of_a_check(site: Site) -> None:
    folder = site.paths.repo / CHECKS
    folder.mkdir(parents=True)
    for lock in (folder / "4711.lock", site.paths.repo / "packed-refs.lock"):
        lock.touch()
        goes = threading.Timer(0.1, lock.unlink)
        goes.start()
        assert clear_stale_locks(site.paths.repo, site.paths.repo, own=True) == []
        assert not lock.exists()
        goes.join()


def test_the_lock_of_a_killed_check_goes_with_its_ref(site: Site) -> None:
    folder = site.paths.repo / CHECKS
    folder.mkdir(parents=True)
    past = time.time() - 3600
    for name in ("4711", "4711.lock"):
        (folder / name).write_text(f"{site.origin.head}\n")
        os.utime(folder / name, (past, past))
    check_for_update(site.home, site.product, dict(os.environ))
    assert not folder.exists() or os.listdir(folder) == []


def test_a_lock_that_comes_and_goes_is_never_moved_aside(site: Site) -> None:
    """It was gone when it was looked at, and the next one of its name, a living process's, was moved."""
    lock, stop, moved = site.paths.repo / "refs/heads/x.lock", threading.Event(), list[str]()
    lock.parent.mkdir(parents=True, exist_ok=True)

    def blink() -> None:
        while not stop.is_set():
            lock.touch()
            lock.unlink(missing_ok=True)

    blinking = threading.Thread(target=blink)
    blinking.start()
    end = time.monotonic() + 0.5
    while time.monotonic() < end:
        with contextlib.suppress(RefusedError):
            moved += clear_stale_locks(site.paths.repo, site.paths.repo, own=True)
    stop.set()
    blinking.join()
    assert moved == []
