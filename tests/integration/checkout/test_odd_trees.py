"""Odd checkouts: the branch lies in another worktree, edits are hidden from the status, the branch has no commit."""

from __future__ import annotations

from pathlib import Path

import pytest

from nedura.errors import UpdateError
from nedura.testing.installs import git
from tests.integration.checkout.trees import Tree, ahead, make_tree, run_move, whole


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return make_tree(tmp_path)


@pytest.mark.parametrize("parked", [False, True])
async def test_a_branch_that_another_worktree_has_is_not_moved_under_it(
    tree: Tree, tmp_path: Path, parked: bool
) -> None:
    """Its files would look like edits that undo the update."""
    other, old = tmp_path / "other tree", tree.head
    tree.git("checkout", "-q", *(("-b", "mine") if parked else ("--detach",)))
    tree.git("worktree", "add", "-q", str(other), "main")
    target = ahead(tree)
    result = await run_move(tree.job(target))
    assert result.error is None
    whole(tree, target, branch="")
    assert str(other) in result.text
    assert git(other, "rev-parse", "HEAD").strip() == old
    assert git(other, "status", "--porcelain") == ""
    again = await run_move(tree.job(target))
    assert again.error is None
    whole(tree, target, branch="")


async def test_a_worktree_that_is_gone_holds_no_branch(tree: Tree, tmp_path: Path) -> None:
    tree.git("checkout", "-q", "--detach")
    tree.git("worktree", "add", "-q", str(tmp_path / "other"), "main")
    (tmp_path / "other").rename(tmp_path / "away")
    target = ahead(tree)
    assert (await run_move(tree.job(target))).error is None
    whole(tree, target)


@pytest.mark.parametrize("flag", ["--assume-unchanged", "--skip-worktree"])
async def test_an_edit_hidden_from_git_is_named_with_what_to_do(tree: Tree, flag: str) -> None:
    target, old = ahead(tree), tree.head
    tree.git("update-index", flag, "README")
    assert (await run_move(tree.job(old))).error is None
    (tree.checkout / "README").write_text("hidden\n")
    result = await run_move(tree.job(target))
    assert isinstance(result.error, UpdateError)
    assert result.error.stop_class == "local_changes_blocked"
    assert "README" in result.error.message
    assert "git update-index --no-assume-unchanged --no-skip-worktree -- README" in result.error.advice
    assert (tree.head, (tree.checkout / "README").read_text(), tree.stashes) == (old, "hidden\n", [])


@pytest.mark.parametrize("flag", ["--assume-unchanged", "--skip-worktree"])
async def test_a_hidden_file_without_an_edit_or_without_news_moves(tree: Tree, flag: str) -> None:
    target = ahead(tree)
    tree.git("update-index", flag, "README", "toy/main.py")
    (tree.checkout / "toy/main.py").write_text("print('hidden')\n")
    result = await run_move(tree.job(target))
    assert result.error is None, str(result.error)
    assert tree.head == target
    assert (tree.checkout / "toy/main.py").read_text() == "print('hidden')\n"
    assert (tree.checkout / "README").read_text().startswith("first\n")


async def test_a_branch_without_a_commit_is_called_that(tree: Tree) -> None:
    target = ahead(tree)
    tree.git("checkout", "-q", "--orphan", "fresh")
    result = await run_move(tree.job(target))
    assert isinstance(result.error, UpdateError)
    assert "fresh has no commit" in result.error.message
    assert "git checkout main" in result.error.advice
