"""No kill makes anybody forget parked edits: the next update brings them back, or names them until their owner has seen to them."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import attrs
import pytest

from nedura.update.commit.checkout import move_checkout
from nedura.update.commit.waiting import OWED, bring_back, read_waiting, remember, remind
from nedura.update.events import Committed, StepDone
from nedura.update.source.source_git import SourceGit
from nedura.update.source.torn import is_torn, mend
from tests.integration.checkout.trees import CHANGE, FILES, Tree, ahead, make_tree, run_move

ROOT = Path(__file__).parents[3]
CHILD = """
import asyncio, sys
from pathlib import Path
import attrs
from nedura.update.source.source_git import SourceGit
from tests.integration.checkout.trees import Tree, run_move
program, origin, checkout, target = sys.argv[1:]
tree = Tree(Path(origin), Path(checkout))
job = tree.job(target)
job = attrs.evolve(job, git=SourceGit(program, job.git.checkout, job.git.git_dir))
print(asyncio.run(run_move(job)))
"""
KILLS = {
    "the stash entry stands": "*'stash store'*",
    "the edits leave": "*'read-tree --reset HEAD'*",
    "they have left, nothing else has begun": "*'ls-tree -z --full-tree'*",
    "the files move": "*'read-tree -m -u'*",
    "HEAD has moved": "*'update-ref -m nedura update'*",
    "they come back": "*'merge-tree'*",
}


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return make_tree(tmp_path, {**FILES, "kept.txt": "kept\n"})


def killed(tree: Tree, folder: Path, target: str, pattern: str) -> None:
    """A move whose process is killed as soon as git has done a certain command."""
    fake, real = folder / "bin/git", tree.runner().program
    fake.parent.mkdir()
    fake.write_text(
        f'#!/bin/sh\n{real} "$@"\nrc=$?\ncase "$*" in {pattern.replace(chr(39), chr(34))}) kill -9 $PPID;; esac\nexit $rc\n'
    )
    fake.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(fake), str(tree.origin), str(tree.checkout), target],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == -9, (done.returncode, done.stdout[-500:], done.stderr[-800:])


async def next_update(tree: Tree, target: str) -> list[str]:
    """What an update does about parked edits, whether it finds something new or not."""
    if tree.head == target:
        return [event.copy_terminal for event in bring_back(tree.runner())]
    result = await run_move(tree.job(target))
    assert result.error is None, result.error
    return [event.copy_terminal for event in result.events]


@pytest.mark.parametrize("when", KILLS)
async def test_a_killed_update_loses_sight_of_no_edit(tree: Tree, tmp_path: Path, when: str) -> None:
    (tree.checkout / "kept.txt").write_text("mine\n")
    (tree.checkout / "added.txt").write_text("mine\n")
    tree.git("add", "added.txt")
    before, target = tree.status, ahead(tree)
    killed(tree, tmp_path, target, KILLS[when])
    if is_torn(str(tree.checkout)):
        mend(str(tree.checkout))
    await next_update(tree, target)
    assert tree.head == target
    assert tree.status == before
    assert (tree.checkout / "kept.txt").read_text() == "mine\n"
    assert (tree.checkout / "added.txt").read_text() == "mine\n"
    assert remind(tree.runner()) is None
    assert len(tree.stashes) <= (
        when == "the stash entry stands"
    )  # nothing had left the tree: one too many loses nothing


async def test_what_was_written_since_is_not_written_over(tree: Tree, tmp_path: Path) -> None:
    place = tree.checkout / "kept.txt"
    place.write_text("mine\n")
    target = ahead(tree)
    killed(tree, tmp_path, target, KILLS["they have left, nothing else has begun"])
    assert place.read_text() == "kept\n"
    place.write_text("written since\n")
    events = bring_back(tree.runner())
    assert [event.ok for event in events if isinstance(event, StepDone)] == [False]
    assert place.read_text() == "written since\n"
    (entry,) = tree.stashes
    for _ in range(2):
        action = remind(tree.runner())
        assert action is not None
        assert entry in action.reason
    assert bring_back(tree.runner()) == []  # tried once


async def test_a_run_that_moves_names_older_edits_too(tree: Tree) -> None:
    for name, value in (("README", "one"), ("toy/value.py", "VALUE = 5")):
        (tree.checkout / name).write_text(f"{value}\n")
        tree.commit({name: f"{value}?\n"} if name == "README" else {name: "VALUE = 6\n"})
        result = await run_move(tree.job(tree.fetch()))
        assert len(result.actions) == 1
    older, newer = reversed(tree.stashes)
    tree.commit(CHANGE)
    result = await run_move(tree.job(tree.fetch()))
    (action,) = result.actions
    assert action.reason.index(newer) < action.reason.index(older)
    tree.git("stash", "drop", "stash@{0}")
    left = remind(tree.runner())
    assert left is not None
    assert newer not in left.reason
    assert older in left.reason
    tree.git("stash", "drop")
    tree.commit({"more": "more\n"})
    result = await run_move(tree.job(tree.fetch()))
    assert result.actions == []
    assert not Path(tree.runner().git_dir, OWED).exists()


async def test_edits_left_parked_on_purpose_are_not_called_owed(tree: Tree) -> None:
    (tree.checkout / "kept.txt").write_text("mine\n")
    result = await run_move(tree.job(ahead(tree), keep_stash=True))
    assert result.actions == []
    assert len(tree.stashes) == 1
    assert remind(tree.runner()) is None


def test_a_record_of_an_older_version_is_understood(tree: Tree) -> None:
    (tree.checkout / "kept.txt").write_text("mine\n")
    tree.git("stash", "push", "-q", "-m", "nedura-update-autostash-20270115-080000")
    (entry,) = tree.stashes
    place = Path(tree.runner().git_dir, OWED)
    place.write_text(json.dumps({"schema": 1, "commit": entry, "reason": "it conflicts"}))
    (one,) = read_waiting(tree.runner())
    assert (one.commit, one.reason, one.cut_off) == (entry, "it conflicts", False)
    remember(tree.runner(), entry, "still")
    assert json.loads(place.read_text())["commit"] == entry


@pytest.mark.parametrize("ending", ["cancelled in the move", "closed after it"])
async def test_a_run_that_is_stopped_behind_its_move_gives_edits_back(
    tree: Tree, tmp_path: Path, ending: str
) -> None:
    (tree.checkout / "kept.txt").write_text("mine\n")
    before, target = tree.status, ahead(tree)
    fake, moving = tmp_path / "bin/git", tmp_path / "moving"
    fake.parent.mkdir()
    fake.write_text(
        f'#!/bin/sh\ncase "$*" in *"read-tree -m -u"*) : > {moving}; sleep 0.3;; esac\nexec {tree.runner().program} "$@"\n'
    )
    fake.chmod(0o755)
    job = tree.job(target)
    job = attrs.evolve(job, git=SourceGit(str(fake), job.git.checkout, job.git.git_dir))
    events = move_checkout(job)
    if ending == "closed after it":
        assert isinstance(await anext(events), Committed)
        await events.aclose()
    else:
        task = asyncio.ensure_future(anext(events))
        while not moving.exists():
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await events.aclose()
    assert tree.head == target
    assert tree.status == before
    assert (tree.checkout / "kept.txt").read_text() == "mine\n"
    assert tree.stashes == []
