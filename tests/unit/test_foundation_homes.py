"""Which home is meant, which root it hangs from, and what an install's places are called."""

from __future__ import annotations

from pathlib import Path

import pytest

from nedura import homes
from nedura.installs import InstallPaths, generation_of, install_id_for, sealed_install_of
from nedura.product import NEDURA

ENV = {"HOME": "/h/u"}
NATIVE = Path("/h/u/.nedura")


@pytest.mark.parametrize(
    ("home", "root", "name"),
    [
        ("/h/u/.nedura", "/h/u/.nedura", "default"),
        ("/h/u/.nedura/profiles/ops", "/h/u/.nedura", "ops"),
        ("/opt/data", "/opt/data", "default"),
        ("/opt/data/profiles/ops", "/opt/data", "ops"),
        ("/opt/profiles", "/opt/profiles", "default"),
    ],
)
def test_a_home_knows_its_root_and_its_profile(home: str, root: str, name: str) -> None:
    found = homes.root_home(Path(home), ENV)
    assert found == Path(root)
    assert homes.profile_name(Path(home), found) == name


def test_a_home_outside_the_tree_is_custom() -> None:
    assert homes.profile_name(Path("/elsewhere/x"), NATIVE) == "custom"


def test_the_environment_names_the_process_home_and_an_override_names_the_activity() -> None:
    assert homes.process_home(ENV) == NATIVE
    assert homes.process_home({**ENV, "NEDURA_HOME": "/opt/data/"}) == Path("/opt/data")
    assert homes.process_home({**ENV, "NEDURA_HOME": "  "}) == NATIVE
    with homes.home_override(Path("/a")):
        assert homes.current_home(ENV) == Path("/a")
        assert homes.process_home(ENV) == NATIVE
        with homes.home_override(Path("/b")):
            assert homes.current_home(ENV) == Path("/b")
        assert homes.current_home(ENV) == Path("/a")
    assert homes.current_home(ENV) == NATIVE


@pytest.mark.parametrize("name", ["a", "ops-2", "0", "a_b", "x" * 64])
def test_profile_names_that_are_names(name: str) -> None:
    assert homes.PROFILE_NAME.match(name)


@pytest.mark.parametrize("name", ["", "-a", "_a", "A", "a/b", "..", "a b", "x" * 65, "ä", "a\n"])
def test_profile_names_that_are_not(name: str) -> None:
    assert not homes.PROFILE_NAME.fullmatch(name)


def test_running_code_finds_its_generation_by_real_path() -> None:
    tree = Path("/r/installs/0123456789ab/generations/000012/tree/nedura/x.py")
    assert generation_of(tree) == Path("/r/installs/0123456789ab/generations/000012")
    assert sealed_install_of(tree) == InstallPaths(Path("/r"), "0123456789ab")
    assert generation_of(Path("/src/nedura/x.py")) is None


def test_the_install_id_ignores_case_and_is_stable() -> None:
    assert install_id_for(Path("/Src/Nedura")) == install_id_for(Path("/src/nedura"))
    assert len(install_id_for(Path("/src/nedura"))) == 12


def test_environment_names_come_from_the_product() -> None:
    assert NEDURA.env("HOME") == "NEDURA_HOME" == homes.HOME_VARIABLE
    assert NEDURA.home_folder == homes.HOME_FOLDER
    assert NEDURA.setting({"NEDURA_X": " y "}, "X") == "y"
