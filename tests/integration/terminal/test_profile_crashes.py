"""A profile verb that is killed at any of its writes leaves every profile there, under one of its names, and every verb usable."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nedura.errors import ProfileError
from nedura.homes import profiles_root
from nedura.profile_change import delete_profile, rename_profile
from nedura.profiles import create_profile, find_profile, list_profiles, stray_profiles, tombstone
from nedura.wrappers import find_wrappers, make_wrapper

CODE = """
import asyncio, os, sys
from pathlib import Path
from nedura.profiles import create_profile
from nedura.profile_change import delete_profile, rename_profile

class Quiet:
    async def disable(self, home): ...
    async def stop(self, home): return False

root, verb, left = Path(sys.argv[1]), sys.argv[2], [int(sys.argv[3])]

def count(event, args):
    if event in ("os.rename", "os.remove", "os.mkdir", "os.rmdir"):
        left[0] -= 1
        if left[0] < 0:
            os._exit(137)

sys.addaudithook(count)
match verb:
    case "create": create_profile(root, "new")
    case "rename": asyncio.run(rename_profile(root, "a", "new", runtimes=Quiet()))
    case "delete": asyncio.run(delete_profile(root, "a", runtimes=Quiet()))
"""


class Quiet:
    async def disable(self, home: Path) -> None:
        """Nothing runs."""

    async def stop(self, home: Path) -> bool:
        """Nothing ran."""
        return False


def killed(root: Path, verb: str, after: int) -> bool:
    """Run a verb and end the process at its n-th change of the file system; whether that happened."""
    done = subprocess.run([sys.executable, "-c", CODE, str(root), verb, str(after)], timeout=30, check=False)
    assert done.returncode in (0, 137)
    return done.returncode == 137


def dead_name(root: Path, name: str) -> None:
    tombstone(root, name).parent.mkdir(parents=True, exist_ok=True)
    tombstone(root, name).touch()


def moments(verb: str) -> list[int]:
    return list(range(24)) if verb != "delete" else [0, 1, 2, 3, 4, 6, 9, 12, 15]


@pytest.mark.parametrize("verb", ["create", "rename"])
def test_a_killed_create_or_rename_hides_no_profile(tmp_path: Path, verb: str) -> None:
    died = 0
    for after in moments(verb):
        root = tmp_path / str(after)
        root.mkdir()
        (create_profile(root, "a").home / "mine").write_text("x")
        dead_name(root, "new")
        if not killed(root, verb, after):
            break
        died += 1
        names = {profile.name for profile in list_profiles(root)} - {"default"}
        assert stray_profiles(root) == ()
        if verb == "create":
            assert names in ({"a"}, {"a", "new"}), after
            if "new" not in names:
                create_profile(root, "new")
        else:
            assert names in ({"a"}, {"new"}), after
            assert (find_profile(root, names.pop()).home / "mine").read_text() == "x"
        if after % 4 == 0:
            create_profile(root, "other")
        assert after % 4 or not [
            entry for entry in profiles_root(root).iterdir() if ".staging-" in entry.name
        ]
    assert died > 3


async def test_a_rename_that_was_killed_can_be_done_again(tmp_path: Path) -> None:
    create_profile(tmp_path, "a")
    assert killed(tmp_path, "rename", 2)
    assert [profile.name for profile in list_profiles(tmp_path)] == ["default", "a"]
    moved = await rename_profile(tmp_path, "a", "new", runtimes=Quiet())
    assert moved.home.is_dir()
    assert tombstone(tmp_path, "a").read_bytes() == b""


async def test_a_killed_delete_can_be_finished(tmp_path: Path) -> None:
    halves = 0
    for after in moments("delete"):
        root = tmp_path / str(after)
        root.mkdir()
        create_profile(root, "a")
        if not killed(root, "delete", after) or not (profiles_root(root) / "a").exists():
            continue
        if tombstone(root, "a").exists():
            halves += 1
            assert "profile delete a" in stray_profiles(root)[0].reason
            with pytest.raises(ProfileError, match="not whole"):
                create_profile(root, "a")
            with pytest.raises(ProfileError, match="no profile"):
                find_profile(root, "a")
        await delete_profile(root, "a", runtimes=Quiet())
        assert not (profiles_root(root) / "a").exists()
        assert create_profile(root, "a").home.is_dir()
    assert halves > 3


async def test_a_profile_that_gets_the_name_of_a_program_never_takes_its_place(tmp_path: Path) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "git").write_text("#!/bin/sh\n")
    (programs / "git").chmod(0o755)
    environ = {"HOME": str(tmp_path / "home"), "PATH": os.fspath(programs)}
    create_profile(tmp_path, "a")
    make_wrapper("a", "a", Path("/opt/nedura"), environ=environ)
    await rename_profile(tmp_path, "a", "git", runtimes=Quiet(), environ=environ)
    assert [(one.alias, one.profile) for one in find_wrappers(environ)] == [("a", "git")]
