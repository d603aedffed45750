"""A member that had ended before the update began: waited for only when somebody starts it again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import attrs
import pytest

from nedura.fleet import FleetMatrix
from nedura.fleet.claim import boot_id
from nedura.fleet.inventory import collect
from nedura.fleet.matrix import comes_back
from nedura.fleet.model import Fleet, Runtime
from nedura.product import NEDURA
from nedura.testing.clock import FakeClock
from nedura.update.fleet_real import RealFleet
from nedura.update.ledger.obligations import RestartObligation
from nedura.update.ledger.settle import settle_from_fleet
from tests.kits.pipeline import INSTALL_ID, NEW, ToyFleet, gateway


@attrs.define(kw_only=True)
class Seen(RealFleet):
    """A real verification over a scripted fleet."""

    fleet: Fleet

    async def collect(self) -> Fleet:
        return self.fleet


async def verify(home: Path, ended: Runtime) -> tuple[FleetMatrix, float]:
    clock = FakeClock()
    alive = gateway("default", home, 10, NEW)
    fleet = Fleet(runtimes=(alive,), gone=(ended,))
    seen = Seen(root_home=home, install_id=INSTALL_ID, clock=clock, fleet=fleet)
    events = [event async for event in seen.verify(fleet, NEW, ["default"])]
    matrix = events[-1]
    assert isinstance(matrix, FleetMatrix)
    return matrix, matrix.waited


async def test_one_started_by_hand_and_killed_is_not_waited_for(tmp_path: Path) -> None:
    matrix, waited = await verify(tmp_path, gateway("alpha", tmp_path / "a", 7))
    assert waited == 0
    assert (matrix.complete, [row.profile for row in matrix.rows]) == (True, ["default"])


@pytest.mark.parametrize(
    "more",
    [
        {"supervisor": "systemd", "unit": "nedura-gateway-alpha.service"},
        {"detail": {"restart_requested": True}},
    ],
)
async def test_one_that_comes_back_is_waited_for_and_counts(tmp_path: Path, more: dict[str, Any]) -> None:
    matrix, waited = await verify(tmp_path, attrs.evolve(gateway("alpha", tmp_path / "a", 7), **more))
    assert waited >= 120
    assert not matrix.complete
    assert [row.state for row in matrix.rows if row.profile == "alpha"] == ["down"]


@pytest.mark.parametrize(
    ("requested", "boot", "returns"),
    [(False, boot_id(), False), (True, boot_id(), True), (True, "", True), (True, "an-earlier-boot", False)],
)
async def test_the_file_of_a_dead_gateway_says_whether_it_comes_back(
    tmp_path: Path, requested: bool, boot: str, returns: bool
) -> None:
    """The watcher of a restart does not survive the machine's next boot."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    record = {
        "pid": 2**22 + 7,
        "start_time": 5,
        "kind": "nedura-gateway",
        "nedura_home": str(home),
        "supervisor": "manual",
        "gateway_state": "running",
        "restart_requested": requested,
        "boot_id": boot,
    }
    (home / "gateway_state.json").write_text(json.dumps(record))
    (home / "gateway_state.json").chmod(0o600)
    fleet = await collect(home, install_id=INSTALL_ID, scan=False, environ={})
    assert [comes_back(one) for one in fleet.gone] == [returns]


async def test_a_launch_does_not_owe_a_restart_to_the_dead(tmp_path: Path) -> None:
    @attrs.define
    class WithDead(ToyFleet):
        async def collect(self) -> Fleet:
            return Fleet(runtimes=self.runtimes, gone=(gateway("alpha", tmp_path / "a", 7),))

    debt = RestartObligation(tmp_path / "locks", tmp_path / "install", tmp_path)
    rows = [{"kind": "gateway", "profile": name, "pid": 1} for name in ("default", "alpha")]
    debt.arm(now=1.0, owner="run", expected=NEW, inventory=rows)
    owed = await settle_from_fleet(
        debt,
        root_home=tmp_path,
        install_id=INSTALL_ID,
        expected=NEW,
        product=NEDURA,
        environ={},
        fleet=WithDead(runtimes=(gateway("default", tmp_path, 10, NEW),)),
    )
    assert owed is None
    assert debt.read() is None
