"""Whether a manager starts a unit again after the exit code that asks for it, from its own settings."""

from __future__ import annotations

import math

import pytest

from nedura.fleet.supervisors.systemd import start_verb
from nedura.fleet.supervisors.unit_state import UnitState


@pytest.mark.parametrize(
    ("settings", "returns"),
    [
        ({}, True),  # an old manager that does not say: no doubt is held against it
        ({"Restart": "always"}, True),
        ({"Restart": "no"}, False),
        ({"Restart": "no", "RestartForceExitStatus": "3 75 USR2"}, True),
        ({"Restart": "no", "RestartForceExitStatus": "175"}, False),
        ({"Restart": "on-failure"}, True),
        ({"Restart": "on-failure", "SuccessExitStatus": "75 KILL"}, False),
        ({"Restart": "on-success"}, False),
        ({"Restart": "on-success", "SuccessExitStatus": "75"}, True),
        ({"Restart": "on-abnormal"}, False),
        ({"Restart": "always", "RestartPreventExitStatus": "75 78"}, False),
        ({"Restart": "always", "RestartForceExitStatus": "75", "RestartPreventExitStatus": "75"}, False),
        ({"Restart": "always", "RestartUSec": "infinity"}, False),
        ({"Restart": "always", "RestartUSec": "18446744073709551615"}, False),
        ({"Restart": "always", "RestartUSec": "1h"}, True),
    ],
)
def test_what_comes_back_by_itself(settings: dict[str, str], returns: bool) -> None:
    assert UnitState.of({"Id": "a.service", **settings}).returns() is returns


def test_a_delay_that_never_ends_is_never_joined() -> None:
    waiting = UnitState.of({"Id": "a.service", "SubState": "auto-restart", "RestartUSec": "infinity"})
    assert (waiting.restart_delay, start_verb(waiting)) == (math.inf, "restart")


@pytest.mark.parametrize(
    ("settings", "forgotten"),
    [
        ({"Transient": "yes", "Restart": "no", "SuccessExitStatus": "75"}, True),
        ({"Transient": "yes", "Restart": "no"}, False),  # it fails, and what has failed is kept
        ({"Transient": "yes", "Restart": "always", "SuccessExitStatus": "75"}, False),
        ({"Transient": "no", "Restart": "no", "SuccessExitStatus": "75"}, False),
    ],
)
def test_what_is_gone_for_good_once_it_has_drained(settings: dict[str, str], forgotten: bool) -> None:
    assert UnitState.of({"Id": "a.service", **settings}).is_forgotten() is forgotten
