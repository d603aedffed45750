"""How long each call of a systemd restart may take: one budget, from the limits of the unit's own manager, for every try."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest

from nedura.fleet.model import Runtime
from nedura.fleet.supervisors.base import RestartError
from nedura.fleet.supervisors.systemctl import Ran
from nedura.fleet.supervisors.systemd import SystemdSupervisor
from nedura.fleet.supervisors.unit_state import UnitState

UNIT = "nedura-gateway.service"
BEFORE = UnitState(
    name=UNIT, load="loaded", active="active", sub="running", main_pid=7, stop_limit="3min 30s", start_limit="2min",
    kind="notify", restart="always", restart_delay=5.0,
)  # fmt: skip
DOWN = attrs.evolve(BEFORE, active="failed", sub="failed", main_pid=0, result="exit-code", exit_status=1)


class Recorder:
    """A manager whose every order fails; it keeps what it was asked and for how long."""

    def __init__(self, scope: str) -> None:
        self.scope = scope
        self.asked: list[tuple[str, float]] = []
        self.now = BEFORE

    async def state(self, unit: str) -> UnitState:
        return self.now

    async def call(self, verb: str, unit: str, *, timeout: float) -> Ran:
        self.asked.append((verb, timeout))
        return Ran(status=0 if verb == "reset-failed" else 1, out="", err="")


def supervisor_of(scope: str) -> tuple[SystemdSupervisor, Recorder, Recorder, Runtime]:
    supervisor = SystemdSupervisor(uid=0)
    managers: dict[str, Any] = {"user": Recorder("user"), "system": Recorder("system")}
    supervisor._managers = managers  # type: ignore[assignment]
    runtime = Runtime(kind="gateway", profile="default", pid=7, start_time=1, home=Path("/h"), supervisor="systemd",
                      unit=UNIT, unit_scope=scope)  # fmt: skip
    other = "user" if scope == "system" else "system"
    return supervisor, managers[scope], managers[other], runtime


@pytest.mark.parametrize("scope", ["user", "system"])
async def test_both_tries_have_the_same_budget_in_the_units_own_scope(scope: str) -> None:
    supervisor, manager, other, runtime = supervisor_of(scope)
    await supervisor.arm(runtime)
    manager.now = DOWN
    with pytest.raises(RestartError, match="exit code 1"):
        await supervisor.force(runtime, lambda words: None)
    assert [timeout for verb, timeout in manager.asked if verb == "restart"] == [345.0, 345.0]
    assert other.asked == []


@pytest.mark.parametrize("scope", ["user", "system"])
async def test_a_drained_unit_needs_its_start_alone(scope: str) -> None:
    supervisor, manager, other, runtime = supervisor_of(scope)
    await supervisor.arm(runtime)
    manager.now = DOWN
    with pytest.raises(RestartError, match="exit code 1"):
        await supervisor.revive(runtime, lambda words: None)
    assert [timeout for verb, timeout in manager.asked if verb != "reset-failed"] == [135.0]
    assert other.asked == []
