"""Profile operations on a real folder."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from nedura.config import read_config
from nedura.errors import ProfileError, StoreError
from nedura.homes import profiles_root
from nedura.profiles import (
    FOLDERS,
    RESERVED,
    check_name,
    create_profile,
    find_profile,
    list_profiles,
    publish,
    tombstone,
)


def test_a_new_profile_is_whole_private_and_has_the_model_block(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("model:\n  default: hermes-4\ndisplay:\n  skin: ares\n")
    profile = create_profile(tmp_path, " Coder ")
    assert profile.home == tmp_path / "profiles" / "coder"
    assert {path.name for path in profile.home.iterdir() if path.is_dir()} == set(FOLDERS)
    assert stat.S_IMODE((profile.home / ".env").stat().st_mode) == 0o600
    assert stat.S_IMODE(profile.home.stat().st_mode) == 0o700
    assert read_config(profile.home).data == {"model": {"default": "hermes-4"}}
    assert [path.name for path in profiles_root(tmp_path).iterdir() if path.name.endswith("staging")] == []


@pytest.mark.parametrize(
    "name", ["", "-x", "_x", "a b", "../x", "a/b", "a" * 65, "ä", "a\0", "x.y", *sorted(RESERVED)]
)
def test_impossible_and_reserved_names_make_nothing(tmp_path: Path, name: str) -> None:
    with pytest.raises(ProfileError):
        create_profile(tmp_path, name)
    assert not profiles_root(tmp_path).exists()


@pytest.mark.parametrize("name", ["a", "0", "a" * 64, "chat", "gateway", "work-2_b"])
def test_possible_names(name: str) -> None:
    assert check_name(f" {name.upper()} ", new=True) == name


def test_a_taken_name_is_refused_and_the_old_one_stays(tmp_path: Path) -> None:
    home = create_profile(tmp_path, "a").home
    (home / "mine").write_text("x")
    with pytest.raises(ProfileError, match="already"):
        create_profile(tmp_path, "A")
    assert (home / "mine").read_text() == "x"


def test_a_failed_build_leaves_nothing(tmp_path: Path) -> None:
    def build(home: Path) -> None:
        (home / "half").write_text("x")
        raise OSError(28, "No space left on device")

    with pytest.raises(StoreError, match="No space"):
        publish(tmp_path, "a", build)
    assert [path.name for path in profiles_root(tmp_path).iterdir()] == [".lock"]


def test_two_at_once_make_one(tmp_path: Path) -> None:
    results: list[object] = []

    def make() -> None:
        try:
            results.append(create_profile(tmp_path, "same"))
        except ProfileError as error:
            results.append(error)

    threads = [threading.Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(isinstance(result, ProfileError) for result in results) == 3


def test_creating_again_after_a_delete_clears_the_tombstone(tmp_path: Path) -> None:
    mark = tombstone(tmp_path, "b")
    mark.parent.mkdir(parents=True)
    mark.touch()
    (profiles_root(tmp_path) / "b").mkdir()
    assert [profile.name for profile in list_profiles(tmp_path)] == ["default"]
    (profiles_root(tmp_path) / "b").rmdir()
    create_profile(tmp_path, "b")
    assert not mark.exists()
    assert find_profile(tmp_path, "B").home.is_dir()


def test_the_list_is_the_roots_whatever_profile_asks(tmp_path: Path) -> None:
    for name in ("coder", "ops"):
        create_profile(tmp_path, name)
    (tmp_path / "active_profile").write_text("ops\n")
    done = subprocess.run(
        [sys.executable, "-m", "nedura_cli", "-p", "coder", "profile", "list", "--json"],
        env={**os.environ, "NEDURA_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    record = json.loads(done.stdout)
    assert [(one["name"], one["sticky"], one["active"]) for one in record["profiles"]] == [
        ("default", False, False),
        ("coder", False, True),
        ("ops", True, False),
    ]
