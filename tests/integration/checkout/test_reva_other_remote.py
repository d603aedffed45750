"""A branch of a colleague's fork is checked out: what is followed stays the remote of the install, for an update and for a check."""

from __future__ import annotations

import os
from pathlib import Path

import attrs
import pytest

from nedura.records import make_folder
from nedura.testing.installs import TOY, TOY_FILES, git, make_origin, make_site
from nedura.update.source.check import check_for_update
from tests.integration.checkout.test_commit_parked_branch import Parked
from tests.kits.sealed import Stages

PRODUCT = attrs.evolve(TOY, environment="none")


def fork_in(folder: Path, origin: Path, source: Path) -> None:
    """A fork whose main has a commit of its own, and its branch `pr` in the checkout."""
    fork = folder / "fork"
    git(folder, "clone", "-q", str(origin), str(fork))
    for branch in ("main", "pr"):
        git(fork, "checkout", "-q", "-B", branch, "origin/main")
        (fork / f"{branch}.txt").write_text("x\n")
        git(fork, "add", "-A")
        git(fork, "commit", "-q", "-m", branch)
    git(source, "remote", "add", "fork", str(fork))
    git(source, "fetch", "-q", "fork")
    git(source, "checkout", "-q", "-b", "pr", "--track", "fork/pr")


@pytest.fixture
async def parked(tmp_path: Path) -> Parked:
    origin = make_origin(tmp_path / "origin", TOY_FILES)
    here = Parked(origin, origin.clone(tmp_path / "source"), make_folder(tmp_path / "home"))
    await here.update()
    fork_in(tmp_path, origin.folder, here.source)
    return here


def check(parked: Parked) -> str:
    anchor = parked.source / "toy/main.py"
    return check_for_update(parked.home, PRODUCT, dict(os.environ), anchor=anchor).copy_terminal


async def test_with_nothing_new_it_is_up_to_date(parked: Parked) -> None:
    """It was refused as a downgrade, while the check called it behind the fork."""
    run = await parked.update()
    assert not run.changed
    assert "remote is" not in parked.text
    assert check(parked) == f"Up to date with {parked.origin.folder} main (what runs is 1 commit ahead)."


async def test_news_are_news_of_the_installs_remote(parked: Parked) -> None:
    target = parked.origin.commit({"news.txt": "1\n"})
    assert check(parked).startswith(f"1 commit behind {parked.origin.folder} main ({target[:8]}).")
    await parked.update()
    assert parked.head == (target, "refs/heads/main")
    assert "rewritten" not in parked.text


async def test_a_sealed_install_does_not_say_that_its_remote_moved(tmp_path: Path) -> None:
    site = make_site(tmp_path)
    fork_in(tmp_path, site.origin.folder, site.checkout)
    site.origin.commit({"news.txt": "1\n"})
    stages = Stages(site)
    await stages.prepare()
    assert [event.text for event in stages.told("notice") if "remote" in event.text] == []
    git(site.checkout, "remote", "set-url", "origin", str(tmp_path / "fork"))
    await stages.prepare()
    assert any("remote is" in event.text for event in stages.told("notice"))
