"""Two homes on one working tree: the other home's update moves the code, restarts its own gateways and owes nothing; ours are stale."""

from __future__ import annotations

import json
import os
from pathlib import Path

import attrs
import pytest

from nedura.fleet import Fleet
from nedura.installs import CodeIdentity, InstallPaths, running_code
from nedura.update.launch import Launch
from tests.kits.pipeline import INSTALL_ID, ToyFleet, gateway


@attrs.define
class Counting(ToyFleet):
    """Counts how often it was looked at."""

    looks: int = 0

    async def collect(self) -> Fleet:
        self.looks += 1
        return await ToyFleet.collect(self)


def launched(home: Path, code: CodeIdentity, *, shared: Path | None = None) -> tuple[list[str], Counting]:
    """One launch in a home whose gateway runs some code; what it said, and the fleet that it may have asked."""
    lines: list[str] = []
    fleet = Counting((gateway("default", home, 11, code),))
    paths = InstallPaths(home, INSTALL_ID)
    Launch(
        root_home=home,
        install=paths,
        shared=shared or paths.folder,
        environ={**os.environ, "NEDURA_HOME": str(home), "NEDURA_GATEWAY_LOCK_DIR": str(home / "locks")},
        say=lines.append,
        fleet=fleet,
    ).settle()
    return lines, fleet


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    home.mkdir(0o700)
    return home


def says(home: Path, stale: bool) -> None:
    (home / "gateway_state.json").write_text(json.dumps({"pid": 11, "stale": stale}))


def test_gateways_that_another_homes_update_left_behind_are_named(home: Path) -> None:
    says(home, True)
    old = attrs.evolve(running_code(), code_sha="a" * 40)
    (line,), _ = launched(home, old, shared=home.parent)
    assert "default" in line
    assert "gateway restart --all" in line


def test_what_a_gateway_said_before_it_was_restarted_is_no_warning(home: Path) -> None:
    says(home, True)
    lines, _ = launched(home, running_code(), shared=home.parent)
    assert lines == []


def test_a_fleet_that_says_nothing_is_not_asked(home: Path) -> None:
    old = attrs.evolve(running_code(), code_sha="a" * 40)
    for said in (None, False):
        if said is not None:
            says(home, said)
        lines, fleet = launched(home, old, shared=home.parent)
        assert (lines, fleet.looks) == ([], 0)
    says(home, True)
    lines, fleet = launched(home, old)
    assert (lines, fleet.looks) == ([], 0), "a sealed install has one root home"
