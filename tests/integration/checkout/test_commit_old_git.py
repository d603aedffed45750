"""A git before 2.38 cannot merge trees aside: what needs no merge works, the rest is refused before anything moves."""

from __future__ import annotations

import os
from pathlib import Path

import attrs
import pytest

from nedura.clock import SystemClock
from nedura.errors import UpdateError
from nedura.installs import InstallPaths, install_id_for
from nedura.programs import find_program
from nedura.records import make_folder
from nedura.testing.installs import TOY, TOY_FILES, make_origin
from nedura.update import UpdateOptions, real
from nedura.update.commit.checkout import CheckoutJob
from nedura.update.commit.merging import can_merge
from nedura.update.events import Prepared
from nedura.update.planning.plan import plan_update
from nedura.update.run import Run
from nedura.update.source.source_git import SourceGit
from tests.integration.checkout.trees import CHANGE, Tree, ahead, make_tree, run_move, whole


def old_git(tmp_path: Path, real: str) -> str:
    """A git that answers as 2.34 does where that differs for us."""
    fake = tmp_path / "bin/git"
    fake.parent.mkdir()
    fake.write_text(
        '#!/bin/sh\nfor word do case "$word" in\n'
        "merge-tree) echo 'usage: git merge-tree <base-tree> <branch1> <branch2>' >&2; exit 129;;\n"
        f"--version) echo 'git version 2.34.1'; exit 0;;\nesac; done\nexec {real} \"$@\"\n"
    )
    fake.chmod(0o755)
    return str(fake)


@attrs.frozen
class Old:
    """A tree whose git is old."""

    tree: Tree
    program: str

    def job(self, target: str, **changes: object) -> CheckoutJob:
        job = self.tree.job(target, **changes)
        return attrs.evolve(job, git=SourceGit(self.program, job.git.checkout, job.git.git_dir))


@pytest.fixture
def old(tmp_path: Path) -> Old:
    tree = make_tree(tmp_path)
    return Old(tree, old_git(tmp_path, tree.runner().program))


def test_it_is_asked_what_it_can_do(old: Old) -> None:
    assert can_merge(old.tree.runner())
    assert not can_merge(old.job("x").git)


async def test_without_edits_it_moves(old: Old) -> None:
    target = ahead(old.tree)
    result = await run_move(old.job(target))
    assert result.error is None, result.error
    whole(old.tree, target)


async def test_edits_that_it_could_not_bring_back_stop_it_before_they_leave(old: Old) -> None:
    mine = old.tree.checkout / "README"
    mine.write_text("mine\n")
    before, head, target = old.tree.status, old.tree.head, ahead(old.tree)
    result = await run_move(old.job(target))
    assert isinstance(result.error, UpdateError)
    assert "2.38" in result.error.message
    assert "--keep-stash" in result.error.advice
    assert (old.tree.head, old.tree.status, old.tree.stashes) == (head, before, [])
    assert mine.read_text() == "mine\n"


async def test_a_file_in_the_way_needs_no_merge(old: Old) -> None:
    (old.tree.checkout / "new").mkdir()
    (old.tree.checkout / "new/file.txt").write_text(str(CHANGE["new/file.txt"]))  # the very same
    target = ahead(old.tree)
    result = await run_move(old.job(target))
    assert (result.error, result.actions) == (None, [])
    whole(old.tree, target)


@pytest.mark.parametrize("options", [{"keep_stash": True}, {"local_changes": "discard"}])
async def test_edits_that_nobody_brings_back_need_no_merge(old: Old, options: dict[str, object]) -> None:
    (old.tree.checkout / "README").write_text("mine\n")
    target = ahead(old.tree)
    result = await run_move(old.job(target, **options))
    assert result.error is None, result.error
    whole(old.tree, target)
    assert len(old.tree.stashes) == ("keep_stash" in options)


async def test_a_move_that_fails_gives_edits_back_without_a_merge(old: Old) -> None:
    (old.tree.checkout / "README").write_text("mine\n")
    before, head = old.tree.status, old.tree.head
    old.tree.commit({"toy/value.py": "VALUE = (\n"})  # does not compile: the whole update goes back
    result = await run_move(old.job(old.tree.fetch(), keep_stash=True))
    assert isinstance(result.error, UpdateError)
    assert "does not compile" in result.error.message
    assert (old.tree.head, old.tree.status, old.tree.stashes) == (head, before, [])
    assert (old.tree.checkout / "README").read_text() == "mine\n"


async def test_a_merge_into_a_branch_names_the_git_that_can(old: Old) -> None:
    old.tree.git("checkout", "-q", "-b", "work")
    own = old.tree.commit({"own.txt": "own\n"}, where=old.tree.checkout)
    target = ahead(old.tree)
    result = await run_move(old.job(target, strategy="update_in_place"))
    assert isinstance(result.error, UpdateError)
    assert "2.38" in result.error.message
    assert (old.tree.head, old.tree.branch, old.tree.status) == (own, "work", [])


@pytest.mark.parametrize("news", [True, False])
async def test_an_update_says_so_before_it_builds_anything(tmp_path: Path, news: bool) -> None:
    origin = make_origin(tmp_path / "origin", TOY_FILES)
    source, home = origin.clone(tmp_path / "source"), make_folder(tmp_path / "home")
    (source / sorted(TOY_FILES)[-1]).write_text("mine = 1\n")
    if news:
        origin.commit({"news.txt": "1\n"})
    old_git(tmp_path, str(find_program("git")))
    install = InstallPaths(home, install_id_for(source))
    run = Run(
        run_id="test", root_home=home, home=home, clock=SystemClock(), started_at=SystemClock().time(),
        environ={**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}, layout="checkout",
        product=attrs.evolve(TOY, environment="none"), checkout=source,
        install=install, options=UpdateOptions(),
    )  # fmt: skip
    if news:
        with pytest.raises(UpdateError, match=r"Local edits of 1 file .*git 2\.38"):
            [event async for event in real.prepare(run)]
    else:
        assert [event.changed async for event in real.prepare(run) if isinstance(event, Prepared)] == [False]
    assert list(install.generations.iterdir()) == []


@pytest.mark.parametrize("old", [True, False])
async def test_a_plan_tells_it_in_one_line(tmp_path: Path, old: bool) -> None:
    origin = make_origin(tmp_path / "origin", TOY_FILES)
    source, home = origin.clone(tmp_path / "source"), make_folder(tmp_path / "home")
    environ = dict(os.environ)
    if old:
        old_git(tmp_path, str(find_program("git")))
        environ["PATH"] = f"{tmp_path / 'bin'}:{environ['PATH']}"
    plan = await plan_update(
        home=home,
        product=attrs.evolve(TOY, environment="none"),
        environ=environ,
        anchor=source / "toy/main.py",
    )
    assert plan.old_git is old, plan
    assert ("git is older than 2.38" in plan.copy_terminal) is old
