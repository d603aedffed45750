"""An update with nothing new leaves a parked branch that is fully merged for the one it follows (facts/update.md 5.4)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from nedura.testing.installs import git
from tests.integration.checkout.test_commit_parked_branch import Parked, parked

__all__ = ["parked"]


def reflog(here: Parked) -> str:
    return git(here.source, "reflog", "-1", "--format=%gs", "HEAD")


async def test_it_goes_to_the_followed_branch(parked: Parked) -> None:
    await parked.update()
    git(parked.source, "checkout", "-q", "-b", "work")
    (parked.source / "added.txt").write_text("mine\n")
    run = await parked.update()
    assert not run.changed
    assert parked.head == (parked.origin.head, "refs/heads/main")
    assert git(parked.source, "status", "--porcelain") == "?? added.txt"
    assert "git checkout work" in parked.text
    assert reflog(parked).startswith("nedura update")
    assert git(parked.source, "rev-parse", "work") == parked.origin.head


async def test_a_followed_branch_that_is_behind_or_gone_comes_along(parked: Parked) -> None:
    await parked.update()
    git(parked.source, "checkout", "-q", "-b", "work")
    target = parked.origin.commit({"news.txt": "1\n"})
    git(parked.source, "pull", "-q", "--ff-only", "origin", "main")
    await parked.update()
    assert parked.head == (target, "refs/heads/main")
    git(parked.source, "checkout", "-q", "work")
    git(parked.source, "branch", "-D", "main")
    await parked.update()
    assert parked.head == (target, "refs/heads/main")


def edited(here: Parked) -> None:
    (here.source / "pyproject.toml").write_text("# mine\n")


def turned_off(here: Parked) -> None:
    (here.home / "config.yaml").write_text("updates:\n  auto_switch_parked_branch: false\n")


def own_commit(here: Parked) -> None:
    here.own()


def own_commit_on_main(here: Parked) -> None:
    git(here.source, "checkout", "-q", "main")
    here.own()
    git(here.source, "checkout", "-q", "work")


def elsewhere(here: Parked) -> None:
    git(here.source, "worktree", "add", "-q", str(here.home / "other"), "main")


def unfinished(here: Parked) -> None:
    (here.source / ".git/MERGE_HEAD").write_text(here.origin.head + "\n")


@pytest.mark.parametrize("why", [edited, turned_off, own_commit, own_commit_on_main, elsewhere, unfinished])
async def test_it_stays_where_a_switch_could_cost_something(
    parked: Parked, why: Callable[[Parked], None]
) -> None:
    await parked.update()
    git(parked.source, "checkout", "-q", "-b", "work")
    why(parked)
    before, main = parked.head, git(parked.source, "rev-parse", "main")
    run = await parked.update()
    assert not run.changed
    assert (parked.head, git(parked.source, "rev-parse", "main")) == (before, main)


async def test_a_detached_head_and_a_lock_change_nothing_of_it(parked: Parked) -> None:
    await parked.update()
    git(parked.source, "checkout", "-q", "--detach")
    await parked.update()
    assert parked.head[1] == ""
    git(parked.source, "checkout", "-q", "-b", "work")
    (parked.source / ".git/HEAD.lock").touch()
    run = await parked.update()
    assert not run.changed
    assert parked.head[1] == "refs/heads/work"
    assert "stays on its branch" in parked.text
