from __future__ import annotations

import json
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nedura.errors import UsageError
from nedura.fleet.supervisors.windows import (
    Discovered,
    PauseToken,
    ResumeStep,
    after_resume,
    pause_steps,
    pause_token,
    pause_wait,
    resume_steps,
    task_name,
    task_xml,
)

FOUND = Discovered(
    profiles={"default": 100, "work": 200},
    unmapped={
        300: ["C:\\n\\python.exe", "-m", "nedura_cli.main", "-p", "side", "gateway", "run"],
        310: ["odd.exe", "gateway"],
    },
    services={"NeduraGatewayWork": "work"},
)


def test_a_pause_goes_in_its_order() -> None:
    steps = pause_steps(FOUND, configured=5.0, declared=30.0, ancestors=())
    assert [step.action for step in steps] == ["mark", "ask", "wait", "kill", "stop_service"]
    assert steps[2].seconds == 40.0
    assert steps[3].pids == (100, 200, 300, 310)
    assert steps[4].service == "NeduraGatewayWork"


def test_what_the_updater_runs_under_is_never_forced() -> None:
    steps = pause_steps(FOUND, configured=5.0, declared=None, ancestors=(100,))
    assert 100 in steps[0].pids
    assert all(100 not in step.pids for step in steps if step.action in ("wait", "kill"))


@pytest.mark.parametrize(
    ("configured", "declared", "seconds"),
    [(0.0, None, 1.0), (5.0, None, 5.0), (5.0, 30.0, 40.0), (60.0, 1.0, 60.0), (0.0, -1.0, 1.0)],
)
def test_the_wait_is_the_longer_of_configured_and_declared(
    configured: float, declared: float | None, seconds: float
) -> None:
    assert pause_wait(configured, declared) == seconds


def test_the_token_survives_the_wire() -> None:
    token = pause_token(FOUND)
    assert token.resume_needed
    assert PauseToken.parse(json.loads(json.dumps(token.wire()))) == token
    assert set(token.wire()) == {
        "resume_needed", "profiles", "unmapped_pids", "unmapped", "cold_start_if_installed", "services",
        "expected_services", "restarted_services", "service_profiles",
    }  # fmt: skip


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=50, deadline=None)
@given(ANY_JSON)
def test_any_token_of_another_version_can_be_read(value: object) -> None:
    assert isinstance(PauseToken.parse(value), PauseToken)
    assert isinstance(
        PauseToken.parse({"profiles": value, "unmapped": value, "services": value, "unmapped_pids": value}),
        PauseToken,
    )


def test_nothing_ran_but_autostart_is_installed() -> None:
    assert pause_token(Discovered(autostart=True)).cold_start_if_installed
    assert not pause_token(Discovered(autostart=True)).resume_needed
    assert not pause_token(Discovered(autostart=True, desktop_owns=True)).cold_start_if_installed
    steps, _ = resume_steps(pause_token(Discovered(autostart=True)), running=(), autostart=True)
    assert steps == (ResumeStep(action="start_installed"),)
    assert resume_steps(pause_token(Discovered(autostart=True)), running=("default",), autostart=True) == (
        (),
        (),
    )


def test_a_resume_starts_each_once_and_parses_what_it_does_not_know() -> None:
    steps, lost = resume_steps(pause_token(FOUND), running=(), autostart=False)
    assert steps == (
        ResumeStep(action="start_service", name="NeduraGatewayWork"),
        ResumeStep(action="start_profile", name="default"),
        ResumeStep(action="start_profile", name="side"),
    )
    assert lost == ("pid 310",)
    assert resume_steps(pause_token(FOUND), running=("default", "work", "side"), autostart=False)[0] == ()


def test_a_second_resume_does_nothing_twice() -> None:
    token = pause_token(FOUND)
    steps, _ = resume_steps(token, running=(), autostart=False)
    rest = after_resume(token, steps)
    assert resume_steps(rest, running=("work",), autostart=False)[0] == ()
    half = after_resume(token, steps[:1])
    assert half.resume_needed
    assert [step.name for step in resume_steps(half, running=("work",), autostart=False)[0]] == [
        "default",
        "side",
    ]


def test_the_task_starts_no_console_and_cannot_be_injected_into() -> None:
    text = task_xml("C:\\h & h\\start.vbs", ["-p", "work"], "C:\\h & h", "PC\\me")
    root = ET.fromstring(text.replace('encoding="UTF-16"', ""))
    space = {"t": "http://schemas.microsoft.com/windows/2004/02/mit/task"}
    assert root.findtext(".//t:Command", namespaces=space) == "wscript.exe"
    assert (
        root.findtext(".//t:Arguments", namespaces=space) == '//B //Nologo "C:\\h & h\\start.vbs" "-p" "work"'
    )
    assert root.findtext(".//t:Delay", namespaces=space) == "PT30S"
    for bad in ('a"b', "a\nb"):
        with pytest.raises(UsageError):
            task_xml(bad, [], "C:\\", "me")
    assert (task_name(""), task_name("work")) == ("Nedura_Gateway", "Nedura_Gateway_work")
