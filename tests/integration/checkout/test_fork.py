"""A checkout of a fork: the upstream is followed while the fork has nothing of its own, and gets it back (facts/update.md 5.2)."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import attrs
import pytest

from nedura.clock import SystemClock
from nedura.installs import InstallPaths, install_id_for
from nedura.records import make_folder
from nedura.testing.installs import TOY, TOY_FILES, Origin, git, make_origin
from nedura.update import real
from nedura.update.commit.of_run import commit_checkout
from nedura.update.events import Committed, Prepared
from nedura.update.generation.install import install_checkout
from nedura.update.generation.prepare import prepare
from nedura.update.generation.prepare_checkout import prepare_checkout
from nedura.update.generation.record import read_record
from nedura.update.planning.plan import plan_update
from nedura.update.run import Run
from nedura.wire import Event


@attrs.define
class Fork:
    """An upstream, a bare fork of it, and a clone of the fork."""

    upstream: Origin
    fork: Path
    checkout: Path
    home: Path
    events: list[Event] = attrs.field(factory=list)

    def run(self) -> Run:
        install_id = install_id_for(self.checkout)
        return Run(
            run_id="test", root_home=self.home, home=self.home, clock=SystemClock(),
            started_at=SystemClock().time(), environ=dict(os.environ), layout="checkout",
            product=attrs.evolve(TOY, environment="none"), checkout=self.checkout,
            install=InstallPaths(self.home, install_id),
        )  # fmt: skip

    async def update(self) -> Prepared:
        """Prepare and, where something changed, commit."""
        run = self.run()
        self.events = [event async for event in prepare_checkout(run)]
        prepared = next(event for event in self.events if isinstance(event, Prepared))
        run.candidate, run.changed = prepared.candidate, prepared.changed
        if prepared.changed:
            self.events += [event async for event in commit_checkout(run)]
            assert any(isinstance(event, Committed) for event in self.events)
        return prepared

    def own_commit(self) -> str:
        """A commit that only the fork has."""
        work = self.fork.parent / "own"
        git(self.fork.parent, "clone", "-q", str(self.fork), str(work))
        Origin(work).commit({"toy/own.py": "O = 1\n"}, "own")
        git(work, "push", "-q", "origin", "main")
        return self.tip

    @property
    def head(self) -> str:
        return git(self.checkout, "rev-parse", "HEAD")

    @property
    def tip(self) -> str:
        return git(self.fork, "rev-parse", "refs/heads/main")

    @property
    def text(self) -> str:
        return "\n".join(event.copy_terminal for event in self.events)


@pytest.fixture
def fork(tmp_path: Path) -> Fork:
    upstream = make_origin(tmp_path / "upstream", TOY_FILES)
    bare, checkout = tmp_path / "fork.git", tmp_path / "source"
    git(tmp_path, "clone", "-q", "--bare", str(upstream.folder), str(bare))
    git(tmp_path, "clone", "-q", str(bare), str(checkout))
    git(checkout, "remote", "add", "upstream", str(upstream.folder))
    return Fork(upstream, bare, checkout, make_folder(tmp_path / "home"))


async def test_upstreams_news_are_a_real_update_and_go_to_the_fork(fork: Fork) -> None:
    """The fork itself has nothing new (#73108)."""
    fork.upstream.commit({"toy/value.py": "VALUE = 2\n"}, "two")
    wanted = fork.upstream.commit({"toy/value.py": "VALUE = 3\n"}, "three")
    prepared = await fork.update()
    assert (prepared.changed, prepared.commits) == (True, 2)
    assert (fork.head, fork.tip) == (wanted, wanted)
    assert f"follows a fork, {fork.fork}" in fork.text
    assert str(fork.upstream.folder) in fork.text
    assert git(fork.checkout, "symbolic-ref", "--short", "HEAD") == "main"
    again = await fork.update()
    assert not again.changed
    assert "up to date" in fork.text


async def test_a_fork_with_own_commits_is_followed_alone(fork: Fork) -> None:
    fork.upstream.commit({"toy/value.py": "VALUE = 2\n"})
    own = fork.own_commit()
    prepared = await fork.update()
    assert prepared.changed
    assert (fork.head, fork.tip) == (own, own)
    assert "has own commits" in fork.text


async def test_a_checkout_with_own_commits_does_not_follow_upstream(fork: Fork) -> None:
    before = fork.tip
    mine = Origin(fork.checkout).commit({"toy/mine.py": "M = 1\n"}, "mine")
    fork.upstream.commit({"toy/value.py": "VALUE = 2\n"})
    prepared = await fork.update()
    assert not prepared.changed
    assert (fork.head, fork.tip) == (mine, before)
    assert "has own commits" in fork.text


async def test_a_failed_push_is_only_told(fork: Fork) -> None:
    before = fork.tip
    wanted = fork.upstream.commit({"toy/value.py": "VALUE = 2\n"})
    hook = fork.fork / "hooks/pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    prepared = await fork.update()
    assert prepared.changed
    assert (fork.head, fork.tip) == (wanted, before)
    assert "were not pushed" in fork.text
    hook.unlink()
    third = fork.upstream.commit({"toy/value.py": "VALUE = 3\n"})
    await fork.update()
    assert (fork.head, fork.tip) == (third, third)


async def test_another_branch_does_not_follow_upstream(fork: Fork) -> None:
    git(fork.checkout, "checkout", "-q", "-b", "work")
    git(fork.checkout, "push", "-q", "-u", "origin", "work")
    before = fork.head
    fork.upstream.commit({"toy/value.py": "VALUE = 2\n"})
    assert not (await fork.update()).changed
    assert (fork.head, fork.tip) == (before, before)
    assert "follows a fork" in fork.text


async def test_an_upstream_that_is_gone_is_only_told(fork: Fork) -> None:
    git(fork.checkout, "remote", "set-url", "upstream", str(fork.home / "nowhere"))
    assert not (await fork.update()).changed
    assert "was not looked at" in fork.text


async def test_the_upstream_is_pinned_when_it_is_first_seen(fork: Fork, tmp_path: Path) -> None:
    await fork.update()
    assert read_record(InstallPaths(fork.home, install_id_for(fork.checkout))).upstream_url == str(
        fork.upstream.folder
    )
    other = tmp_path / "other"
    git(tmp_path, "clone", "-q", str(fork.upstream.folder), str(other))
    Origin(other).commit({"toy/value.py": "VALUE = 666\n"})
    git(fork.checkout, "remote", "set-url", "upstream", str(other))
    before = fork.head
    assert not (await fork.update()).changed
    assert (fork.head, fork.tip) == (before, before)
    assert "It is not followed" in fork.text


async def test_no_upstream_is_no_fork(fork: Fork) -> None:
    for url in ("", str(fork.fork), "ext::sh -c true"):
        git(fork.checkout, "remote", "remove", "upstream", check=False)
        if url:
            git(fork.checkout, "remote", "add", "upstream", url)
        assert not (await fork.update()).changed
        assert "fork" not in fork.text.replace(str(fork.fork), "")


async def test_the_plan_of_a_sealed_install_names_the_fork(fork: Fork) -> None:
    install_checkout(fork.checkout, fork.home, product=fork.run().product, python=sys.executable)
    plan = await plan_update(
        home=fork.home, product=fork.run().product, environ={**os.environ, "NEDURA_HOME": str(fork.home)}
    )
    assert (plan.remote, plan.fork_of) == (str(fork.fork), str(fork.upstream.folder))
    assert f"That is a fork of {fork.upstream.folder}" in plan.copy_terminal


async def update_sealed(fork: Fork) -> Prepared:
    """Prepare a sealed install and, where something changed, commit."""
    run = attrs.evolve(fork.run(), layout="sealed")
    fork.events = [event async for event in prepare(run)]
    prepared = next(event for event in fork.events if isinstance(event, Prepared))
    run.candidate, run.changed = prepared.candidate, prepared.changed
    if prepared.changed:
        fork.events += [event async for event in real.commit(run)]
        assert any(isinstance(event, Committed) for event in fork.events)
    return prepared


@pytest.fixture
def sealed_fork(fork: Fork) -> Fork:
    install_checkout(fork.checkout, fork.home, product=fork.run().product, python=sys.executable)
    return fork


async def test_a_sealed_install_of_a_fork_follows_its_upstream_and_gives_it_back(sealed_fork: Fork) -> None:
    fork = sealed_fork
    wanted = fork.upstream.commit({"toy/value.py": "VALUE = 3\n"}, "three")
    prepared = await update_sealed(fork)
    assert (prepared.changed, prepared.commits, prepared.candidate.target) == (True, 1, wanted)
    assert fork.tip == wanted
    assert f"follows a fork, {fork.fork}" in fork.text
    assert not (await update_sealed(fork)).changed
    assert read_record(fork.run().install or pytest.fail("no install")).upstream_url == str(
        fork.upstream.folder
    )


async def test_a_sealed_install_stays_with_a_fork_that_has_own_commits(sealed_fork: Fork) -> None:
    fork = sealed_fork
    fork.upstream.commit({"toy/value.py": "VALUE = 2\n"})
    own = fork.own_commit()
    prepared = await update_sealed(fork)
    assert (prepared.candidate.target, fork.tip) == (own, own)
    assert "has own commits" in fork.text


async def test_own_commits_in_the_source_keep_a_sealed_install_with_its_fork(sealed_fork: Fork) -> None:
    """They are carried on top of the fork's tip; the upstream is not mixed in beneath them."""
    fork = sealed_fork
    before = fork.tip
    Origin(fork.checkout).commit({"toy/mine.py": "M = 1\n"}, "mine")
    fork.upstream.commit({"toy/value.py": "VALUE = 2\n"})
    prepared = await update_sealed(fork)
    assert fork.tip == before
    assert "has own commits" in fork.text
    assert (prepared.candidate.tree / "toy/value.py").read_text() == TOY_FILES["toy/value.py"]


async def test_a_sealed_install_does_not_follow_an_upstream_that_was_changed(
    sealed_fork: Fork, tmp_path: Path
) -> None:
    fork = sealed_fork
    await update_sealed(fork)
    other = make_origin(tmp_path / "other", TOY_FILES)
    git(fork.checkout, "remote", "set-url", "upstream", str(other.folder))
    fork.upstream.commit({"toy/value.py": "VALUE = 2\n"})
    assert not (await update_sealed(fork)).changed
    assert "It is not followed" in fork.text
