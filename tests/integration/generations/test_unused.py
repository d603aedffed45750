"""Yesterday's states of a large edited file do not pile up in our repository."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nedura.clock import SystemClock
from nedura.errors import UpdateError
from nedura.testing.installs import git
from nedura.update.events import StepDone
from nedura.update.generation.aftermath import after_commit
from nedura.update.generation.generations import read_manifest
from nedura.update.source.git import Git, find_git
from nedura.update.source.tidy import tidy
from nedura.update.source.unused import MUCH, RESTED, drop_unused
from tests.kits.sealed import Stages

NOW = SystemClock().time() + 2 * RESTED


@pytest.fixture
def repo(tmp_path: Path) -> Git:
    folder = tmp_path / "repo.git"
    git(tmp_path, "init", "--bare", "-q", "--template=", str(folder))
    return Git(program=find_git(), repo=folder)


def blob(folder: Path, size: int = 100_000) -> str:
    return git(folder, "hash-object", "-w", "--stdin", stdin=os.urandom(size))


def there(folder: Path, oid: str) -> bool:
    return git(folder, "cat-file", "-t", oid, check=False) == "blob"


def test_only_large_old_objects_that_nothing_names_go(repo: Git) -> None:
    folder = repo.repo
    behind_a_ref, of_a_generation, unnamed, small = (
        blob(folder),
        blob(folder),
        blob(folder),
        blob(folder, 10),
    )
    tree = git(folder, "mktree", stdin=f"100644 blob {behind_a_ref}\tfile\n".encode())
    commit = git(folder, "commit-tree", tree, "-m", "parked")
    git(folder, "update-ref", "refs/nedura/parked/abc", commit)
    young = blob(folder)
    ahead = NOW + 10
    os.utime(folder / "objects" / young[:2] / young[2:], (ahead, ahead))
    assert drop_unused(repo, [of_a_generation], NOW, heavy=50_000, much=10**9) == ""
    assert there(folder, unnamed), "little enough to be left alone"
    assert drop_unused(repo, [of_a_generation], NOW, heavy=50_000, much=1).startswith("1 large object")
    assert not there(folder, unnamed)
    assert all(there(folder, oid) for oid in (behind_a_ref, of_a_generation, small, young))
    git(folder, "fsck", "--full")


def test_large_objects_are_not_packed_for_good(repo: Git) -> None:
    """What a generation still names today is nobody's tomorrow; from a pack it could not go."""
    large, small = blob(repo.repo, 2 << 20), blob(repo.repo, 10)
    assert tidy(repo, loose=1).startswith("0 packs and 1 loose objects")
    assert not (repo.repo / "objects" / small[:2] / small[2:]).exists()
    assert there(repo.repo, small)
    assert drop_unused(repo, [], NOW, much=1)
    assert not there(repo.repo, large)


def test_a_history_that_cannot_be_walked_costs_nothing(repo: Git) -> None:
    unnamed = blob(repo.repo)
    (repo.repo / "refs/heads").mkdir(parents=True, exist_ok=True)
    (repo.repo / "refs/heads/gone").write_text("1" * 40 + "\n")
    with pytest.raises(UpdateError):
        drop_unused(repo, [], NOW, heavy=50_000, much=1)
    assert there(repo.repo, unnamed)


async def test_an_update_ends_with_it_and_keeps_what_a_generation_holds(stages: Stages) -> None:
    """The edited file of the generation that runs is named by its manifest alone: repairs read it from our repository."""
    site = stages.site
    mine = os.urandom(2 << 20)
    (site.checkout / "mine.bin").write_bytes(mine)
    site.origin.commit({"toy/value.py": "VALUE = 2\n"})
    await stages.update()
    carried = read_manifest(site.paths.current.resolve()).files["mine.bin"][1]
    objects = site.paths.repo / "objects"
    stale = objects / "ab" / ("0" * 38)  # what an earlier update left: nothing names it, so nobody reads it
    stale.parent.mkdir(exist_ok=True)
    stale.touch()
    os.truncate(stale, MUCH)
    long_ago = NOW - 10 * RESTED
    for path in (stale, objects / carried[:2] / carried[2:]):
        os.utime(path, (long_ago, long_ago))
    events = [event async for event in after_commit(site.paths, SystemClock(), dict(os.environ))]
    assert [e.detail for e in events if isinstance(e, StepDone) and e.name == "repository"] == [
        "1 large object that nothing names any more: gone, 64 MiB"
    ]
    assert not stale.exists()
    assert there(site.paths.repo, carried)
