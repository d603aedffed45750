"""The commands as a person types them: install, pm, and the forms of update that end before anything is updated."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nedura.installs import find_installs
from nedura.programs import child_environment
from nedura.testing.installs import Site, git, make_origin, make_site, own_files


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return make_site(tmp_path_factory.mktemp("own"), "own")


def lines(site: Site, *args: str, code: int = 0) -> list[dict[str, Any]]:
    done = site.run(*args, "--json", HOME=str(site.home.parent))
    assert done.returncode == code, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.timeout(240)  # five starts of the command on a machine that does other things, too
def test_preflight_forms(own: Site) -> None:
    (plan,) = lines(own, "update", "--plan")
    assert (plan["kind"], plan["install_method"], plan["layout"], plan["generation"]) == (
        "plan",
        "git",
        "sealed",
        "000001",
    )
    assert plan["expected_sha"] == own.origin.head
    assert plan["unreadable"] == {}
    assert plan["deadline_s"] == pytest.approx(sum(plan["deadlines"].values()) + plan["deadlines"]["restart"])
    (check,) = lines(own, "update", "--check")
    assert (check["state"], check["commits"]) == ("current", 0)
    (found,) = lines(own, "update", "--install-id")
    assert (found["install_id"], found["path"]) == (own.paths.install_id, str(own.checkout))
    (channel,) = lines(own, "update", "--set-channel", "main")
    assert channel["channel"] == "main"
    done = own.run("update", "--set-channel", "beta")
    assert done.returncode == 2
    assert "Channels: stable, canary, main" in done.stderr


def test_two_forms_at_once_are_refused_before_either_acts(own: Site) -> None:
    """`--plan` changes nothing: it must not come with a channel that is kept first."""
    for words in (("--set-channel", "stable", "--plan"), ("--plan", "--check"), ("--rollback", "--plan")):
        done = own.run("update", *words)
        assert done.returncode == 2, words
        assert "cannot go together" in done.stderr
    assert not (own.home / "config.yaml").exists() or "stable" not in (own.home / "config.yaml").read_text()


@pytest.mark.timeout(240)
def test_pm_forms(own: Site) -> None:
    (status,) = lines(own, "pm", "status", "--verify")
    assert [(row["name"], row["role"], row["problems"]) for row in status["generations"]] == [
        ("000001", "current", [])
    ]
    (collected,) = lines(own, "pm", "gc")
    assert collected["removed"] == []
    (converted,) = lines(own, "pm", "convert")
    assert converted == {"kind": "converted", "changed": False}
    plain = own.run("pm", "status").stdout
    assert plain.startswith(f"Install {own.paths.install_id}, sealed")
    assert own.run("pm", "status", "--verify").stdout == plain + "  every byte is what its manifest says\n"


def test_a_checkout_install_is_converted(tmp_path: Path) -> None:
    """What ran from its working tree becomes a sealed install; its own checkout stays the source."""
    origin = make_origin(tmp_path / "origin", own_files())
    checkout = origin.clone(tmp_path / "source")
    home = tmp_path / "home"
    env = child_environment(
        HOME=str(tmp_path),
        NEDURA_HOME=str(home),
        PYTHONPATH=os.pathsep.join([str(checkout), str(checkout / "renderers/cli")]),
    )
    command = [sys.executable, "-m", "nedura_cli", "pm", "convert", "--environment", "none", "--json"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False, cwd="/")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["kind"] == "installed"
    (paths,) = find_installs(home)
    assert paths.pointed() == paths.generations / "000001"
    assert git(checkout, "status", "--porcelain") == ""
    version = subprocess.run(
        [str(home / "bin/nedura"), "--version"], capture_output=True, text=True, check=True, timeout=30
    )
    assert version.stdout.startswith("nedura ")


def test_installing_by_command_and_by_a_linked_home(tmp_path: Path, own: Site) -> None:
    real = tmp_path / "real"
    real.mkdir(mode=0o700)
    link = tmp_path / "link"
    link.symlink_to(real)
    done = own.run(
        "install", "--source", str(own.checkout), "--home", str(link), "--environment", "none", "--json"
    )
    assert done.returncode == 0, done.stderr
    last = json.loads(done.stdout.splitlines()[-1])
    assert (last["kind"], last["home"], last["existing"]) == ("installed", str(real), False)
    assert subprocess.run(
        [str(link / "bin/nedura"), "--version"], capture_output=True, check=True, timeout=30
    ).stdout


def test_a_refused_place_is_exit_2_in_one_line(tmp_path: Path, own: Site) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    done = own.run("install", "--source", str(own.checkout), "--home", str(shared / "home"))
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "chmod go-w" in done.stderr


TYPOS = {
    "no name of a branch": ("--branch", "a b"),
    "no channel": ("--channel", ""),
    "deadline": ("--deadline", "inf"),
}


@pytest.mark.timeout(240)
@pytest.mark.parametrize("form", ["--plan", "--check"])
def test_a_choice_that_an_update_refuses_is_refused_by_its_plan_and_check(own: Site, form: str) -> None:
    """A plan of a typing error was about something that no update does; an endless deadline made its JSON invalid."""
    for told, words in TYPOS.items():
        (error,) = lines(own, "update", form, *words, code=2)
        assert (error["kind"], error["code"]) == ("error", "usage")
        assert told in error["copy"]
