"""A checkout on a branch of its owner's: what an update follows, what it calls a rewind, and what it says of it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import attrs
import pytest

from nedura.clock import SystemClock
from nedura.errors import RefusedError, UpdateError
from nedura.installs import InstallPaths, install_id_for
from nedura.records import make_folder
from nedura.testing.installs import TOY, TOY_FILES, Origin, git, make_origin
from nedura.update import UpdateOptions, real
from nedura.update.commit_point import Armed, debt_of
from nedura.update.events import Committed, Prepared
from nedura.update.generation.install import install_checkout
from nedura.update.generation.record import read_record
from nedura.update.generation.rollback import branch_for
from nedura.update.run import Run
from nedura.update.source.check import check_for_update
from nedura.update.source.owner_checkout import read_source
from nedura.wire import Event
from tests.integration.checkout.trees import ahead, make_tree, run_move

PRODUCT = attrs.evolve(TOY, environment="none")


@attrs.define
class Parked:
    """An origin and a clone that runs as it is."""

    origin: Origin
    source: Path
    home: Path
    events: list[Event] = attrs.field(factory=list)

    @property
    def paths(self) -> InstallPaths:
        return InstallPaths(self.home, install_id_for(self.source))

    def own(self, name: str = "own.txt", text: str = "own\n") -> str:
        """A commit of the owner's on the branch that is checked out."""
        (self.source / name).write_text(text)
        git(self.source, "add", "-A")
        git(self.source, "commit", "-q", "-m", "own")
        return git(self.source, "rev-parse", "HEAD")

    def run(self, **options: object) -> Run:
        """An update that begins."""
        return Run(
            run_id="test", root_home=self.home, home=self.home, clock=SystemClock(), started_at=SystemClock().time(),
            environ=dict(os.environ), layout="checkout", product=PRODUCT, checkout=self.source, install=self.paths,
            options=UpdateOptions(**options),  # type: ignore[arg-type]
        )  # fmt: skip

    async def update(self, **options: object) -> Run:
        """Prepare and commit, as an update does."""
        run = self.run(**options)
        self.events = [event async for event in real.prepare(run)]
        prepared = next(event for event in self.events if isinstance(event, Prepared))
        run.candidate, run.changed = prepared.candidate, prepared.changed
        if prepared.changed:
            self.events += [event async for event in real.commit(run)]
        return run

    @property
    def text(self) -> str:
        return "\n".join(event.copy_terminal for event in self.events)

    @property
    def head(self) -> tuple[str, str]:
        return git(self.source, "rev-parse", "HEAD"), git(
            self.source, "symbolic-ref", "-q", "HEAD", check=False
        )


@pytest.fixture
def parked(tmp_path: Path) -> Parked:
    origin = make_origin(tmp_path / "origin", TOY_FILES)
    return Parked(origin, origin.clone(tmp_path / "source"), make_folder(tmp_path / "home"))


async def test_the_first_update_on_a_local_branch_follows_the_remotes_default(parked: Parked) -> None:
    git(parked.source, "checkout", "-q", "-b", "work")
    target = parked.origin.commit({"news.txt": "1\n"})
    await parked.update()
    assert parked.head == (target, "refs/heads/main")
    assert read_record(parked.paths).branch == "main"


async def test_a_detached_first_update_follows_a_default_of_another_name(tmp_path: Path) -> None:
    origin = make_origin(tmp_path / "origin", TOY_FILES)
    git(origin.folder, "branch", "-m", "trunk")
    here = Parked(origin, origin.clone(tmp_path / "source"), make_folder(tmp_path / "home"))
    git(here.source, "checkout", "-q", "--detach")
    target = origin.commit({"news.txt": "1\n"})
    await here.update()
    assert here.head == (target, "refs/heads/trunk")


async def test_own_commits_with_nothing_new_are_up_to_date(parked: Parked) -> None:
    await parked.update()
    git(parked.source, "checkout", "-q", "-b", "work")
    own, tip = parked.own(), parked.origin.head
    run = await parked.update()
    assert not run.changed
    assert parked.head == (own, "refs/heads/work")
    assert tip[:12] in parked.text  # what main is at the remote, not the owner's commit
    assert own[:12] not in parked.text


async def test_news_beside_own_commits_are_no_rewritten_history(parked: Parked) -> None:
    await parked.update()
    git(parked.source, "checkout", "-q", "-b", "work")
    parked.own()
    target = parked.origin.commit({"news.txt": "1\n"})
    await parked.update()
    assert parked.head == (target, "refs/heads/main")
    assert "rewritten" not in parked.text
    assert "git checkout work" in parked.text


async def test_a_merge_into_the_branch_is_what_runs_and_is_owed_for(parked: Parked) -> None:
    await parked.update()
    (parked.home / "config.yaml").write_text("updates:\n  parked_branch_strategy: update_in_place\n")
    git(parked.source, "checkout", "-q", "-b", "work")
    parked.own()
    target = parked.origin.commit({"news.txt": "1\n"})
    run = await parked.update()
    commit, branch = parked.head
    assert branch == "refs/heads/work"
    assert git(parked.source, "rev-parse", "HEAD^2") == target
    assert run.candidate is not None
    assert (run.candidate.target, run.candidate.identity.code_sha) == (commit, commit)
    (committed,) = [event for event in parked.events if isinstance(event, Committed)]
    assert (committed.now.code_sha, committed.branch) == (commit, "work")
    record = debt_of(run).read()
    assert record is not None
    assert record.expected.code_sha == commit
    assert Armed(marker=None).arrived(run), "a Ctrl-C at this moment is one behind the commit point"


async def test_a_branch_asked_for_that_is_older_stays_a_downgrade(parked: Parked) -> None:
    git(parked.origin.folder, "branch", "old")
    parked.origin.commit({"news.txt": "1\n"})
    git(parked.source, "pull", "-q", "--ff-only")
    git(parked.source, "fetch", "-q", "origin")
    with pytest.raises(UpdateError, match="older"):
        await parked.update(branch="old")


async def test_a_rewind_of_the_remote_stays_a_downgrade(parked: Parked) -> None:
    parked.origin.commit({"news.txt": "1\n"})
    git(parked.source, "pull", "-q", "--ff-only")
    git(parked.source, "checkout", "-q", "-b", "work")
    parked.own()
    git(parked.origin.folder, "reset", "-q", "--hard", "HEAD~1")
    with pytest.raises(UpdateError, match="older"):
        await parked.update()


async def test_a_check_counts_own_commits_on_a_local_branch(parked: Parked) -> None:
    await parked.update()
    git(parked.source, "checkout", "-q", "-b", "work")
    parked.own()
    result = check_for_update(parked.home, PRODUCT, dict(os.environ), anchor=parked.source / "toy/main.py")
    assert (result.state, result.ahead, result.name) == ("current", 1, "main")


def test_a_sealed_install_of_a_local_branch_follows_the_remotes_default(parked: Parked) -> None:
    git(parked.source, "checkout", "-q", "-b", "work")
    install_checkout(parked.source, parked.home, product=PRODUCT, python=sys.executable)
    assert read_record(parked.paths).branch == "main"


async def test_a_way_back_is_not_called_own_commits(tmp_path: Path) -> None:
    tree = make_tree(tmp_path)
    old = tree.head
    new = ahead(tree)
    await run_move(tree.job(new))
    result = await run_move(tree.job(old))
    assert tree.head == old
    assert "lacks" not in result.text
    ref = result.step("rescue_ref").detail
    assert "-pre-update-main-" in ref
    assert tree.git("rev-parse", ref) == new


async def test_a_way_back_from_a_way_back_takes_the_branch_along(parked: Parked) -> None:
    await parked.update()
    old = parked.head[0]
    new = parked.origin.commit({"news.txt": "1\n"})
    run = await parked.update()
    assert branch_for(run, old) == "main"
    git(parked.source, "reset", "-q", "--hard", old)
    assert branch_for(run, new) == "main"
    parked.own()
    assert branch_for(run, new) == ""


@pytest.mark.skipif(os.geteuid() != 0, reason="giving a folder to another user needs root")
def test_objects_of_another_user_are_named_with_the_command(parked: Parked) -> None:
    objects = parked.source / ".git/objects"
    os.chown(objects, 12345, 12345)
    with pytest.raises(RefusedError) as caught:
        read_source(parked.source, "/usr/bin/git")
    assert caught.value.advice == f"If it is yours: sudo chown -R {os.geteuid()}:{os.getegid()} {objects}"
