"""A verification ends as soon as nobody who is down comes back any more (facts/update.md 8.2), and not before."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import attrs
import pytest

from nedura.fleet import FleetMatrix
from nedura.fleet.model import Fleet, Runtime
from nedura.fleet.restart import RestartParts
from nedura.fleet.restart_lock import RestartLock
from nedura.testing.clock import FakeClock
from nedura.update.fleet_real import RealFleet
from tests.kits.pipeline import INSTALL_ID, NEW, gateway
from tests.unit.restart.fakes import FakeFleet


@attrs.define
class Manager(FakeFleet):
    """Managers that give up on some profiles at a moment of the test's clock."""

    clock: FakeClock
    after: Mapping[str, float]
    again: float = 1e9

    async def gave_up(self, runtime: Runtime) -> str:
        now = self.clock.monotonic()
        given_up = self.after.get(runtime.profile, 1e9) <= now < self.again
        return "it has failed" if given_up else ""


@attrs.define(kw_only=True)
class Seen(RealFleet):
    """A real verification over a scripted fleet."""

    fleet: Fleet

    async def collect(self) -> Fleet:
        return self.fleet


async def verified(
    tmp_path: Path, after: Mapping[str, float], *, alive: bool = True, again: float = 1e9
) -> FleetMatrix:
    clock = FakeClock()
    down = tuple(
        attrs.evolve(gateway(name, tmp_path / name, pid), supervisor="systemd")
        for pid, name in enumerate(("a", "b"), 7)
    )
    old = gateway("default", tmp_path, 10)
    now = Fleet(runtimes=(attrs.evolve(old, pid=11, code=NEW),) if alive else (), gone=down if alive else ())
    manager = Manager(
        clock, {name: clock.monotonic() + at for name, at in after.items()}, clock.monotonic() + again
    )
    supervisors = {"systemd": manager, "manual": manager}
    parts = RestartParts(supervisors=supervisors, look=manager.look)
    seen = Seen(root_home=tmp_path, install_id=INSTALL_ID, clock=clock, fleet=now, parts=parts)
    before = Fleet(runtimes=(old, *down))
    events = [event async for event in seen.verify(before, NEW, ["default"])]
    matrix = events[-1]
    assert isinstance(matrix, FleetMatrix)
    assert not matrix.complete
    return matrix


async def test_it_ends_when_every_member_that_is_down_was_given_up(tmp_path: Path) -> None:
    matrix = await verified(tmp_path, {"a": 0, "b": 5})
    assert 5 < matrix.waited < 12
    assert not matrix.settled
    assert [row.profile for row in matrix.failing] == ["a", "b"]


async def test_one_that_may_still_come_is_waited_for_to_the_end(tmp_path: Path) -> None:
    assert (await verified(tmp_path, {"a": 0})).waited >= 120


async def test_an_instant_without_a_process_is_no_proof(tmp_path: Path) -> None:
    """Between the stop and the start of a restart a unit is idle, too."""
    assert (await verified(tmp_path, {"a": 0, "b": 0}, again=0.5)).waited >= 120


async def test_one_that_somebody_restarts_now_is_waited_for(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir(mode=0o700)
    lock = RestartLock(tmp_path / "a")
    assert lock.take()
    other = RestartLock(tmp_path / "a")
    assert not other.take()
    try:
        assert (await verified(tmp_path, {"a": 0, "b": 0})).waited >= 120
    finally:
        lock.release()


async def test_a_fleet_without_any_row_ends_when_all_of_it_was_given_up(tmp_path: Path) -> None:
    matrix = await verified(tmp_path, {"a": 0, "b": 0, "default": 0}, alive=False)
    assert (matrix.waited < 10, matrix.rows) == (True, ())
    assert (await verified(tmp_path, {"a": 0, "b": 0}, alive=False)).waited >= 120


@pytest.mark.parametrize("supervisor", ["s6", "desktop"])
async def test_a_supervisor_that_says_nothing_proves_nothing(tmp_path: Path, supervisor: str) -> None:
    clock = FakeClock()
    down = attrs.evolve(gateway("a", tmp_path / "a", 7), supervisor=supervisor)
    fleet = Fleet(runtimes=(gateway("default", tmp_path, 10, NEW),), gone=(down,))
    seen = Seen(root_home=tmp_path, install_id=INSTALL_ID, clock=clock, fleet=fleet)
    matrix = [event async for event in seen.verify(fleet, NEW, ["default"])][-1]
    assert isinstance(matrix, FleetMatrix)
    assert matrix.waited >= 120
