"""Checks beside each other and beside an update: each has a ref and a lock of its own, and nobody waits or is refused for them."""

from __future__ import annotations

import os
import time
from pathlib import Path

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
    lock = site.paths.repo / CHECKS / "4711.lock"
    lock.parent.mkdir(parents=True)
    lock.touch()
    assert clear_stale_locks(site.paths.repo, site.paths.repo, own=True) == []
    assert lock.exists()


def test_the_lock_of_a_killed_check_goes_with_its_ref(site: Site) -> None:
    folder = site.paths.repo / CHECKS
    folder.mkdir(parents=True)
    past = time.time() - 3600
    for name in ("4711", "4711.lock"):
        (folder / name).write_text(f"{site.origin.head}\n")
        os.utime(folder / name, (past, past))
    check_for_update(site.home, site.product, dict(os.environ))
    assert not folder.exists() or os.listdir(folder) == []
