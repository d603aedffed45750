"""Packages: a pip that is sent elsewhere makes no empty environment, an index that cannot be reached is called that, and packages
that somebody changed condemn no version."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import attrs
import pytest

from nedura.clock import SystemClock
from nedura.errors import UpdateError
from nedura.installs import InstallPaths
from nedura.records import make_folder
from nedura.testing.installs import TOY, TOY_FILES, Site, make_origin
from nedura.update.generation.environment import ensure_environment
from nedura.update.generation.install import install_checkout
from nedura.update.generation.interpreter import base_python
from nedura.update.generation.pm_repair import pm_sync
from tests.kits.sealed import Stages

from .wheels import lock_line, sha256, wheel


def build(folder: Path, lock: str, settings: str, wheels: Path | None) -> None:
    """Build an environment as somebody whose pip has settings of its own, on a machine without uv."""
    config = make_folder(folder / "home/.config/pip") / "pip.conf"
    config.write_text(settings)
    (folder / "requirements.lock").write_text(lock)
    ensure_environment(
        {
            "python": base_python(), "lock": str(folder / "requirements.lock"), "envs": str(folder / "envs"),
            "wheels": str(wheels or ""),
        },
        {**os.environ, "HOME": str(folder / "home"), "PATH": str(make_folder(folder / "nothing"))},
    )  # fmt: skip


@pytest.mark.parametrize("setting", ["target", "prefix", "root", "dry-run"])
def test_packages_that_pip_puts_elsewhere_make_no_environment(tmp_path: Path, setting: str) -> None:
    made = wheel(tmp_path / "wheels", "some_thing", "1.0", {"some.py": ""})
    value = "true" if setting == "dry-run" else tmp_path / "elsewhere"
    with pytest.raises(UpdateError, match="did not install some-thing into the environment") as caught:
        build(
            tmp_path,
            lock_line("some-thing", "1.0", sha256(made))
            + "other==1.0 ; sys_platform == 'none' --hash=sha256:00\n",
            f"[install]\n{setting} = {value}\n",
            tmp_path / "wheels",
        )
    assert setting in caught.value.advice
    assert os.listdir(tmp_path / "envs") == []


@pytest.mark.parametrize("retries", [0, 1])
def test_an_index_that_cannot_be_reached_is_not_called_unfit(tmp_path: Path, retries: int) -> None:
    settings = f"[global]\nindex-url = http://127.0.0.1:9/simple\nextra-index-url =\nfind-links =\nretries = {retries}\n"
    with pytest.raises(UpdateError) as caught:
        build(tmp_path, lock_line("alpha", "1.0", "0" * 64), settings, None)
    assert ("index cannot be reached" if retries else "was found") in caught.value.message
    assert "network" in caught.value.advice


def test_a_version_that_is_not_there_is_not_blamed_on_the_network(tmp_path: Path) -> None:
    wheel(tmp_path / "wheels", "alpha", "1.0", {"alpha.py": ""})
    with pytest.raises(UpdateError, match="fits this machine"):
        build(tmp_path, lock_line("alpha", "2.0", "0" * 64), "", tmp_path / "wheels")


def test_what_a_folder_of_wheels_lacks_is_not_blamed_on_the_network(tmp_path: Path) -> None:
    with pytest.raises(UpdateError, match="wheel of the wanted version was found") as caught:
        build(tmp_path, lock_line("alpha", "2.0", "0" * 64), "", make_folder(tmp_path / "wheels"))
    assert str(tmp_path / "wheels") in caught.value.advice
    assert "network" not in caught.value.advice


@pytest.fixture
def managed(tmp_path: Path) -> Site:
    """An install with an environment of its own, in which somebody changed a file."""
    made = wheel(tmp_path / "wheels", "alpha", "1.0", {"alpha.py": "A = 1\n"})
    files = {**TOY_FILES, "requirements.lock": lock_line("alpha", "1.0", sha256(made))}
    product = attrs.evolve(TOY, environment="managed")
    origin = make_origin(tmp_path / "origin", files)
    checkout = origin.clone(tmp_path / "source")
    done = install_checkout(
        checkout, tmp_path / "home", product=product, wheels=tmp_path / "wheels", python=sys.executable
    )
    paths = InstallPaths(tmp_path / "home", done.install_id)
    (file,) = paths.envs.glob("*/lib/python3*/site-packages/alpha.py")
    file.chmod(0o644)
    file.write_text("A = 666\n")
    return Site(origin=origin, checkout=checkout, home=tmp_path / "home", paths=paths, product=product)


async def test_changed_packages_stop_an_update_and_condemn_no_version(managed: Site) -> None:
    managed.origin.commit({"toy/value.py": "VALUE = 2\n"}, "two")
    stages = Stages(managed)
    with pytest.raises(UpdateError, match="packages are not what they were") as caught:
        await stages.update()
    assert caught.value.advice == "Repair them first: toy pm sync"
    assert not (managed.paths.folder / "failed.json").exists()
    (file,) = managed.paths.envs.glob("*/lib/python3*/site-packages/alpha.py")
    file.write_text("A = 1\n")
    await stages.update()
    assert managed.run().stdout.splitlines()[0] == "2"


async def test_a_sync_that_mends_no_packages_does_not_say_that_all_is_in_order(managed: Site) -> None:
    with pytest.raises(UpdateError, match=r"packages .* are not what they were") as caught:
        async for _ in pm_sync(
            managed.home, managed.product, SystemClock(), dict(os.environ), update_id="u1"
        ):
            pass
    assert str(managed.launcher) in caught.value.advice
    receipt = json.loads((managed.home / "logs/pm_receipts/pm_u1.json").read_text())
    assert receipt["pm_sync_outcome"] == "failed"
