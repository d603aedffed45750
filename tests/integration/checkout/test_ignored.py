"""Ignored files are somebody's data: git takes them for expendable, an update does not."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.checkout.trees import Tree, ahead, make_tree, run_move, whole


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    made = make_tree(tmp_path)
    (made.checkout / ".git/info/exclude").write_text("new\nnew/\n*.secret\n\\[odd]*\n")
    return made


def a_file(place: Path) -> None:
    place.parent.mkdir(exist_ok=True)
    place.write_text("mine\n")


def a_link_to_a_folder(place: Path) -> None:
    other = place.parents[2] / "elsewhere"
    other.mkdir()
    (other / "kept").write_text("kept\n")
    os.symlink(other, place)


def a_folder(place: Path) -> None:
    place.mkdir(parents=True)
    (place / "inner").write_text("mine\n")


@pytest.mark.parametrize(
    ("where", "make", "parked"),
    [
        ("new/file.txt", a_file, "new/file.txt"),
        ("new", a_file, "new"),
        ("new", a_link_to_a_folder, "new"),
        ("new/file.txt", a_folder, "new/file.txt/inner"),
    ],
)
async def test_one_in_the_way_of_the_new_code_is_parked(
    tree: Tree, where: str, make: Callable[[Path], None], parked: str
) -> None:
    target = ahead(tree)
    make(tree.checkout / where)
    assert tree.status == [], "git does not tell of it"
    result = await run_move(tree.job(target))
    assert result.error is None
    whole(tree, target)
    assert (tree.checkout / "new/file.txt").read_text() == "new\n"
    assert where in result.actions[0].reason
    kept = tree.git("show", f"{tree.stashes[0]}^3:{parked}")
    assert kept == "mine" or kept.endswith("/elsewhere")


async def test_others_are_not_touched_and_an_odd_name_is_no_pattern(tree: Tree) -> None:
    tree.commit({"[odd] *": "new\n"})
    target = tree.fetch()
    (tree.checkout / "a.secret").write_text("mine\n")
    (tree.checkout / "[odd] *").write_text("mine\n")
    (tree.checkout / "[odd] other").write_text("mine\n")
    result = await run_move(tree.job(target))
    assert result.error is None
    assert (tree.checkout / "a.secret").read_text() == "mine\n"
    assert len(tree.stashes) == 1
    assert tree.git("ls-tree", "-r", "--name-only", f"{tree.stashes[0]}^3") == "[odd] *"


async def test_one_with_the_new_content_is_no_conflict(tree: Tree) -> None:
    target = ahead(tree)
    (tree.checkout / "new").mkdir()
    (tree.checkout / "new/file.txt").write_text("new\n")
    result = await run_move(tree.job(target))
    assert (result.error, result.actions, tree.stashes) == (None, [], [])
    whole(tree, target)
