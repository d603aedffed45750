"""Edited files that cannot leave their place: the update goes on where the new code has nothing there (facts/update.md 5.2 step 14)."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from nedura.errors import UpdateError
from nedura.update.commit.waiting import remind
from tests.integration.checkout.trees import FILES, Tree, ahead, make_tree, run_move


def _fixed(path: Path, on: bool) -> bool:
    """Nobody can write, rename or remove what lies in a folder, not even root."""
    if os.geteuid() != 0:
        path.chmod(0o555 if on else 0o755)
        return True
    if shutil.which("chattr") is None:
        return False
    done = subprocess.run(["chattr", "+i" if on else "-i", *path.iterdir(), path], capture_output=True)
    return done.returncode == 0


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Tree]:
    tree = make_tree(tmp_path, {**FILES, "fixed/a.txt": "a\n", "fixed/b.txt": "b\n"})
    yield tree
    _fixed(tree.checkout / "fixed", on=False)


def fix(tree: Tree) -> None:
    if not _fixed(tree.checkout / "fixed", on=True):
        pytest.skip("chattr +i is not possible here")


def edit(tree: Tree, kind: str) -> None:
    if kind == "edited":
        (tree.checkout / "fixed/a.txt").write_text("mine\n")
    elif kind == "added":
        (tree.checkout / "fixed/mine.txt").write_text("mine\n")
        tree.git("add", "-A")
    else:
        (tree.checkout / "fixed/a.txt").unlink()


@pytest.mark.parametrize("kind", ["edited", "added", "deleted"])
async def test_where_the_new_code_changes_nothing_it_stays_as_it_is(tree: Tree, kind: str) -> None:
    edit(tree, kind)
    (tree.checkout / "README").write_text("".join(f"line {n}\n" for n in range(30)) + "mine\n")
    before, target = tree.status, ahead(tree)
    fix(tree)
    result = await run_move(tree.job(target))
    assert result.error is None, result.error
    assert (tree.head, tree.status, tree.stashes, result.actions) == (target, before, [], [])
    assert (tree.checkout / "README").read_text().endswith("mine\n")
    assert (tree.checkout / "README").read_text().startswith("first\n")
    assert remind(tree.runner()) is None


async def test_edits_that_stay_parked_by_choice_are_named_where_they_stay(tree: Tree) -> None:
    edit(tree, "edited")
    target = ahead(tree)
    fix(tree)
    result = await run_move(tree.job(target, keep_stash=True))
    assert (result.error, tree.head) == (None, target)
    assert tree.status == [" M fixed/a.txt"]
    (entry,) = tree.stashes
    assert tree.git("show", f"{entry}:fixed/a.txt") == "mine"
    assert "fixed/a.txt" in result.text
    assert "left as it is" in result.text


@pytest.mark.parametrize("kind", ["edited", "added"])
async def test_where_the_new_code_has_something_nothing_moves(tree: Tree, kind: str) -> None:
    edit(tree, kind)
    before, head = tree.status, tree.head
    tree.commit({"fixed/a.txt": "new\n", "fixed/mine.txt": "theirs\n", "README": "new\n"})
    target = tree.fetch()
    fix(tree)
    result = await run_move(tree.job(target))
    assert isinstance(result.error, UpdateError)
    assert "fixed/" in result.error.message
    assert "not permitted" in result.error.message or "denied" in result.error.message
    assert (tree.head, tree.status, tree.stashes) == (head, before, [])
