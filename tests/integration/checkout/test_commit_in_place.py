"""What lies in the place of an edited path: a folder where git has a file, a file or a link where git has a folder. None of it is lost."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest

from nedura.errors import UpdateError
from nedura.testing.installs import git
from nedura.update.commit.waiting import remind
from nedura.update.source.source_git import SourceGit
from tests.integration.checkout.trees import FILES, Tree, ahead, make_tree, run_move, whole

PRECIOUS = "precious\n"


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return make_tree(tmp_path, {**FILES, "docs/a": "a\n", "docs/b": "b\n", "kept.txt": "kept\n"})


def file_to_folder(top: Path) -> Path:
    (top / "kept.txt").unlink()
    (top / "kept.txt/deep").mkdir(parents=True)
    return top / "kept.txt/deep/mine"


def file_to_ignored_folder(top: Path) -> Path:
    (top / "kept.txt").unlink()
    (top / "kept.txt/ignored").mkdir(parents=True)
    return top / "kept.txt/ignored/mine"


def folder_to_file(top: Path) -> Path:
    for name in ("a", "b"):
        (top / "docs" / name).unlink()
    (top / "docs").rmdir()
    return top / "docs"


@pytest.mark.parametrize("change", [file_to_folder, file_to_ignored_folder, folder_to_file])
async def test_what_took_the_place_of_the_products_files_comes_back(
    tree: Tree, change: Callable[[Path], Path]
) -> None:
    mine = change(tree.checkout)
    mine.write_text(PRECIOUS)
    before = tree.status
    target = ahead(tree)
    result = await run_move(tree.job(target))
    assert result.error is None, result.error
    assert tree.head == target
    assert mine.read_text() == PRECIOUS
    assert tree.status == before
    assert tree.stashes == []


async def test_a_link_in_the_place_of_a_folder_comes_back(tree: Tree, tmp_path: Path) -> None:
    os.rename(tree.checkout / "docs", tmp_path / "elsewhere")
    os.symlink(tmp_path / "elsewhere", tree.checkout / "docs")
    before, target = tree.status, ahead(tree)
    result = await run_move(tree.job(target))
    assert result.error is None, result.error
    assert tree.head == target
    assert os.readlink(tree.checkout / "docs") == str(tmp_path / "elsewhere")
    assert sorted(os.listdir(tmp_path / "elsewhere")) == ["a", "b"]
    assert tree.status == before


@pytest.mark.parametrize("change", [file_to_folder, file_to_ignored_folder, folder_to_file])
async def test_where_the_new_code_changes_that_place_it_stays_parked(
    tree: Tree, change: Callable[[Path], Path]
) -> None:
    mine = change(tree.checkout)
    mine.write_text(PRECIOUS)
    tree.commit({"kept.txt": "new\n", "docs/a": "new\n"})
    target = tree.fetch()
    result = await run_move(tree.job(target))
    assert result.committed
    whole(tree, target)
    (entry,) = tree.stashes
    (action,) = result.actions
    assert entry in action.reason
    assert tree.git("show", f"{entry}^3:{mine.relative_to(tree.checkout).as_posix()}") == PRECIOUS.strip()


async def test_a_repository_in_the_place_of_a_file_is_refused(tree: Tree) -> None:
    (tree.checkout / "kept.txt").unlink()
    (tree.checkout / "kept.txt").mkdir()
    git(tree.checkout / "kept.txt", "init", "-q")
    (tree.checkout / "kept.txt/mine").write_text(PRECIOUS)
    before = tree.head
    result = await run_move(tree.job(ahead(tree)))
    assert isinstance(result.error, UpdateError)
    assert "kept.txt/" in result.error.message
    assert tree.head == before
    assert tree.stashes == []
    assert (tree.checkout / "kept.txt/mine").read_text() == PRECIOUS


@pytest.mark.parametrize("change", [file_to_folder, folder_to_file])
async def test_a_failed_move_puts_it_where_it_was(tree: Tree, change: Callable[[Path], Path]) -> None:
    mine = change(tree.checkout)
    mine.write_text(PRECIOUS)
    before, head = tree.status, tree.head
    tree.commit({"toy/value.py": "VALUE = (\n"})  # does not compile: the whole update goes back
    result = await run_move(tree.job(tree.fetch()))
    assert isinstance(result.error, UpdateError)
    assert (tree.head, tree.status, tree.stashes) == (head, before, [])
    assert mine.read_text() == PRECIOUS


async def test_a_file_where_the_new_code_moved_an_added_one_is_not_written_over(tree: Tree) -> None:
    (tree.checkout / "docs/mine").write_text("added\n")
    tree.git("add", "-A")
    (tree.checkout / "handbook").mkdir()
    (tree.checkout / "handbook/mine").write_text(PRECIOUS)
    git(tree.origin, "mv", "docs", "handbook")
    tree.commit({})
    result = await run_move(tree.job(tree.fetch()))
    assert result.committed
    assert (tree.checkout / "handbook/mine").read_text() == PRECIOUS
    (entry,) = tree.stashes
    assert tree.git("show", f"{entry}:docs/mine") == "added"
    assert result.actions


async def test_a_tag_named_like_the_branch_changes_nothing(tree: Tree) -> None:
    tree.git("tag", "main")
    for value in (2, 3):
        tree.commit({"toy/value.py": f"VALUE = {value}\n"})
        target = tree.fetch()
        result = await run_move(tree.job(target))
        assert result.error is None, result.error
        assert tree.git("symbolic-ref", "HEAD") == "refs/heads/main"
        assert tree.head == target == tree.git("rev-parse", "refs/heads/main")


async def test_what_was_staged_and_no_longer_fits_stays_parked(tree: Tree) -> None:
    place = tree.checkout / "toy/value.py"
    old = place.read_text()
    place.write_text("VALUE = 99\n")
    tree.git("add", "-A")
    place.write_text(old)
    target = ahead(tree)
    result = await run_move(tree.job(target))
    assert result.committed
    whole(tree, target)
    (entry,) = tree.stashes
    assert tree.git("show", f"{entry}^2:toy/value.py") == "VALUE = 99"
    (action,) = result.actions
    assert "staged" in action.reason
    assert entry in action.reason


async def test_compiled_code_where_a_file_comes_is_nobodys_edit(tree: Tree) -> None:
    cache = tree.checkout / "docs/__pycache__"
    cache.mkdir()
    (cache / "a.cpython-311.pyc").write_bytes(b"old")
    for name in ("a", "b"):
        (tree.origin / "docs" / name).unlink()
    (tree.origin / "docs").rmdir()
    tree.commit({"docs": "a file now\n"})
    target = tree.fetch()
    result = await run_move(tree.job(target))
    assert result.error is None, result.error
    whole(tree, target)
    assert (result.actions, tree.stashes) == ([], [])


async def test_edits_that_cannot_leave_are_parked_by_no_run(tree: Tree, tmp_path: Path) -> None:
    """In a folder that nobody may write in: nothing has left, so nothing needs to be written back, and no entry is left over."""
    (tree.checkout / "kept.txt").write_text("mine\n")
    before, head = tree.status, tree.head
    tree.commit({"kept.txt": "new\n"})
    target, fake, asked = ahead(tree), tmp_path / "bin/git", tmp_path / "asked"
    fake.parent.mkdir()
    real = tree.runner().program
    fake.write_text(
        f'#!/bin/sh\ncase "$*" in *" checkout-index "*) cat > {asked}; if grep -q kept.txt {asked}; then\n'
        f'echo "error: unable to unlink old kept.txt: Permission denied" >&2; exit 1; fi; exec {real} "$@" < {asked};; esac\n'
        f'exec {real} "$@"\n'
    )
    fake.chmod(0o755)
    job = tree.job(target)
    job = attrs.evolve(job, git=SourceGit(str(fake), job.git.checkout, job.git.git_dir))
    for _ in range(2):
        result = await run_move(job)
        assert isinstance(result.error, UpdateError)
        assert "Permission denied" in result.error.message
        assert (tree.head, tree.status, tree.stashes) == (head, before, [])
        assert remind(job.git) is None
