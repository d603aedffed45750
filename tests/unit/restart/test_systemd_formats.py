"""What systemd 252, 257 and 262 print, as recorded (facts/platform.md): only 252 runs here, the others' forms are data."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nedura.fleet.supervisors.systemd import processes_of, start_verb
from nedura.fleet.supervisors.unit_state import PROPERTIES, UnitState, parse_show, why_down

UNIT = {
    "Id": "nedura-gateway.service", "LoadState": "loaded", "ActiveState": "active", "SubState": "running", "Result": "success",
    "MainPID": "4242", "ExecMainStatus": "0", "ExecMainCode": "0", "NRestarts": "1",
    "ControlGroup": "/user.slice/user-1001.slice/user@1001.service/app.slice/nedura-gateway.service",
    "FragmentPath": "/home/u/.config/systemd/user/nedura-gateway.service",
    "Environment": 'A=1 "B=x y" EMPTY= DROPIN=1 NEDURA_HOME=/home/u/.nedura',
    "TimeoutStopUSec": "1min 45s", "TimeoutStartUSec": "infinity", "RestartUSec": "5s", "User": "", "Type": "notify",
}  # fmt: skip


def show(**more: str) -> UnitState:
    (state,) = parse_show("\n".join(f"{key}={value}" for key, value in {**UNIT, **more}.items()))
    return state


@given(st.randoms(use_true_random=False))
def test_the_order_of_properties_says_nothing(rng: random.Random) -> None:
    """252 and 257 have the manager's own order, 262 another one."""
    lines = [f"{key}={value}" for key, value in UNIT.items()]
    rng.shuffle(lines)
    assert list(parse_show("\n".join(lines) + "\n")) == [show()]


@pytest.mark.parametrize("left_out", [name for name in PROPERTIES if name != "Id"])
def test_a_property_that_a_version_does_not_know_is_left_out_without_an_error(left_out: str) -> None:
    (state,) = parse_show("\n".join(f"{key}={value}" for key, value in UNIT.items() if key != left_out))
    assert state.name == UNIT["Id"]
    assert why_down(state)[0]


def test_a_property_of_a_later_version_is_no_trouble() -> None:
    assert show(RestartUSecNext="5s", ExtraFileDescriptorNames="", CPUSetPartition="") == show()


@pytest.mark.parametrize(
    ("seen", "running", "verb"),
    [
        ({"StatusText": "draining"}, True, "start"),
        ({"ActiveState": "activating", "SubState": "auto-restart", "MainPID": "0", "Result": "exit-code", "ExecMainStatus": "75",
          "ExecMainCode": "1"}, False, "restart"),
        ({"ActiveState": "activating", "SubState": "auto-restart-queued", "MainPID": "0", "Result": "exit-code",
          "ExecMainStatus": "75", "ExecMainCode": "1", "NRestarts": "2"}, False, "restart"),  # 262 only
        ({"ActiveState": "activating", "SubState": "auto-restart", "MainPID": "0", "RestartUSec": "100ms"}, False, "start"),
        ({"ActiveState": "activating", "SubState": "start"}, False, "start"),
        ({"ActiveState": "reloading", "SubState": "reload-notify"}, True, "start"),
        ({"ActiveState": "inactive", "SubState": "dead", "MainPID": "0"}, False, "start"),
    ],
    ids=["draining", "252, 257", "262", "short delay", "starting", "reloading", "stopped"],
)  # fmt: skip
def test_the_states_between_a_drain_and_its_successor(seen: dict[str, str], running: bool, verb: str) -> None:
    state = show(**seen)
    assert (state.running, start_verb(state)) == (running, verb)


@pytest.mark.parametrize(
    ("seen", "token", "words"),
    [
        ({"LoadState": "not-found", "MainPID": "0"}, "missing", "unit file is gone"),
        ({"ActiveState": "failed", "Result": "timeout", "ExecMainCode": "2", "ExecMainStatus": "9"}, "ready", "time limit"),
        ({"ActiveState": "failed", "Result": "exit-code", "ExecMainStatus": "203"}, "boot", "cannot be run"),
        ({"ActiveState": "failed", "Result": "exit-code", "ExecMainStatus": "78"}, "config", "configuration"),
        ({"ActiveState": "failed", "Result": "signal", "ExecMainCode": "killed", "ExecMainStatus": "9"}, "boot", "signal 9"),
        ({"ActiveState": "failed", "Result": "start-limit-hit"}, "start_limit", "too often"),
    ],
)  # fmt: skip
def test_why_a_unit_is_down(seen: dict[str, str], token: str, words: str) -> None:
    found = why_down(show(**seen))
    assert found[0] == token
    assert words in found[1]


def test_two_units_in_one_answer_the_unknown_one_with_its_defaults() -> None:
    unknown = {
        "Id": "nedura-gateway-x.service",
        "LoadState": "not-found",
        "MainPID": "0",
        "TimeoutStopUSec": "1min 30s",
    }
    text = "\n\n".join("\n".join(f"{key}={value}" for key, value in unit.items()) for unit in (UNIT, unknown))
    first, second = parse_show(text)
    assert (first.environment["B"], first.environment["EMPTY"]) == ("x y", "")
    assert (second.load, second.running) == ("not-found", False)


def test_the_processes_of_a_unit_are_read_from_its_control_group(tmp_path: Path) -> None:
    folder = tmp_path / "user.slice" / "app.slice" / "nedura-gateway.service"
    folder.mkdir(parents=True)
    (folder / "cgroup.procs").write_text("4242\n4250\n")
    name = "/user.slice/app.slice/nedura-gateway.service"
    assert processes_of(name, tmp_path) == frozenset({4242, 4250})
    (folder / "cgroup.procs").write_text("")
    assert processes_of(name, tmp_path) == frozenset()
    assert processes_of("/user.slice/gone.service", tmp_path) is None


@pytest.mark.parametrize(
    ("kind", "notifies"), [("notify", True), ("notify-reload", True), ("simple", False), ("", False)]
)
def test_which_units_say_themselves_that_they_are_ready(kind: str, notifies: bool) -> None:
    assert show(Type=kind).notifies is notifies
