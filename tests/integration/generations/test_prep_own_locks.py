"""Locks that a killed update left in our own repository: old ones go, wherever they are; fresh ones are refused in the right words."""

from __future__ import annotations

import os
import time

import pytest

from nedura.errors import RefusedError
from nedura.testing.installs import Site, git
from nedura.update.commit.gitlocks import OWN_STALE_AFTER, clear_stale_locks
from tests.kits.sealed import Stages

LOCKS = (
    "shallow.lock", "packed-refs.lock", "refs/nedura/fetched.lock", "refs/nedura/tips/main.lock", "refs/generations/000002.lock",
)  # fmt: skip


async def test_locks_of_refs_that_a_kill_left_are_moved_aside(site: Site) -> None:
    site.origin.commit({"toy/value.py": "VALUE = 2\n"}, "two")
    old = time.time() - OWN_STALE_AFTER - 5
    for name in LOCKS:
        path = site.paths.repo / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        os.utime(path, (old, old))
    stages = Stages(site)
    await stages.update()
    assert site.run().stdout.splitlines()[0] == "2"
    (told,) = [event.detail for event in stages.told("step") if event.name == "stale_locks"]
    assert all(name.rpartition("/")[2] in told for name in LOCKS)
    assert [
        name for _, _, names in os.walk(site.paths.repo / "refs") for name in names if "stale" in name
    ] == []
    assert any(name.startswith("refs-nedura-fetched.lock.stale-") for name in os.listdir(site.paths.repo))


def test_the_lock_of_a_branch_does_not_become_a_branch(site: Site) -> None:
    folder = site.checkout / ".git"
    (folder / "refs/heads/main.lock").write_text(git(site.checkout, "rev-parse", "HEAD") + "\n")
    before = git(site.checkout, "branch", "--list")
    assert clear_stale_locks(folder, folder, branch="main", now=time.time() + 7200) == ["main.lock"]
    assert git(site.checkout, "branch", "--list") == before


@pytest.mark.parametrize("name", LOCKS)
async def test_a_fresh_one_is_refused(site: Site, name: str) -> None:
    path = site.paths.repo / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    with pytest.raises(RefusedError, match="this install's own repository") as caught:
        await Stages(site).prepare()
    assert str(path) in caught.value.advice
    assert path.exists()
