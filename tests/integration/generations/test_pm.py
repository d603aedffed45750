"""Keeping, verifying, repairing and removing generations; channels and checks on real git."""

from __future__ import annotations

import fcntl
import os
import subprocess
import time
from contextlib import aclosing
from pathlib import Path

import pytest

from nedura.clock import SystemClock
from nedura.config import read_config
from nedura.errors import UpdateError
from nedura.installs import InstallPaths
from nedura.locks import FileLock
from nedura.testing.installs import Site, git, make_origin
from nedura.update.generation.collect import collect
from nedura.update.generation.generations import point, read_manifest
from nedura.update.generation.install import install_checkout
from nedura.update.generation.pm import PmCollected, collect_garbage, pm_status
from nedura.update.generation.pm_repair import pm_sync
from nedura.update.notice import check_and_remember, passive_notice
from nedura.update.source.channels import channel_key, set_channel
from nedura.update.source.check import check_for_update
from nedura.update.source.repository import open_repository
from tests.kits.sealed import Stages

LATER = 100_000.0


async def gc(site: Site, grace: float = 0.0) -> PmCollected:
    async with aclosing(collect_garbage(site.paths, SystemClock(), dict(os.environ), grace=grace)) as events:
        (done,) = [event async for event in events]
    return done


async def versions(stages: Stages, *values: int) -> None:
    for value in values:
        stages.site.origin.commit({"toy/value.py": f"VALUE = {value}\n"})
        await stages.update()


async def test_current_previous_leased_and_young_generations_stay(stages: Stages) -> None:
    site = stages.site
    holder = subprocess.Popen(
        [str(site.paths.generations / "000001/venv/bin/python"), "-I", "-c", "input()"], stdin=subprocess.PIPE
    )
    try:
        await versions(stages, 2, 3, 4)
        soon = await gc(site, grace=600)
        assert soon.removed == ()
        assert soon.kept["000002"] == "younger than 10 minutes"
        while not _leased(site.paths.generations / "000001"):
            pass
        done = await gc(site)
        assert done.removed == ("000002",)
        assert done.kept == {"000001": "in use", "000003": "previous", "000004": "current"}
    finally:
        holder.communicate(b"\n", timeout=20)
    assert (await gc(site)).removed == ("000001",)
    assert site.run().stdout.splitlines()[0] == "4"
    refs = git(site.paths.repo, "for-each-ref", "--format=%(refname)", "refs/generations/").splitlines()
    assert refs == ["refs/generations/000003", "refs/generations/000004"]


def _leased(folder: Path) -> bool:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


async def test_a_child_keeps_the_lease_of_a_killed_parent(stages: Stages) -> None:
    site = stages.site
    python = str(site.paths.generations / "000001/venv/bin/python")
    code = "import subprocess, sys; subprocess.Popen([sys.executable, '-I', '-c', 'input()']); print('up', flush=True); input()"
    parent = subprocess.Popen([python, "-I", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert parent.stdout is not None
    assert parent.stdin is not None
    assert parent.stdout.readline() == b"up\n"
    await versions(stages, 2, 3)
    parent.kill()
    parent.wait()
    assert (await gc(site)).kept["000001"] == "in use"
    parent.stdin.close()
    parent.stdout.close()


async def test_the_collector_never_follows_a_link(stages: Stages, tmp_path: Path) -> None:
    await versions(stages, 2, 3)
    precious = tmp_path / "precious"
    (precious / "deep").mkdir(parents=True)
    (precious / "deep" / "file").write_text("keep")
    old = stages.site.paths.generations / "000001"
    old.rename(tmp_path / "away")
    old.symlink_to(precious)
    done = collect(stages.site.paths, open_repository(stages.site.paths, None), LATER + 2e9, grace=0)
    assert "000001" in done.errors
    assert (precious / "deep" / "file").read_text() == "keep"
    assert old.is_symlink()


async def test_a_killed_preparation_is_swept(stages: Stages) -> None:
    paths = stages.site.paths
    torn = paths.generations / "000002"
    (torn / "tree").mkdir(parents=True)
    (torn / "tree/half.py").write_text("x")
    (paths.folder / ".tmp.index.abc").write_text("x")
    (paths.generations / ".trash-000009").mkdir()
    await versions(stages, 2)
    assert sorted(os.listdir(paths.generations)) == ["000001", "000002"]
    assert not [name for name in os.listdir(paths.folder) if name.startswith(".tmp")]
    assert stages.site.run().stdout.splitlines()[0] == "2"


async def test_status_names_what_was_changed(stages: Stages) -> None:
    site = stages.site
    await versions(stages, 2)
    assert pm_status(site.paths, "sealed", verify=True).healthy
    file = site.paths.generations / "000002/tree/toy/value.py"
    file.chmod(0o644)
    file.write_text("VALUE = 13\n")
    found = pm_status(site.paths, "sealed", verify=True)
    assert not found.healthy
    assert "toy/value.py" in found.copy_terminal
    assert [(row.name, row.role) for row in found.generations] == [
        ("000001", "previous"),
        ("000002", "current"),
    ]


async def _sync(site: Site) -> list[str]:
    async with aclosing(
        pm_sync(site.home, site.product, SystemClock(), dict(os.environ), update_id="u1")
    ) as events:
        return [event.kind async for event in events]


async def test_sync_says_in_order_or_repairs_without_the_network(stages: Stages) -> None:
    site = stages.site
    assert (await _sync(site))[-1] == "pm_synced"
    assert site.paths.current.readlink() == Path("generations/000001")
    file = site.paths.generations / "000001/tree/toy/value.py"
    file.chmod(0o644)
    file.write_text("VALUE = 13\n")
    site.origin.folder.rename(site.origin.folder.with_name("gone"))
    await _sync(site)
    assert site.paths.current.readlink() == Path("generations/000002")
    assert site.run().stdout.splitlines()[0] == "1"
    assert (site.home / "logs/pm_receipts/pm_u1.json").is_file()


async def test_a_sync_of_an_older_version_does_not_take_the_newer_one_for_local_edits(stages: Stages) -> None:
    """After a way back the source stays ahead: what came from the remote is nobody's edit, and must not come back with a repair."""
    site = stages.site
    old = site.paths.generations / "000001"
    site.origin.commit({"toy/value.py": "VALUE = 2\n", "toy/brought.py": "X = 1\n"}, "two")
    await stages.update()
    git(site.checkout, "pull", "-q", "--ff-only")
    (site.checkout / "toy/mine.py").write_text("MINE = 1\n")
    point(site.paths, site.paths.current, old)
    await _sync(site)
    assert site.run().stdout.splitlines()[0] == "1"
    manifest = read_manifest(site.paths.current.resolve())
    assert sorted(manifest.edits) == ["toy/mine.py"]


async def test_a_failed_sync_leaves_what_is_current(stages: Stages) -> None:
    site = stages.site
    file = site.paths.generations / "000001/tree/toy/value.py"
    file.chmod(0o644)
    file.write_text("VALUE = 13\n")
    commit = site.origin.head
    git(site.paths.repo, "update-ref", "-d", "refs/generations/000001")
    site.origin.folder.rename(site.origin.folder.with_name("gone"))
    site.checkout.rename(site.checkout.with_name("away"))
    with pytest.raises(UpdateError):
        await _sync(site)
    assert site.paths.current.readlink() == Path("generations/000001")
    assert commit
    assert '"failed"' in (site.home / "logs/pm_receipts/pm_u1.json").read_text()


def test_check_says_current_behind_and_how_many(site: Site) -> None:
    def state() -> tuple[str, int]:
        found = check_for_update(site.home, site.product, dict(os.environ))
        return found.state, found.commits

    assert state() == ("current", 0)
    site.origin.commit({"a": "1"})
    site.origin.commit({"a": "2"})
    assert state() == ("behind", 2)
    assert os.listdir(site.paths.generations) == ["000001"]


async def test_an_install_without_a_folder_has_no_garbage(site: Site) -> None:
    """A checkout or a release that was never updated: nothing of ours is there, and nothing is made."""
    fresh = InstallPaths(site.home, "0123456789ab")
    async with aclosing(collect_garbage(fresh, SystemClock(), dict(os.environ))) as events:
        assert [event async for event in events] == [PmCollected()]
    assert not fresh.folder.exists()


def test_an_answer_that_cannot_be_kept_is_given_all_the_same(site: Site) -> None:
    """A full disk or a home that is read-only: what is kept only spares a later look."""
    (site.home / "update_check.json/in the way").mkdir(parents=True)
    assert check_and_remember(site.home, site.product, dict(os.environ)).state == "current"
    site.origin.folder.rename(site.origin.folder.with_name("gone"))
    with pytest.raises(UpdateError, match="no repository at the pinned address"):
        check_and_remember(site.home, site.product, dict(os.environ))


def test_a_check_that_cannot_ask_is_an_error(site: Site) -> None:
    site.origin.folder.rename(site.origin.folder.with_name("gone"))
    with pytest.raises(UpdateError, match="no repository at the pinned address"):
        check_for_update(site.home, site.product, dict(os.environ))


async def test_channels_follow_releases(stages: Stages) -> None:
    site = stages.site
    site.origin.commit({"toy/value.py": "VALUE = 10\n"})
    git(site.origin.folder, "tag", "-a", "-m", "x", "v1.0.0")
    site.origin.commit({"toy/value.py": "VALUE = 11\n"})
    git(site.origin.folder, "tag", "v1.1.0-rc.1")
    site.origin.commit({"toy/value.py": "VALUE = 12\n"})
    await stages.update(channel="stable")
    assert site.run().stdout.splitlines()[0] == "10"
    await stages.update(channel="canary")
    assert site.run().stdout.splitlines()[0] == "11"
    await stages.update()
    assert site.run().stdout.splitlines()[0] == "12"


def test_a_set_channel_is_kept_with_its_comments(site: Site) -> None:
    (site.home / "config.yaml").write_text("# mine\nmodel:\n  default: x  # why\n")
    install_id = set_channel(site.home, "stable", site.product, dict(os.environ))
    assert install_id == site.paths.install_id
    text = (site.home / "config.yaml").read_text()
    assert "# mine" in text
    assert "# why" in text
    assert read_config(site.home).get(channel_key(install_id)) == "stable"


def test_the_passive_notice_never_asks_by_itself_and_never_blocks(site: Site, tmp_path: Path) -> None:
    marker = tmp_path / "asked"
    launcher = tmp_path / "launcher"
    launcher.write_text(f"#!/bin/sh\nprintf '%s ' \"$@\" > {marker}.tmp; mv {marker}.tmp {marker}\n")
    launcher.chmod(0o755)

    def notice(now: float) -> str:
        return passive_notice(site.home, site.product, "abc", launcher, now=now)

    assert notice(1000.0) == ""
    while not marker.exists():
        pass
    assert marker.read_text() == "update --check --passive "
    marker.unlink()
    assert notice(1001.0) == ""
    (site.home / "config.yaml").write_text("updates:\n  check: false\n")
    assert notice(1e9) == ""
    assert not marker.exists()


def test_of_several_starts_at_one_moment_one_asks(site: Site, tmp_path: Path) -> None:
    marker = tmp_path / "asked"
    launcher = tmp_path / "launcher"
    launcher.write_text(f"#!/bin/sh\necho asked >> {marker}\n")
    launcher.chmod(0o755)
    turn = FileLock(site.home / ".update_check.lock", "the passive check")
    assert turn.try_acquire()
    assert passive_notice(site.home, site.product, "abc", launcher, now=1000.0) == ""
    assert not (site.home / "update_check.json").exists(), "another start is at it"
    turn.release()
    for _ in range(3):
        assert passive_notice(site.home, site.product, "abc", launcher, now=1000.0) == ""
    until = time.monotonic() + 10
    while not marker.exists() and time.monotonic() < until:
        time.sleep(0.01)
    time.sleep(0.2)
    assert marker.read_text() == "asked\n"


def test_a_release_pin_follows_releases(tmp_path: Path) -> None:
    from nedura.installs import find_installs
    from nedura.testing.installs import TOY
    from nedura.update.generation.record import read_record

    origin = make_origin(tmp_path / "origin")
    git(origin.folder, "tag", "v1.0.0")
    pinned = origin.clone(tmp_path / "source", "--branch", "v1.0.0", "--depth", "1", "--single-branch")
    install_checkout(pinned, tmp_path / "home", product=TOY)
    (paths,) = find_installs(tmp_path / "home")
    assert read_record(paths).branch == ""
