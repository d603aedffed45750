"""Moving a real checkout: placement, divergence, guards, and everything put back when it fails."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from nedura.errors import RefusedError, UpdateError
from nedura.testing.installs import git
from nedura.update.commit.move import RESCUE
from nedura.update.source.move_marker import MARKER
from tests.integration.checkout.trees import CHANGE, Tree, ahead, make_tree, run_move, whole


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return make_tree(tmp_path)


async def test_a_clean_fast_forward(tree: Tree) -> None:
    target = ahead(tree)
    result = await run_move(tree.job(target))
    assert result.error is None
    assert result.committed
    whole(tree, target)
    assert (tree.checkout / "new/file.txt").read_text() == "new\n"
    assert not (tree.checkout / "old.txt").exists()
    assert tree.stashes == []


async def test_objects_come_from_our_own_repository(tree: Tree, tmp_path: Path) -> None:
    from nedura.update.source.git import Git, find_git

    tree.commit(CHANGE, "two")
    bare = tmp_path / "repo.git"
    git(tmp_path, "init", "-q", "--bare", str(bare))
    (bare / "objects/info").mkdir(exist_ok=True)
    (bare / "objects/info/alternates").write_text(f"{tree.checkout}/.git/objects\n")
    git(bare, "fetch", "-q", str(tree.origin), "main:refs/nedura/fetched")
    target = git(bare, "rev-parse", "refs/nedura/fetched").strip()
    assert tree.git("cat-file", "-e", target, check=False) == ""
    result = await run_move(tree.job(target, repo=Git(program=find_git(), repo=bare)))
    assert result.error is None
    whole(tree, target)


async def test_a_diverged_branch_is_kept_under_a_ref(tree: Tree) -> None:
    mine = tree.commit({"mine.txt": "mine\n"}, "local", where=tree.checkout)
    target = ahead(tree)
    result = await run_move(tree.job(target))
    assert result.error is None
    whole(tree, target)
    ref = result.step("rescue_ref").detail
    assert ref.startswith(f"{RESCUE}20270115-080000-diverged-main-")
    assert tree.git("rev-parse", ref).strip() == mine
    assert ref in result.text
    assert "dangling commit" not in tree.git("fsck", "--no-reflogs", "--no-dangling")


async def test_an_unrelated_history_is_an_orphan(tree: Tree) -> None:
    git(tree.origin, "checkout", "-q", "--orphan", "fresh")
    tree.commit({"README": "all new\n"}, "new root")
    git(tree.origin, "branch", "-M", "fresh", "main")
    before = tree.head
    target = tree.fetch()
    result = await run_move(tree.job(target))
    whole(tree, target)
    assert "-orphan-main-" in result.step("rescue_ref").detail
    assert tree.git("rev-parse", result.step("rescue_ref").detail).strip() == before


async def test_rescue_refs_expire(tree: Tree) -> None:
    head = tree.head
    for ref in (f"{RESCUE}20200101-000000-diverged-main-x", f"{RESCUE}20270110-000000-diverged-main-y"):
        tree.git("update-ref", ref, head)
    await run_move(tree.job(ahead(tree)))
    assert tree.git("for-each-ref", "--format=%(refname)", RESCUE).split() == [
        f"{RESCUE}20270110-000000-diverged-main-y"
    ]


async def test_a_fully_merged_branch_goes_back_to_main(tree: Tree) -> None:
    tree.git("checkout", "-q", "-b", "feature")
    target = ahead(tree)
    await run_move(tree.job(target))
    whole(tree, target)


async def test_an_unmerged_branch_is_left_behind_whole(tree: Tree) -> None:
    tree.git("checkout", "-q", "-b", "feature")
    mine = tree.commit({"mine.txt": "mine\n"}, "local", where=tree.checkout)
    target = ahead(tree)
    result = await run_move(tree.job(target))
    whole(tree, target)
    assert tree.git("rev-parse", "feature").strip() == mine
    assert "1 commit" in result.text
    assert "git checkout feature" in result.text


async def test_a_dirty_parked_branch_is_not_touched(tree: Tree) -> None:
    tree.git("checkout", "-q", "-b", "feature")
    (tree.checkout / "README").write_text("mine\n")
    before = tree.head
    result = await run_move(tree.job(ahead(tree)))
    assert isinstance(result.error, UpdateError)
    assert result.error.stop_class == "local_changes_blocked"
    assert "skipped" in result.error.message
    assert not result.committed
    assert (tree.head, tree.branch, tree.status) == (before, "feature", [" M README"])
    assert tree.stashes == []


async def test_switching_can_be_turned_off(tree: Tree) -> None:
    tree.git("checkout", "-q", "-b", "feature")
    result = await run_move(tree.job(ahead(tree), auto_switch=False))
    assert isinstance(result.error, UpdateError)
    assert "Commit or discard" not in result.error.advice, "there is no edit"
    assert isinstance(result.error, UpdateError)
    assert tree.branch == "feature"


async def test_updating_in_place_merges_into_the_parked_branch(tree: Tree) -> None:
    tree.git("checkout", "-q", "-b", "feature")
    mine = tree.commit({"mine.txt": "mine\n"}, "local", where=tree.checkout)
    target = ahead(tree)
    result = await run_move(tree.job(target, strategy="update_in_place"))
    assert result.error is None
    assert tree.branch == "feature"
    assert tree.git("rev-list", "--parents", "-1", "HEAD").split()[1:] == [mine, target]
    assert (tree.checkout / "toy/value.py").read_text() == "VALUE = 2\n"
    assert tree.status == []
    assert "pre-update-feature" in result.text


async def test_a_conflicting_merge_in_place_changes_nothing(tree: Tree) -> None:
    tree.git("checkout", "-q", "-b", "feature")
    mine = tree.commit({"toy/value.py": "VALUE = 'mine'\n"}, "local", where=tree.checkout)
    result = await run_move(tree.job(ahead(tree), strategy="update_in_place"))
    assert isinstance(result.error, UpdateError)
    assert (tree.head, tree.branch, tree.status) == (mine, "feature", [])


async def test_a_detached_start_is_carried_to_the_branch(tree: Tree) -> None:
    tree.git("checkout", "-q", "--detach")
    mine = tree.commit({"mine.txt": "mine\n"}, "local", where=tree.checkout)
    target = ahead(tree)
    result = await run_move(tree.job(target))
    whole(tree, target)
    assert tree.git("rev-parse", result.step("rescue_ref").detail).strip() == mine


async def test_a_release_commit_is_checked_out_detached(tree: Tree) -> None:
    before = tree.head
    target = ahead(tree)
    result = await run_move(tree.job(target, target_branch=""))
    assert result.error is None
    whole(tree, target, branch="")
    assert tree.git("rev-parse", "main").strip() == before, "the branch stays where it is"


async def test_a_diverged_local_main_is_kept_when_coming_from_elsewhere(tree: Tree) -> None:
    mine = tree.commit({"mine.txt": "mine\n"}, "on main", where=tree.checkout)
    tree.git("checkout", "-q", "-b", "feature", "HEAD~1")
    target = ahead(tree)
    result = await run_move(tree.job(target))
    whole(tree, target)
    assert tree.git("rev-parse", result.step("rescue_ref").detail).strip() == mine


async def test_a_linked_worktree_moves_and_the_main_one_stays(tree: Tree, tmp_path: Path) -> None:
    tree.git("checkout", "-q", "-b", "parking")
    tree.git("worktree", "add", "-q", str(tmp_path / "linked"), "main")
    linked = Tree(tree.origin, tmp_path / "linked")
    before = tree.head
    target = ahead(linked)
    result = await run_move(linked.job(target))
    assert result.error is None
    whole(linked, target)
    assert (tree.head, tree.branch, tree.status) == (before, "parking", [])


async def test_nothing_to_move_is_committed_without_a_touch(tree: Tree) -> None:
    (tree.checkout / "README").write_text("mine\n")
    result = await run_move(tree.job(tree.head))
    assert result.committed
    assert tree.status == [" M README"]
    assert tree.stashes == []


async def test_code_that_does_not_compile_goes_back_whole(tree: Tree) -> None:
    before = tree.head
    (tree.checkout / "README").write_text("mine\n")
    tree.commit({"toy/value.py": "<<<<<<< HEAD\n", "new.txt": "x"}, "broken")
    result = await run_move(tree.job(tree.fetch()))
    assert isinstance(result.error, UpdateError)
    assert result.error.stop_class == "target_syntax_error"
    assert not result.committed
    assert (tree.head, tree.branch, tree.status) == (before, "main", [" M README"])
    assert (tree.checkout / "README").read_text() == "mine\n"
    assert (tree.checkout / "toy/value.py").read_text() == "VALUE = 1\n"
    assert tree.stashes == []
    assert not Path(tree.runner().git_dir, MARKER).exists()


async def test_going_back_also_finds_the_branch_it_came_from(tree: Tree) -> None:
    tree.git("checkout", "-q", "-b", "feature")
    before = tree.head
    tree.commit({"toy/value.py": "def (\n"}, "broken")
    result = await run_move(tree.job(tree.fetch()))
    assert isinstance(result.error, UpdateError)
    assert (tree.head, tree.branch, tree.status) == (before, "feature", [])


async def test_a_syntax_error_outside_the_launch_closure_is_no_reason(tree: Tree) -> None:
    tree.commit({"tests/bad_fixture.py": "def (\n"}, "a fixture")
    target = tree.fetch()
    assert (await run_move(tree.job(target))).error is None
    whole(tree, target)


async def test_somebody_elses_merge_is_not_touched(tree: Tree) -> None:
    tree.git("checkout", "-q", "-b", "feature")
    tree.commit({"toy/value.py": "VALUE = 'mine'\n"}, "local", where=tree.checkout)
    target = ahead(tree)
    tree.git("merge", "-q", target, check=False)
    before = tree.status
    result = await run_move(tree.job(target))
    assert isinstance(result.error, UpdateError)
    assert "not finished" in result.error.message
    assert tree.status == before


async def test_a_fresh_lock_is_refused_and_an_old_one_moved_aside(tree: Tree) -> None:
    target = ahead(tree)
    lock = tree.checkout / ".git/index.lock"
    lock.touch()
    job = tree.job(target, now=time.time())
    result = await run_move(job)
    assert isinstance(result.error, RefusedError)
    assert lock.exists()
    os.utime(lock, (time.time() - 7200,) * 2)
    with lock.open("rb") as held, subprocess.Popen(["sleep", "60"], stdin=held) as holder:
        held.close()
        result = await run_move(job)
        assert isinstance(result.error, RefusedError)
        assert str(holder.pid) in result.error.message
        holder.terminate()
    result = await run_move(job)
    assert result.error is None
    assert "index.lock" in result.step("stale_git_locks").detail
    whole(tree, target)


async def test_modes_and_owner_umask_are_respected(tree: Tree) -> None:
    git(tree.origin, "update-index", "--chmod=+x", "README")
    (tree.origin / "README").chmod(0o755)
    tree.commit({"plain.txt": "x"}, "modes")
    target = tree.fetch()
    old = os.umask(0o022)
    try:
        await run_move(tree.job(target))
    finally:
        os.umask(old)
    assert (tree.checkout / "plain.txt").stat().st_mode & 0o777 == 0o644
    assert (tree.checkout / "README").stat().st_mode & 0o111
    whole(tree, target)


async def test_a_submodule_stays_as_it_is(tree: Tree) -> None:
    git(tree.origin, "update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},vendor/lib")
    git(tree.origin, "commit", "-q", "-m", "a submodule")
    target = tree.fetch()
    assert (await run_move(tree.job(target))).committed
    (tree.checkout / "vendor/lib").mkdir(parents=True, exist_ok=True)
    (tree.checkout / "vendor/lib/own.txt").write_text("somebody's clone\n")
    git(tree.origin, "update-index", "--add", "--cacheinfo", f"160000,{'2' * 40},vendor/lib")
    git(tree.origin, "commit", "-q", "-m", "newer submodule")
    target = tree.fetch()
    result = await run_move(tree.job(target))
    assert result.error is None
    assert tree.head == target
    assert (tree.checkout / "vendor/lib/own.txt").read_text() == "somebody's clone\n"


async def test_a_sparse_checkout_stays_sparse(tree: Tree) -> None:
    tree.commit({"big/a.txt": "a\n", "big/b.txt": "b\n"}, "big")
    tree.git("merge", "-q", "--ff-only", tree.fetch())
    tree.git("sparse-checkout", "set", "--no-cone", "/*", "!/big/")
    assert not (tree.checkout / "big").exists()
    tree.commit({"big/a.txt": "A\n", "toy/value.py": "VALUE = 2\n"}, "two")
    target = tree.fetch()
    result = await run_move(tree.job(target))
    assert result.error is None
    whole(tree, target)
    assert not (tree.checkout / "big").exists()
    assert (tree.checkout / "toy/value.py").read_text() == "VALUE = 2\n"


@pytest.mark.parametrize("name", ["with blank", "hö-家", "a#b?c%20'd", "x" * 100])
async def test_any_place_works(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    tree = make_tree(tmp_path / name)
    (tree.checkout / "toy/main.py").write_text("# mine\n")
    (tree.checkout / "ü n.txt").write_text("x")
    tree.commit({"dé ir/fi le.txt": "x\n", "-dash.txt": "x\n"}, "names")
    target = tree.fetch()
    result = await run_move(tree.job(target))
    assert result.error is None
    assert tree.head == target
    assert (tree.checkout / "dé ir/fi le.txt").exists()
    assert (tree.checkout / "toy/main.py").read_text() == "# mine\n"
