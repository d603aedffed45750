"""Our repository is packed when that is worth it, and nothing is ever lost by it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import attrs
import pytest

from nedura.clock import SystemClock
from nedura.errors import UpdateError
from nedura.testing.installs import git
from nedura.update.events import Notice, StepDone
from nedura.update.generation.aftermath import after_commit
from nedura.update.source.git import Git, find_git
from nedura.update.source.repository import CONFIG, generation_ref
from nedura.update.source.tidy import PACKS, tidy
from tests.kits.sealed import Stages


@pytest.fixture
def repo(tmp_path: Path) -> Git:
    """A repository as ours are made, with loose objects behind every kind of ref and behind none."""
    folder = tmp_path / "repo.git"
    git(tmp_path, "init", "--bare", "-q", "--template=", str(folder))
    text = CONFIG.format(version=0, format="sha1")
    (folder / "config").write_text(text[: text.index("[extensions]")])
    for ref in (generation_ref("000001"), "refs/nedura/tips/main", "refs/nedura/parked/abc"):
        git(folder, "update-ref", ref, commit(folder, ref))
    return Git(program=find_git(), repo=folder)


def commit(folder: Path, words: str) -> str:
    """A commit with one file of its own."""
    blob = git(folder, "hash-object", "-w", "--stdin", stdin=words.encode())
    tree = git(folder, "mktree", stdin=f"100644 blob {blob}\tfile\n".encode())
    return git(folder, "commit-tree", tree, "-m", words)


def pack(folder: Path, words: str) -> str:
    """One object in a pack of its own, as a fetch leaves it."""
    blob = git(folder, "hash-object", "-w", "--stdin", stdin=words.encode())
    git(folder, "pack-objects", "-q", "objects/pack/pack", stdin=f"{blob}\n".encode())
    git(folder, "prune-packed", "-q")
    return blob


def facts(folder: Path) -> dict[str, str]:
    return dict(line.split(": ") for line in git(folder, "count-objects", "-v").splitlines())


def has(folder: Path, oid: str) -> bool:
    return git(folder, "cat-file", "-t", oid, check=False) != ""


def test_a_small_repository_is_left_as_it_is(repo: Git) -> None:
    before = facts(repo.repo)
    assert tidy(repo) == ""
    assert facts(repo.repo) == before


def everything(folder: Path) -> set[str]:
    """Every object that the repository holds itself."""
    lines = git(folder, "cat-file", "--batch-all-objects", "--batch-check=%(objectname)").split()
    return set(lines)


def test_everything_is_in_one_pack_afterwards(repo: Git) -> None:
    commit(repo.repo, "behind no ref")
    before, refs = everything(repo.repo), git(repo.repo, "for-each-ref")
    assert tidy(repo, loose=5).startswith("0 packs and 12 loose objects became one pack")
    assert everything(repo.repo) == before
    assert git(repo.repo, "for-each-ref") == refs
    assert (facts(repo.repo)["packs"], facts(repo.repo)["count"]) == ("1", "0")
    git(repo.repo, "fsck", "--full", "--strict")


def test_many_packs_become_one_and_a_large_or_kept_one_stays(repo: Git) -> None:
    for number in range(6):
        pack(repo.repo, f"pack {number}")
    before = everything(repo.repo)
    folder = repo.repo / "objects/pack"
    kept, *others = sorted(folder.glob("*.pack"))
    kept.with_suffix(".keep").touch()
    assert tidy(repo, packs=6) == ""
    assert tidy(repo, packs=5).startswith("5 packs and 9 loose objects")
    assert everything(repo.repo) == before
    assert len(set(folder.glob("*.pack"))) == 2
    assert kept.is_file()
    assert not [path for path in others if path.exists() or path.with_suffix(".idx").exists()]
    assert tidy(repo, packs=1, large=1) == ""


def test_what_the_owners_repository_holds_too_is_not_left_to_it(repo: Git, tmp_path: Path) -> None:
    """`git gc` would leave it out, and parked edits would be gone with the owner's branch."""
    parked = git(repo.repo, "rev-parse", "refs/nedura/parked/abc^{tree}")
    owner = tmp_path / "owner"
    git(tmp_path, "clone", "-q", "--bare", "--no-local", str(repo.repo), str(owner))
    git(owner, "fetch", "-q", str(repo.repo), "refs/nedura/*:refs/nedura/*")
    git(owner, "repack", "-q", "-a", "-d")
    (repo.repo / "objects/info").mkdir(exist_ok=True)
    (repo.repo / "objects/info/alternates").write_text(f"{owner}/objects\n")
    assert tidy(repo, loose=1)
    shutil.rmtree(owner)
    assert git(repo.repo, "cat-file", "-t", parked) == "tree"
    git(repo.repo, "fsck", "--full")


def test_a_new_pack_that_lacks_something_removes_nothing(repo: Git, tmp_path: Path) -> None:
    for number in range(3):
        pack(repo.repo, f"pack {number}")
    before = everything(repo.repo)
    false = tmp_path / "git"  # a git that packs only the first of what it is told
    false.write_text(
        f'#!/bin/sh\ncase "$*" in *pack-objects*) head -n 1 | {find_git()} "$@"; exit;; esac\nexec {find_git()} "$@"\n'
    )
    false.chmod(0o755)
    with pytest.raises(UpdateError, match="lacks objects"):
        tidy(attrs.evolve(repo, program=str(false)), packs=3)
    assert everything(repo.repo) == before
    git(repo.repo, "fsck", "--full", "--strict")


def test_one_that_takes_too_long_is_stopped_and_harms_nothing(repo: Git) -> None:
    with pytest.raises(UpdateError, match="took longer"):
        tidy(repo, loose=1, seconds=0.0)
    git(repo.repo, "fsck", "--full", "--strict")
    assert tidy(repo, loose=1).startswith("0 packs and 9 loose objects")


async def test_an_update_ends_with_it_and_the_old_generation_still_serves(stages: Stages) -> None:
    site = stages.site
    site.origin.commit({"toy/value.py": "VALUE = 2\n"})
    await stages.update()
    for number in range(PACKS):
        pack(site.paths.repo, f"fetched {number}")
    before = git(site.paths.repo, "for-each-ref")
    events = [event async for event in after_commit(site.paths, SystemClock(), dict(os.environ))]
    (step,) = [event for event in events if isinstance(event, StepDone) and event.name == "repository"]
    assert step.ok
    assert "became one pack" in step.detail
    assert git(site.paths.repo, "for-each-ref") == before
    assert (facts(site.paths.repo)["packs"], facts(site.paths.repo)["count"]) == ("1", "0")
    wanted = site.origin.commit({"toy/value.py": "VALUE = 3\n"})
    run = await stages.update()
    assert run.candidate is not None
    assert run.candidate.identity.code_sha == wanted


async def test_a_repository_that_cannot_be_packed_is_told_and_nothing_is_owed(stages: Stages) -> None:
    site = stages.site
    site.origin.commit({"toy/value.py": "VALUE = 2\n"})
    await stages.update()
    for number in range(PACKS):
        pack(site.paths.repo, f"fetched {number}")
    broken = sorted((site.paths.repo / "objects/pack").glob("*.pack"))[0]
    broken.chmod(0o644)
    broken.write_bytes(broken.read_bytes()[:-5])
    events = [event async for event in after_commit(site.paths, SystemClock(), dict(os.environ))]
    assert any("was not tidied" in event.text for event in events if isinstance(event, Notice))
    assert site.run().stdout.splitlines()[0] == "2"
