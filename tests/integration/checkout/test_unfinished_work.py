"""A git operation that somebody began in the checkout and did not finish: the update, its plan and its check say so, and nothing moves."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest

from nedura.clock import SystemClock
from nedura.errors import UpdateError
from nedura.installs import InstallPaths, install_id_for
from nedura.records import make_folder
from nedura.testing.installs import TOY, TOY_FILES, Origin, git, make_origin, make_site
from nedura.update.events import Notice, Prepared
from nedura.update.generation.aftermath import follow_source
from nedura.update.generation.prepare_checkout import prepare_checkout
from nedura.update.planning.plan import plan_update
from nedura.update.run import Run
from nedura.update.source.check import check_for_update
from nedura.wire import Event
from tests.kits.sealed import Stages

ANCHOR = "toy/value.py"


@attrs.define
class Desk:
    """An origin, its clone with two commits of its own on a side branch, and a home."""

    origin: Origin
    checkout: Path
    home: Path

    def git(self, *args: str, check: bool = True) -> str:
        return git(self.checkout, *args, check=check, GIT_EDITOR="true")

    async def prepare(self) -> list[Event]:
        run = Run(
            run_id="test", root_home=self.home, home=self.home, clock=SystemClock(),
            started_at=SystemClock().time(), environ=dict(os.environ), layout="checkout",
            product=attrs.evolve(TOY, environment="none"), checkout=self.checkout,
            install=InstallPaths(self.home, install_id_for(self.checkout)),
        )  # fmt: skip
        return [event async for event in prepare_checkout(run)]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    origin = make_origin(tmp_path / "origin", TOY_FILES)
    checkout = origin.clone(tmp_path / "source")
    made = Desk(origin, checkout, make_folder(tmp_path / "home"))
    made.git("checkout", "-q", "-b", "mine")
    for number in (1, 2):
        Origin(checkout).commit({"toy/value.py": f"VALUE = 'mine {number}'\n"}, f"mine {number}")
    made.git("checkout", "-q", "main")
    origin.commit({"toy/value.py": "VALUE = 2\n"}, "two")
    made.git("pull", "-q")
    return made


def rebase(desk: Desk) -> None:
    desk.git("checkout", "-q", "mine")
    desk.git("rebase", "-q", "main", check=False)


def rebase_edit(desk: Desk) -> None:
    """Stopped without a conflict, on the remote's tip, with a clean tree."""
    desk.git("checkout", "-q", "mine")
    git(desk.checkout, "rebase", "-q", "-i", "main", check=False, GIT_SEQUENCE_EDITOR="sed -i 1ibreak")


def merge(desk: Desk) -> None:
    desk.git("merge", "-q", "mine", check=False)


def pick(desk: Desk) -> None:
    desk.git("cherry-pick", "mine", check=False)


def picks_between(desk: Desk) -> None:
    """The first of two was skipped by hand: only the list of what is left tells."""
    desk.git("cherry-pick", "mine~1", "mine", check=False)
    desk.git("reset", "-q", "--hard")


def revert(desk: Desk) -> None:
    desk.git("revert", "--no-edit", "HEAD~1", check=False)
    desk.git("revert", "--no-commit", "HEAD", check=False)


def bisect(desk: Desk) -> None:
    desk.git("bisect", "start")


BEGUN: dict[str, tuple[Callable[[Desk], None], str]] = {
    "rebase": (rebase, "A rebase"),
    "rebase stopped clean": (rebase_edit, "A rebase"),
    "merge": (merge, "A merge"),
    "cherry-pick": (pick, "A cherry-pick"),
    "cherry-picks between two": (picks_between, "A cherry-pick"),
    "revert": (revert, "A revert"),
    "bisect": (bisect, "A bisect"),
}


@pytest.mark.parametrize("name", BEGUN)
async def test_at_the_remotes_tip_it_is_told(desk: Desk, name: str) -> None:
    """It used to end with nothing but "Already up to date"."""
    begin, words = BEGUN[name]
    begin(desk)
    assert desk.git("rev-parse", "HEAD") == desk.origin.head, "the case that was silent"
    status = desk.git("status", "--porcelain")
    wanted = f" is not finished in {desk.checkout}: finish it or abort it; until then no update moves it."
    events = await desk.prepare()
    (told,) = [e for e in events if isinstance(e, Notice) and e.warning and wanted in e.text]
    assert told.text.startswith(words)
    (prepared,) = [event for event in events if isinstance(event, Prepared)]
    assert not prepared.changed
    product = attrs.evolve(TOY, environment="none")
    anchor = desk.checkout / ANCHOR
    plan = await plan_update(home=desk.home, product=product, anchor=anchor)
    assert f"⚠ {words}" in plan.copy_terminal
    assert wanted in plan.copy_terminal
    check = check_for_update(desk.home, product, dict(os.environ), anchor=anchor)
    assert check.copy_terminal.startswith("Up to date with ")
    assert check.copy_terminal.endswith(f"{told.text}")
    assert desk.git("status", "--porcelain") == status


@pytest.mark.parametrize("name", ["rebase", "bisect"])
async def test_behind_it_it_stops_before_anything_is_built(desk: Desk, name: str) -> None:
    begin, words = BEGUN[name]
    begin(desk)
    desk.origin.commit({"toy/value.py": "VALUE = 3\n"}, "three")
    with pytest.raises(UpdateError, match=f"{words} is not finished in ") as stopped:
        await desk.prepare()
    assert stopped.value.advice == "Finish it or abort it, then try again."
    assert not list((desk.home / "installs").glob("*/generations/*"))


async def test_a_checkout_with_nothing_begun_hears_nothing(desk: Desk) -> None:
    assert not [event for event in await desk.prepare() if isinstance(event, Notice) and event.warning]
    plan = await plan_update(home=desk.home, product=TOY, anchor=desk.checkout / ANCHOR)
    assert "not finished" not in plan.copy_terminal


async def test_the_source_of_a_sealed_install_is_left_in_the_middle_of_its_merge(tmp_path: Path) -> None:
    """A move below it would make the commit that ends it say something else than what was merged."""
    site = make_site(tmp_path)
    git(site.checkout, "checkout", "-q", "-b", "mine")
    Origin(site.checkout).commit({"toy/mine.py": "M = 1\n"}, "mine")
    git(site.checkout, "checkout", "-q", "main")
    Origin(site.checkout).commit({}, "own")
    git(site.checkout, "merge", "-q", "--no-ff", "--no-commit", "mine")
    git(site.checkout, "update-ref", "refs/heads/main", "HEAD~1")
    head = git(site.checkout, "rev-parse", "HEAD")
    site.origin.commit({"toy/value.py": "VALUE = 2\n"}, "two")
    stages = Stages(site)
    await stages.update()
    assert follow_source(site.paths, dict(os.environ)) == "left: a merge is not finished there"
    assert git(site.checkout, "rev-parse", "HEAD") == head
