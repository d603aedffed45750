"""Moving a real checkout: placement, parked edits, divergence, guards, and everything put back when it fails."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nedura.errors import RefusedError, UpdateError
from nedura.testing.installs import git
from nedura.update.commit.checkout import owed_edits
from nedura.update.commit.move import RESCUE
from nedura.update.source.move_marker import MARKER
from tests.integration.checkout.trees import Tree, make_tree, run_move

CHANGE: dict[str, str | None] = {
    "toy/value.py": "VALUE = 2\n",
    "new/file.txt": "new\n",
    "old.txt": None,
    "README": "first\n" + "".join(f"line {n}\n" for n in range(30)),
}


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return make_tree(tmp_path)


def ahead(tree: Tree) -> str:
    tree.commit(CHANGE, "two")
    return tree.fetch()


def whole(tree: Tree, commit: str, branch: str = "main") -> None:
    assert tree.head == commit
    assert tree.branch == branch
    assert tree.status == []
    assert not Path(tree.runner().git_dir, MARKER).exists()
    tree.git("fsck", "--strict")


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


async def test_edits_are_parked_and_merged_back(tree: Tree) -> None:
    target = ahead(tree)
    readme = tree.checkout / "README"
    readme.write_text(readme.read_text().replace("line 20", "mine 20"))
    (tree.checkout / "toy/main.py").write_text("# mine\nfrom toy import value\nprint(value.VALUE)\n")
    tree.git("add", "toy/main.py")
    (tree.checkout / "notes.txt").write_text("untracked\n")
    inode = (tree.checkout / "notes.txt").stat().st_ino
    result = await run_move(tree.job(target))
    assert result.error is None
    assert tree.head == target
    assert sorted(tree.status) == [" M README", "?? notes.txt", "M  toy/main.py"], "also what was staged"
    assert "mine 20" in readme.read_text()
    assert readme.read_text().startswith("first\n")
    assert (tree.checkout / "notes.txt").stat().st_ino == inode, (
        "untracked files that are in nobody's way are not touched"
    )
    assert tree.stashes == []
    assert result.step("local_changes_stash").detail.startswith("restored 2")


async def test_an_edit_deletion_and_a_new_staged_file_come_back(tree: Tree) -> None:
    target = ahead(tree)
    (tree.checkout / "toy/main.py").unlink()
    (tree.checkout / "added.txt").write_text("added\n")
    tree.git("add", "added.txt")
    (tree.checkout / "later.txt").write_text("intent\n")
    tree.git("add", "-N", "later.txt")
    os.symlink("README", tree.checkout / "link")
    tree.git("add", "link")
    result = await run_move(tree.job(target))
    assert result.error is None
    assert not (tree.checkout / "toy/main.py").exists()
    assert (tree.checkout / "added.txt").read_text() == "added\n"
    assert (tree.checkout / "later.txt").read_text() == "intent\n"
    assert os.readlink(tree.checkout / "link") == "README"
    assert tree.stashes == []


async def test_a_conflict_leaves_a_clean_tree_and_one_named_stash(tree: Tree) -> None:
    target = ahead(tree)
    (tree.checkout / "toy/value.py").write_text("VALUE = 'mine'\n")
    result = await run_move(tree.job(target))
    assert result.error is None
    assert result.committed
    whole(tree, target)
    (stash,) = tree.stashes
    (action,) = result.actions
    assert stash in action.reason
    assert "toy/value.py" in action.reason
    assert not result.step("local_changes_stash").ok
    reminder = owed_edits(tree.runner())
    assert reminder is not None
    assert stash in reminder.reason
    tree.git("stash", "drop")
    assert owed_edits(tree.runner()) is None
    assert owed_edits(tree.runner()) is None


async def test_a_modify_delete_conflict_is_one_too(tree: Tree) -> None:
    target = ahead(tree)
    (tree.checkout / "old.txt").write_text("mine\n")
    result = await run_move(tree.job(target))
    whole(tree, target)
    assert len(tree.stashes) == 1
    assert "old.txt" in result.actions[0].reason
    assert tree.git("show", f"{tree.stashes[0]}:old.txt") == "mine"


async def test_an_untracked_file_in_the_way_is_parked(tree: Tree) -> None:
    target = ahead(tree)
    (tree.checkout / "new").mkdir()
    (tree.checkout / "new/file.txt").write_text("mine\n")
    result = await run_move(tree.job(target))
    whole(tree, target)
    assert (tree.checkout / "new/file.txt").read_text() == "new\n"
    assert "new/file.txt" in result.actions[0].reason
    assert tree.git("show", f"{tree.stashes[0]}^3:new/file.txt") == "mine"


async def test_an_untracked_file_with_the_new_content_is_no_conflict(tree: Tree) -> None:
    target = ahead(tree)
    (tree.checkout / "new").mkdir()
    (tree.checkout / "new/file.txt").write_text("new\n")
    result = await run_move(tree.job(target))
    assert result.actions == []
    whole(tree, target)
    assert tree.stashes == []


async def test_a_file_where_a_folder_must_be(tree: Tree) -> None:
    target = ahead(tree)
    (tree.checkout / "new").write_text("mine\n")
    result = await run_move(tree.job(target))
    assert result.error is None
    assert result.committed
    assert (tree.checkout / "new/file.txt").read_text() == "new\n"
    assert len(tree.stashes) == 1
    assert tree.git("show", f"{tree.stashes[0]}^3:new") == "mine"


@pytest.mark.parametrize(
    ("options", "left", "word"),
    [({"keep_stash": True}, 1, "parked"), ({"local_changes": "discard"}, 0, "discarded")],
)
async def test_dispositions(tree: Tree, options: dict[str, object], left: int, word: str) -> None:
    target = ahead(tree)
    (tree.checkout / "toy/main.py").write_text("# mine\n")
    result = await run_move(tree.job(target, **options))
    whole(tree, target)
    assert len(tree.stashes) == left
    assert result.step("local_changes_stash").ok
    assert result.step("local_changes_stash").detail.startswith(word)
    assert result.actions == []


async def test_a_person_is_never_robbed_by_configuration(tree: Tree) -> None:
    target = ahead(tree)
    (tree.checkout / "toy/main.py").write_text("# mine\n")
    await run_move(tree.job(target, local_changes="discard", interactive=True))
    assert (tree.checkout / "toy/main.py").read_text() == "# mine\n"


async def test_restored_code_that_does_not_compile_stays_parked(tree: Tree) -> None:
    target = ahead(tree)
    (tree.checkout / "toy/main.py").write_text("def broken(:\n")
    result = await run_move(tree.job(target))
    whole(tree, target)
    assert "cannot start" in result.actions[0].reason
    assert len(tree.stashes) == 1


async def test_restored_code_that_does_not_import_stays_parked(tree: Tree) -> None:
    target = ahead(tree)
    (tree.checkout / "toy/main.py").write_text("import nothing_of_that_name\n")
    result = await run_move(tree.job(target, python=Path(sys.executable)))
    whole(tree, target)
    assert "nothing_of_that_name" in result.actions[0].reason
    assert len(tree.stashes) == 1


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


async def test_what_a_tool_wrote_is_not_parked(tree: Tree) -> None:
    tree.commit({"web/package.json": "{}\n", "web/package-lock.json": '{"v": 1}\n'}, "web")
    tree.fetch()
    tree.git("merge", "-q", "--ff-only", "FETCH_HEAD")
    (tree.checkout / "web/package-lock.json").write_text('{"v": 2}\n')
    target = ahead(tree)
    result = await run_move(tree.job(target))
    whole(tree, target)
    assert "lock files" in result.step("machine_changes").detail
    assert tree.stashes == []


async def test_a_lock_file_beside_an_edited_manifest_is_an_edit(tree: Tree) -> None:
    tree.commit({"web/package.json": "{}\n", "web/package-lock.json": '{"v": 1}\n'}, "web")
    tree.fetch()
    tree.git("merge", "-q", "--ff-only", "FETCH_HEAD")
    (tree.checkout / "web/package-lock.json").write_text('{"v": 2}\n')
    (tree.checkout / "web/package.json").write_text('{"mine": 1}\n')
    result = await run_move(tree.job(ahead(tree)))
    assert result.error is None
    assert (tree.checkout / "web/package-lock.json").read_text() == '{"v": 2}\n'


async def test_a_failing_restore_never_fails_the_update(tree: Tree) -> None:
    target = ahead(tree)
    (tree.checkout / "toy/main.py").write_text("# mine\n")
    job = tree.job(target, python=tree.checkout / "no-such-python")
    result = await run_move(job)
    assert result.committed
    assert result.error is None
    assert len(tree.stashes) == 1
    assert result.actions
    assert tree.head == target


async def test_an_edit_made_meanwhile_stops_the_move_before_its_first_write(tree: Tree) -> None:
    """The two-way move itself refuses; nothing is lost and no marker stays."""
    from nedura.update.commit.move import Move, move

    before = tree.head
    target = ahead(tree)
    (tree.checkout / "README").write_text("typed a moment ago\n")
    with pytest.raises(UpdateError):
        move(tree.runner(), Move(pre=before, target=target, branch="main", was_branch="main"))
    assert (tree.head, tree.status) == (before, [" M README"])
    assert (tree.checkout / "README").read_text() == "typed a moment ago\n"
    assert not Path(tree.runner().git_dir, MARKER).exists()


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


async def test_a_repository_inside_the_checkout_is_never_parked(tree: Tree) -> None:
    nested = tree.checkout / "new"
    nested.mkdir()
    git(nested, "init", "-q")
    (nested / "work.txt").write_text("work\n")
    before = tree.head
    result = await run_move(tree.job(ahead(tree)))
    assert isinstance(result.error, UpdateError)
    assert result.error.stop_class == "local_changes_blocked"
    assert tree.head == before
    assert (nested / "work.txt").read_text() == "work\n"
    assert tree.stashes == []
