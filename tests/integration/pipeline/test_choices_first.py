"""A choice that cannot be is told in one line before anything is written: no receipt, no snapshot, no lock."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nedura.clock import SystemClock
from nedura.errors import UsageError
from nedura.installs import InstallPaths
from nedura.product import NEDURA
from nedura.update import Run, UpdateOptions, pm_sync
from nedura.update.options_check import branch_problem, check_configured
from nedura.update.source.git import find_git
from tests.kits.pipeline import Toy

NAMES = [
    "main", "feature/x", "a.b", "-x", "a..b", "x.lock", "x.lock/y", ".x", "a/.b", "a//b", "/a", "a/", "a b", "a~1", "a^", "a:b",
    "a?", "a*", "a[", "a\\b", "a@{1}", "@", "a@b", "a.", "a\x7f", "a\tb", "", "ünder", "HEAD", "x" * 240, "x.lockx",
]  # fmt: skip
WRONG = {
    "empty branch": (UpdateOptions(branch=""), "names no branch"),
    "blank branch": (UpdateOptions(branch="  "), "names no branch"),
    "branch that is an option": (UpdateOptions(branch="--upload-pack=x"), "no name of a branch"),
    "branch with dots": (UpdateOptions(branch="a..b"), "no name of a branch"),
    "unknown channel": (UpdateOptions(channel="nosuch"), "There is no channel 'nosuch'"),
    "empty channel": (UpdateOptions(channel=""), "There is no channel ''"),
    "no such receipt": (UpdateOptions(rollback="nosuch"), "no receipt of that name"),
    "a folder as receipt": (UpdateOptions(rollback="/"), "no receipt of that name"),
    "nothing moved yet": (UpdateOptions(rollback=""), "No receipt here says"),
    "way back and forth": (UpdateOptions(rollback="", channel="stable"), "--rollback goes to"),
    "no wheels": (UpdateOptions(wheels=Path("/nope")), "no folder of wheels"),
    "no time": (UpdateOptions(deadline=float("nan")), "A deadline is"),
    "endless time": (UpdateOptions(deadline=float("inf")), "A deadline is"),
}


@pytest.mark.parametrize("name", WRONG)
async def test_a_choice_that_cannot_be_writes_nothing(tmp_path: Path, name: str) -> None:
    options, words = WRONG[name]
    toy = Toy(tmp_path / "home")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UsageError, match=words) as told:
        await toy.run(options)
    assert told.value.exit_code == 2
    assert "\n" not in told.value.message
    assert not {"plan", "snapshot", "prepare"} & set(toy.calls)
    assert sorted(tmp_path.rglob("*")) == before


def test_names_of_branches_are_judged_as_git_judges_them() -> None:
    for name in NAMES:
        asked = [str(find_git(os.environ)), "check-ref-format", f"refs/heads/{name}"]
        git = subprocess.run(asked, capture_output=True, check=False).returncode == 0
        assert (not branch_problem(name)) == (git and not name.startswith("-") and name != "@"), name


def test_a_channel_of_config_yaml_that_does_not_exist_is_named_with_its_key(tmp_path: Path) -> None:
    """Told by the plan stage: a hand-edited file must not cost a snapshot each night."""

    def run(**options: Any) -> Run:
        return Run(
            run_id="test", root_home=tmp_path, home=tmp_path, clock=SystemClock(), started_at=0.0, environ={}, product=NEDURA,
            options=UpdateOptions(**options), install=InstallPaths(tmp_path, "0123456789ab"),
        )  # fmt: skip

    check_configured(run(), "canary")
    check_configured(run(branch="main"), "nightly")
    with pytest.raises(
        UsageError, match=r"update\.installs\.[0-9a-f]+\.channel in config\.yaml: There is no channel"
    ):
        check_configured(run(), "nightly")


async def test_a_sync_names_a_folder_of_wheels_that_is_not_there(tmp_path: Path) -> None:
    """Also when nothing would be installed from it: a typing error that passes today fails on the day it counts."""
    with pytest.raises(UsageError, match="no folder of wheels"):
        async for _ in pm_sync(tmp_path, NEDURA, SystemClock(), {}, wheels=tmp_path / "nope"):
            pass
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "words",
    [
        ("pm", "sync", "--wheels", "/nope"), ("update", "--wheels", ""), ("update", "--channel", ""), ("update", "--branch="),
        ("install", "--source", "", "--home", "x"), ("install", "--source", ".", "--home", ""), ("update", "--rollback", "no-such-receipt"),
        ("install", "--source", "~nobody-of-that-name/x"), ("update", "--channel", "nightly"),
        ("install", "--source", ".", "--wheels", "/nope"),
    ],
)  # fmt: skip
def test_the_command_says_it_in_one_line(tmp_path: Path, words: tuple[str, ...]) -> None:
    home = tmp_path / "home"
    done = subprocess.run(
        [sys.executable, "-B", "-m", "nedura_cli", *words],
        env={**os.environ, "NEDURA_HOME": str(home), "HOME": str(tmp_path)},
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
