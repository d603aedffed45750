"""A merge into a parked branch (`update_in_place`) is built and validated aside as any candidate is, before the tree moves."""

from __future__ import annotations

import pytest

from nedura.errors import UpdateError
from nedura.testing.installs import git
from nedura.update import real
from nedura.update.events import Prepared
from nedura.update.run import Run
from nedura.update.validation.validate import validate
from tests.integration.checkout.test_commit_parked_branch import Parked, parked

__all__ = ["parked"]


async def on_branch(here: Parked) -> None:
    await here.update()
    (here.home / "config.yaml").write_text("updates:\n  parked_branch_strategy: update_in_place\n")
    git(here.source, "checkout", "-q", "-b", "work")


async def prepared(here: Parked) -> Run:
    """An update up to the move."""
    run = here.run()
    here.events = [event async for event in real.prepare(run)]
    (done,) = [event for event in here.events if isinstance(event, Prepared)]
    run.candidate, run.changed = done.candidate, done.changed
    return run


async def test_the_merge_is_what_is_built_aside(parked: Parked) -> None:
    await on_branch(parked)
    parked.own()
    target = parked.origin.commit({"news.txt": "1\n"})
    run = await prepared(parked)
    assert run.candidate is not None
    assert run.candidate.target == target
    assert {"own.txt", "news.txt"} <= {path.name for path in run.candidate.tree.iterdir()}
    parked.events += [event async for event in real.commit(run)]
    assert git(parked.source, "rev-parse", "HEAD^{tree}") == git(
        parked.source, "merge-tree", "--write-tree", "HEAD^1", "HEAD^2"
    )
    assert "not the one that was validated" not in parked.text


async def test_a_merge_that_cannot_start_is_found_before_the_move(parked: Parked) -> None:
    """Each side is whole, only both together are not: the owner's module imports what the new version took away."""
    parked.origin.commit({"toy/helper.py": "HELP = 1\n"})
    await on_branch(parked)
    main = (parked.source / "toy/main.py").read_text()
    (parked.source / "toy/extra.py").write_text("from toy.helper import HELP\nassert HELP\n")
    own = parked.own("toy/main.py", f"import toy.extra\n{main}")
    git(parked.origin.folder, "rm", "-q", "toy/helper.py")
    target = parked.origin.commit({"news.txt": "1\n"})
    run = await prepared(parked)
    with pytest.raises(UpdateError, match=r"toy\.helper"):
        [event async for event in validate(run)]
    assert parked.head == (own, "refs/heads/work")
    git(parked.source, "checkout", "-q", "main")
    run = await prepared(parked)  # the new version by itself is whole
    [event async for event in validate(run)]
    parked.events += [event async for event in real.commit(run)]
    assert parked.head == (target, "refs/heads/main")


async def test_a_conflict_is_told_before_anything_is_built(parked: Parked) -> None:
    await on_branch(parked)
    own = parked.own("news.txt", "mine\n")
    parked.origin.commit({"news.txt": "theirs\n"})
    before = list(parked.paths.generations.iterdir())
    with pytest.raises(UpdateError, match="without conflicts"):
        await prepared(parked)
    assert list(parked.paths.generations.iterdir()) == before
    assert parked.head == (own, "refs/heads/work")


async def test_a_commit_that_came_meanwhile_is_named(parked: Parked) -> None:
    await on_branch(parked)
    parked.own()
    parked.origin.commit({"news.txt": "1\n"})
    run = await prepared(parked)
    parked.own("late.txt")
    parked.events += [event async for event in real.commit(run)]
    assert (parked.source / "late.txt").exists()
    assert "not the one that was validated" in parked.text


async def test_a_branch_that_was_left_meanwhile_stops_the_move(parked: Parked) -> None:
    await on_branch(parked)
    parked.own()
    parked.origin.commit({"news.txt": "1\n"})
    run = await prepared(parked)
    git(parked.source, "checkout", "-q", "main")
    before = parked.head
    with pytest.raises(UpdateError, match="was changed while"):
        [event async for event in real.commit(run)]
    assert parked.head == before


async def test_what_only_a_generation_may_not_hold_stops_no_merge(parked: Parked) -> None:
    """The owner's branch may link out of the tree: it runs in the checkout, where that works. Then the start alone is checked."""
    await on_branch(parked)
    (parked.source / "data").symlink_to("/usr/share")
    parked.own()
    target = parked.origin.commit({"news.txt": "1\n"})
    run = await prepared(parked)
    parked.events += [event async for event in real.commit(run)]
    assert git(parked.source, "rev-parse", "HEAD^2") == target
    assert "not the one that was validated" in parked.text
