"""Locks that a killed update's git left in the owner's checkout are ours by a note or the move marker, and go at once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nedura.errors import RefusedError
from nedura.update.commit.gitlocks import clear_stale_locks
from nedura.update.commit.move import Move, move
from nedura.update.commit.stash import restore, save, take_out
from nedura.update.source.index_note import NOTE, at_the_index, free_dead_index
from nedura.update.source.move_marker import MARKER, MoveMarker, lock_identity, write_marker
from nedura.update.source.source_git import SourceGit, SourceGitError
from nedura.update.source.torn import mend
from tests.integration.checkout.trees import Tree, make_tree

DEAD = f"{2**22 - 3} 1.0 "


def watched(tree: Tree, tmp_path: Path) -> tuple[SourceGit, Path]:
    """A git that notes, for each command that locks the index, whether anything says whose the lock is."""
    real, log, program = tree.runner(), tmp_path / "log", tmp_path / "bin/git"
    program.parent.mkdir()
    program.write_text(
        '#!/bin/sh\nif [ -z "$GIT_INDEX_FILE" ]; then case " $* " in *" update-index "*|*" read-tree "*|*" checkout-index "*)\n'
        f'if [ -e "{real.git_dir}/{MARKER}" ] || [ -e "{real.git_dir}/{NOTE}" ]; then echo ours; else echo nobodys; fi >> "{log}";;\n'
        f'esac; fi\nexec "{real.program}" "$@"\n'
    )
    program.chmod(0o755)
    return SourceGit(str(program), tree.checkout, real.git_dir), log


def test_every_git_that_locks_the_index_runs_under_a_note_or_the_marker(tmp_path: Path) -> None:
    tree = make_tree(tmp_path)
    pre = tree.head
    tree.commit({"README": "two\n"})
    target = tree.fetch()
    (tree.checkout / "toy/value.py").write_text("VALUE = 'edited'\n")
    tree.git("add", "toy/value.py")
    runner, log = watched(tree, tmp_path)
    parked = save(runner, ["toy/value.py"], [], now=1_800_000_000.0, branch="main")
    take_out(runner, ["toy/value.py"], [])
    move(runner, Move(pre=pre, target=target, branch="main", was_branch="main"))
    assert restore(runner, parked).paths == ("toy/value.py",)
    told = log.read_text().split()
    assert len(told) >= 8
    assert set(told) == {"ours"}
    assert not Path(runner.git_dir, NOTE).exists()
    assert tree.head == target


def test_a_note_that_cannot_be_written_fails_as_git_would(tmp_path: Path) -> None:
    """Whoever parks or gives back edits has an answer to that; a record's error would have passed it by."""
    tree = make_tree(tmp_path)
    (Path(tree.runner().git_dir) / NOTE).mkdir()
    with pytest.raises(SourceGitError), at_the_index(tree.runner().git_dir):
        raise AssertionError("nothing may begin")


def test_the_index_lock_of_a_killed_update_goes_and_nobody_elses(tmp_path: Path) -> None:
    tree = make_tree(tmp_path)
    folder = Path(tree.runner().git_dir)
    lock, note = folder / "index.lock", folder / NOTE
    note.write_text(DEAD)
    lock.write_text("half an index")
    assert clear_stale_locks(folder, folder) == []
    assert not lock.exists()
    assert not note.exists()

    lock.write_text("there before")
    note.write_text(DEAD + lock_identity(str(folder)))
    with pytest.raises(RefusedError, match=r"index\.lock"):
        clear_stale_locks(folder, folder)
    assert not note.exists()

    with at_the_index(str(folder)):  # its writer lives
        assert not free_dead_index(str(folder))
        assert note.exists()
    note.write_text("123 cut")
    assert not free_dead_index(str(folder))
    assert lock.exists()


def test_locks_on_head_and_the_branch_of_a_killed_move_go_with_it(tmp_path: Path) -> None:
    tree = make_tree(tmp_path)
    pre = tree.head
    tree.commit({"README": "two\n"})
    target, folder = tree.fetch(), Path(tree.runner().git_dir)
    marker = MoveMarker(pid=2**22 - 3, create_time="1.000", pre=pre, target=target, ref="refs/heads/main")
    write_marker(str(folder), marker)
    for name in ("HEAD.lock", "refs/heads/main.lock", "index.lock"):
        (folder / name).write_text("")
    assert mend(str(tree.checkout)).action == "put_back"
    assert sorted(path.name for path in folder.rglob("*.lock")) == ["nedura-update-mend.lock"]

    before = folder / "refs/heads/main.lock"
    before.write_text("")
    os.utime(before, (1, 1))
    write_marker(str(folder), marker)
    mend(str(tree.checkout))
    assert before.exists()  # older than the move: somebody else's
