"""Broken objects: the remote's cost nothing here, our own are fetched again, and parked work and the memory of the remote outlive both."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nedura.errors import UpdateError
from nedura.testing.installs import Site, git
from tests.kits.sealed import Stages

PARKED = "refs/nedura/parked/"


def parked(site: Site) -> list[str]:
    return git(site.paths.repo, "for-each-ref", "--format=%(objectname)", PARKED).split()


def spoil(repo: Path, oid: str) -> None:
    """Damage one object in place, after every pack was taken apart."""
    for pack in (repo / "objects/pack").glob("*.pack"):
        data = pack.read_bytes()
        for part in pack.parent.glob(f"{pack.stem}.*"):
            part.unlink()
        git(repo, "unpack-objects", "-q", stdin=data)
    path = repo / "objects" / oid[:2] / oid[2:]
    path.chmod(0o644)
    path.write_bytes(b"garbage")


def leftovers(site: Site) -> list[str]:
    return [name for name in os.listdir(site.paths.folder) if "repo" in name and name != "repo.git"]


async def with_parked_work(site: Site) -> Stages:
    """An update in which a local edit conflicted; the source is behind the running version then."""
    (site.checkout / "toy/value.py").write_text("VALUE = 11\n")
    site.origin.commit({"toy/value.py": "VALUE = 2\n"}, "two")
    stages = Stages(site)
    await stages.update()
    assert len(parked(site)) == 1
    git(site.checkout, "checkout", "-q", ".")
    return stages


async def test_broken_objects_of_the_remote_cost_nothing_here(site: Site) -> None:
    stages = await with_parked_work(site)
    before = git(site.paths.repo, "for-each-ref")
    first = git(site.origin.folder, "rev-list", "--max-parents=0", "HEAD")
    site.origin.commit({"more.txt": "more\n"}, "three")
    spoil(site.origin.folder / ".git", git(site.origin.folder, "rev-parse", "HEAD:more.txt"))
    with pytest.raises(UpdateError, match="broken objects") as caught:
        await stages.prepare()
    assert caught.value.stop_class == "fetch_failed"
    assert git(site.paths.repo, "for-each-ref") == before
    assert leftovers(site) == []
    git(site.origin.folder, "update-ref", "refs/heads/main", first)
    with pytest.raises(UpdateError, match="older than what runs") as caught:
        await stages.prepare()
    assert caught.value.stop_class == "downgrade"


async def test_our_own_broken_objects_are_fetched_again(site: Site) -> None:
    stages = await with_parked_work(site)
    (work,) = parked(site)
    running = git(site.paths.repo, "rev-parse", "refs/generations/000002")
    spoil(site.paths.repo, running)
    site.origin.commit({"toy/value.py": "VALUE = 3\n"}, "three")
    await stages.update()
    assert "damaged and was made again" in stages.told("notice")[0].text
    assert site.run().stdout.splitlines()[0] == "3"
    assert git(site.paths.repo, "show", f"{work}:toy/value.py") == "VALUE = 11"
    assert parked(site) == [work]
    assert git(site.paths.repo, "fsck", "--connectivity-only", "--no-dangling") == ""
    assert leftovers(site) == []


async def test_parked_work_that_cannot_be_read_stays_where_it_is(site: Site) -> None:
    stages = await with_parked_work(site)
    (work,) = parked(site)
    blob = git(site.paths.repo, "rev-parse", f"{work}:toy/value.py")
    running = git(site.paths.repo, "rev-parse", "refs/generations/000002")
    spoil(site.paths.repo, blob)
    spoil(site.paths.repo, running)
    site.origin.commit({"toy/value.py": "VALUE = 3\n"}, "three")
    await stages.update()
    assert leftovers(site) == ["repo.git.damaged.1"]
    assert "repo.git.damaged.1" in stages.told("notice")[0].text
    assert git(site.paths.folder / "repo.git.damaged.1", "cat-file", "-t", work) == "commit"
    assert site.run().stdout.splitlines()[0] == "3"


async def test_edits_that_a_generation_carries_can_still_be_built_from(site: Site) -> None:
    (site.checkout / "toy/mine.py").write_text("MINE = 1\n")
    stages = Stages(site)
    site.origin.commit({"toy/value.py": "VALUE = 2\n"}, "two")
    run = await stages.update()
    assert run.candidate is not None
    spoil(site.paths.repo, git(site.paths.repo, "rev-parse", "refs/generations/000002"))
    (site.checkout / "toy/mine.py").unlink()
    site.origin.commit({"toy/value.py": "VALUE = 3\n"}, "three")
    await stages.update()
    assert git(site.paths.repo, "show", f"{run.candidate.identity.tree_hash}:toy/mine.py") == "MINE = 1"
