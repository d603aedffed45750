"""Moving a real checkout that its owner edited: what is parked, what comes back, what stays aside."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from nedura.errors import UpdateError
from nedura.testing.installs import git
from nedura.update.commit.waiting import remind
from nedura.update.source.move_marker import MARKER
from tests.integration.checkout.trees import Tree, ahead, make_tree, run_move, whole


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return make_tree(tmp_path)


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
    reminder = remind(tree.runner())
    assert reminder is not None
    assert stash in reminder.reason
    tree.git("stash", "drop")
    assert remind(tree.runner()) is None
    assert remind(tree.runner()) is None


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


async def test_what_a_tool_wrote_is_not_parked(tree: Tree) -> None:
    tree.commit({"web/package.json": "{}\n", "web/package-lock.json": '{"v": 1}\n'}, "web")
    tree.fetch()
    tree.git("merge", "-q", "--ff-only", "FETCH_HEAD")
    (tree.checkout / "web/package-lock.json").write_text('{"v": 2}\n')
    target = ahead(tree)
    result = await run_move(tree.job(target))
    whole(tree, target)
    assert "1 lock file" in result.step("machine_changes").detail
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
