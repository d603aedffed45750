"""Field reports of area `performance` that the fleet answers, and the unit half of C005: looking without rights, and by homes not names."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from nedura.fleet import Fleet, Foreign, collect, judge, list_services
from nedura.fleet.events import FleetMatrix
from nedura.fleet.processes import ProcFs, Stat
from nedura.installs import CodeIdentity, running_code
from nedura.update.events import UpdateFinished
from nedura.update.fleet_real import RealFleet
from nedura.update.ledger import receipt as ledger
from nedura.wire import to_wire
from tests.kits.fleet import wait_for

MODULE = "nedura_cli.main"


class Blind(ProcFs):
    """A process table that shows command lines but no environments, as for processes of other users."""

    def environ(self, pid: int) -> dict[str, str] | None:
        return None


class Hiding(ProcFs):
    """A process table mounted with hidepid=2: the first process of all cannot be seen."""

    def stat(self, pid: int) -> Stat | None:
        return None if pid == 1 else super().stat(pid)


@contextmanager
def look_alike(folder: Path) -> Iterator[int]:
    """A process with a gateway's command line and no record anywhere; its pid."""
    package = folder / "nedura_cli"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "main.py").write_text("import time\nwhile True: time.sleep(0.2)\n")
    process = subprocess.Popen(
        [sys.executable, "-m", MODULE, "gateway", "run"],
        env={**os.environ, "PYTHONPATH": str(folder)},
        cwd=folder,
    )
    try:
        wait_for(lambda: MODULE in (ProcFs().argv(process.pid) or ()))
        yield process.pid
    finally:
        process.kill()
        process.wait()


def fake_systemctl(folder: Path, *units: str) -> dict[str, str]:
    """An environment whose `systemctl show` knows these units, whatever their names; everything else is unknown to it."""
    folder.mkdir()
    script = folder / "systemctl"
    blocks = "\n\n".join(units)
    script.write_text(
        f'#!/bin/sh\nfor word in "$@"; do [ "$word" = "--user" ] && exit 0; done\n'
        f"for word in \"$@\"; do case \"$word\" in '*.service') cat <<'END'\n{blocks}\nEND\n;; esac; done\n"
    )
    script.chmod(0o755)
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}


def unit(name: str, pid: int, home: Path) -> str:
    return f"Id={name}\nLoadState=loaded\nActiveState=active\nSubState=running\nMainPID={pid}\nEnvironment=NEDURA_HOME={home}"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    (folder / "profiles/media").mkdir(parents=True)
    return folder


async def test_c005_a_unit_that_names_one_of_our_homes_counts_whatever_it_is_called(
    root: Path, tmp_path: Path
) -> None:
    """The environment of the process cannot be read: only the unit's definition says whose it is."""
    with look_alike(tmp_path / "t") as pid:
        environ = fake_systemctl(tmp_path / "bin", unit("x-media.service", pid, root / "profiles/media"))
        listing = await list_services(environ=environ, platform="linux")
        assert [service.name for service in listing.services] == ["x-media.service"]
        fleet = await collect(root, processes=Blind(), services=listing.services, environ=environ)
        (row,) = fleet.runtimes
        assert (row.profile, row.unit, row.supervisor, row.pid) == (
            "media",
            "x-media.service",
            "systemd",
            pid,
        )


async def test_c005_an_update_names_a_unit_of_another_home_that_no_scan_shows(
    root: Path, tmp_path: Path
) -> None:
    process = subprocess.Popen(["sleep", "60"])
    try:
        other = tmp_path / "other"
        environ = fake_systemctl(
            tmp_path / "bin", unit("nedura-gateway-elsewhere.service", process.pid, other)
        )
        fleet = await RealFleet(root_home=root, install_id="a" * 12, environ=environ).collect()
    finally:
        process.kill()
        process.wait()
    named = [item for item in fleet.foreign if item.pid == process.pid]
    assert [item.name for item in named] == ["nedura-gateway-elsewhere.service"]
    assert "left alone" in named[0].copy_terminal
    assert not fleet.runtimes


def matrix_of(fleet: Fleet) -> FleetMatrix:
    rows = judge(running_code(), fleet)
    return FleetMatrix(expected=running_code(), rows=rows, foreign=fleet.foreign)


async def test_c194_what_cannot_be_read_is_counted_and_shown_as_unknown(root: Path, tmp_path: Path) -> None:
    with look_alike(tmp_path / "t") as pid:
        fleet = await collect(root, processes=Blind())
        item = next(one for one in fleet.foreign if one.pid == pid)
        assert (item.reason, item.unreadable) == ("home unreadable", True)
        matrix = matrix_of(fleet)
        assert matrix.unreadable >= 1
        assert f"{matrix.unreadable} of these could not be read: unknown" in matrix.copy_terminal
        assert "All " not in matrix.copy


async def test_c194_a_system_that_hides_other_users_is_told(root: Path) -> None:
    matrix = matrix_of(await collect(root, processes=Hiding()))
    assert "processes of other users whose home could not be read" in matrix.copy_terminal
    assert matrix.unreadable >= 1


def test_c194_an_update_that_could_not_see_everything_does_not_end_in_clean_success_words() -> None:
    hidden = Foreign(what="gateway process", name="pid 7", reason="another user", pid=7)
    known = Foreign(what="gateway process", name="pid 8", reason="another home", home=Path("/o"), pid=8)
    matrix = FleetMatrix(expected=CodeIdentity(), rows=(), foreign=(hidden, known))
    folded = ledger.apply(ledger.opened(), to_wire(matrix))
    assert ledger.unreadable(folded) == 1
    facts: dict[str, Any] = {"run_id": "r", "outcome": "success", "exit_code": 0, "changed": True}
    blind = UpdateFinished(**facts, unreadable=ledger.unreadable(folded))
    assert "✓" not in blind.copy_terminal
    assert "1 could not be read" in blind.copy_terminal
    assert blind.copy != UpdateFinished(**facts).copy
    assert "✓ Updated" in UpdateFinished(**facts).copy_terminal
