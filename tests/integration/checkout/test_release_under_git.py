"""Somebody runs `git init` in an unpacked release: whose it is now is said, nothing is promised, and the way back is open."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from nedura.installs import RELEASE, checkout_of, install_id_for, release_of, running_code
from nedura.update.commit.zip_tree import tree_hashes
from tests.kits.release import ReleaseWorld, release_world
from tests.kits.site import quick_tree

AS_OWNER = ("-c", "user.name=owner", "-c", "user.email=owner@example.test", "-c", "init.defaultBranch=main")


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", *AS_OWNER, *words], cwd=folder, check=True, capture_output=True)


@pytest.fixture(scope="module")
def world() -> Iterator[ReleaseWorld]:
    with release_world(quick_tree()) as here:
        here.shelf.publish(quick_tree(), "1.1.0")
        yield here


@pytest.fixture
def here(world: ReleaseWorld) -> Iterator[ReleaseWorld]:
    before = tree_hashes(world.tree)
    yield world
    shutil.rmtree(world.tree / ".git", ignore_errors=True)
    assert tree_hashes(world.tree) == before


@pytest.mark.parametrize("committed", [False, True])
def test_a_release_with_a_git_of_its_own_is_called_that(here: ReleaseWorld, committed: bool) -> None:
    """It was asked for a branch `master` of itself; with a commit it called itself up to date for ever."""
    git(here.tree, "init", "-q")
    if committed:
        git(here.tree, "add", "-A")
        git(here.tree, "commit", "-q", "-m", "mine")
    plan = json.loads(here.command("update", "--plan", "--json").stdout)
    assert (plan["install_method"], plan["updatable_in_place"]) == ("zip", False)
    assert plan["expected_sha"] == here.note().commit
    check = here.command("update", "--check")
    assert (check.returncode, "git init" in check.stdout) == (0, True), (
        "as for every install that is not ours to update"
    )
    code, events = here.update("--no-backup")
    assert (code, events[-1]["outcome"], events[-1]["stop_class"]) == (1, "refused", "git_in_release")
    assert all(word in events[-1]["stop_reason"] for word in ("move .git out", "remote")), (
        "both ways out are named"
    )
    told = here.command("--version", "-v").stdout
    assert "(zip)" in told
    assert here.note().commit in told


def test_without_the_git_it_goes_on_as_before(here: ReleaseWorld) -> None:
    """What an updater of before had pinned for the supposed checkout does not count for the release."""
    paths = here.site.paths
    paths.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    wrong = {
        "schema": 1, "install_id": paths.install_id, "source": str(here.tree), "remote_url": str(here.tree), "branch": "master",
        "layout": "checkout", "environment": "none",
    }  # fmt: skip
    paths.record.write_text(json.dumps(wrong))
    paths.record.chmod(0o600)
    told = here.command("update", "--check")
    assert told.returncode == 0, told.stderr
    assert "1.1.0" in told.stdout
    plan = json.loads(here.command("update", "--plan", "--json").stdout)
    assert plan["updatable_in_place"], plan["refusal"]
    assert plan["remote"].startswith(here.shelf.url)


def note(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / RELEASE).write_text(
        json.dumps({"schema": 1, "commit": "ab" * 20, "version": "1.0.0", "files": {}})
    )
    (folder / RELEASE).chmod(0o600)
    (folder / "a.py").write_text("")
    return folder


def test_only_a_git_that_follows_somebody_makes_a_checkout_of_it(tmp_path: Path) -> None:
    tree = note(tmp_path / "app")
    for words in (("init", "-q"), ("remote", "add", "origin", "https://example.test/x")):
        git(tree, *words)
        assert release_of(tree / "a.py") == tree, "nothing is checked out"
        assert checkout_of(tree / "a.py") is None
        assert running_code(tree / "a.py").code_sha == "ab" * 20
    git(tree, "add", "-A")
    git(tree, "commit", "-q", "-m", "as cloned")
    assert checkout_of(tree / "a.py") == tree
    assert release_of(tree / "a.py") is None
    git(tree, "remote", "remove", "origin")
    assert release_of(tree / "a.py") == tree
    (tree / RELEASE).unlink()
    assert checkout_of(tree / "a.py") == tree, "without its note it is the owner's repository"


@pytest.mark.parametrize("dot", ["", "gitdir: nowhere\n", "gitdir: \0\n"])
def test_a_git_file_that_leads_nowhere_changes_nothing(tmp_path: Path, dot: str) -> None:
    tree = note(tmp_path / "app")
    (tree / ".git").write_text(dot)
    assert release_of(tree / "a.py") == tree
    assert running_code(tree / "a.py").install_id == install_id_for(tree)


def test_a_linked_worktree_of_a_clone_is_a_checkout(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    clone.mkdir()
    for words in (
        ("init", "-q"), ("commit", "-q", "--allow-empty", "-m", "x"), ("remote", "add", "origin", "https://example.test/x"),
        ("worktree", "add", "-q", "../linked"),
    ):  # fmt: skip
        git(clone, *words)
    (tmp_path / "linked" / RELEASE).write_text("{}")
    (tmp_path / "linked/a.py").write_text("")
    assert checkout_of(tmp_path / "linked/a.py") == tmp_path / "linked"


def test_a_release_that_became_a_clone_follows_its_remote_and_not_the_old_index(here: ReleaseWorld) -> None:
    paths = here.site.paths
    paths.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    paths.record.write_text(
        json.dumps({
            "schema": 1, "install_id": paths.install_id, "source": str(here.tree), "layout": "zip", "environment": "none",
            "remote_url": f"{here.shelf.url}/latest.json", "branch": "main",
        })
    )  # fmt: skip
    paths.record.chmod(0o600)
    git(here.tree, "init", "-q")
    git(here.tree, "add", "-A")
    git(here.tree, "commit", "-q", "-m", "as cloned")
    git(here.folder, "clone", "-q", "--bare", str(here.tree), "origin.git")
    git(here.tree, "remote", "add", "origin", str(here.folder / "origin.git"))
    git(here.tree, "fetch", "-q", "origin")
    git(here.tree, "branch", "-q", "-u", "origin/main")
    code, events = here.update("--no-backup")
    assert (code, events[-1]["changed"]) == (0, False), events[-1]
    assert json.loads(paths.record.read_text())["layout"] == "checkout"
