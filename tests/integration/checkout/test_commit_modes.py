"""Modes of what a move writes into a checkout: the owner's umask, but never code that others can write."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nedura.update.bounded import own_umask, run_bounded
from nedura.update.generation.build_checkout import swap_in
from nedura.update.generation.places import is_exposed
from tests.integration.checkout.trees import make_tree, run_move, whole


@pytest.mark.parametrize(
    ("umask", "file", "folder"), [(0o000, 0o644, 0o755), (0o002, 0o644, 0o755), (0o077, 0o600, 0o700)]
)
async def test_a_move_writes_no_code_that_others_can_write(
    tmp_path: Path, umask: int, file: int, folder: int
) -> None:
    tree = make_tree(tmp_path)
    (tree.checkout / "README").write_text("mine\n")
    tree.commit({"toy/value.py": "VALUE = 2\n", "new/file.py": "NEW = 1\n"})
    target, git_dir = tree.fetch(), Path(tree.runner().git_dir)
    before = set(git_dir.rglob("*"))
    old = os.umask(umask)
    try:
        result = await run_move(tree.job(target))
    finally:
        os.umask(old)
    assert result.error is None, result.error
    assert (tree.checkout / "README").read_text() == "mine\n"
    for name in ("toy/value.py", "new/file.py", "README"):
        assert (tree.checkout / name).stat().st_mode & 0o777 == file, name
    assert (tree.checkout / "new").stat().st_mode & 0o777 == folder
    exposed = [path for path in git_dir.rglob("*") if path not in before and is_exposed(os.lstat(path))]
    assert exposed == []
    (tree.checkout / "README").unlink()
    tree.git("checkout", "-q", "--", "README")
    whole(tree, target)


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_our_umask_is_read_without_changing_it(umask: int) -> None:
    old = os.umask(umask)
    try:
        assert own_umask() == umask
        assert run_bounded(["/bin/sh", "-c", "umask"], env={}, timeout=10, umask=-1).out == (
            f"{umask | 0o022:04o}\n".encode()
        )
        assert own_umask(status="/nowhere") == umask
    finally:
        assert os.umask(old) == umask


@pytest.mark.parametrize(("umask", "folder"), [(0o000, 0o755), (0o077, 0o700)])
def test_the_folders_of_a_build_are_nobody_elses(tmp_path: Path, umask: int, folder: int) -> None:
    made, place = tmp_path / "made", tmp_path / "checkout/web/deep/dist"
    (tmp_path / "checkout").mkdir()
    made.write_text("built\n")
    old = os.umask(umask)
    try:
        swap_in(made, place)
    finally:
        os.umask(old)
    assert [path.stat().st_mode & 0o777 for path in (place.parent, place.parent.parent)] == [folder, folder]
