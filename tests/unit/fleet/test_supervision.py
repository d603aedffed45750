"""Who supervises a process: by cgroup and unit, never by MainPID alone."""

from __future__ import annotations

import pytest

from nedura.fleet.supervision import Supervision, UnitRef, in_family, supervision_of, unit_of_cgroup


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("0::/system.slice/nedura-gateway.service\n", UnitRef(name="nedura-gateway.service", scope="system")),
        (
            "0::/user.slice/user-1001.slice/user@1001.service/app.slice/nedura-gateway-ops.service",
            UnitRef(name="nedura-gateway-ops.service", scope="user"),
        ),
        ("0::/app.slice/nedura-gateway.service", UnitRef(name="nedura-gateway.service", scope="user")),
        (
            "9:name=systemd:/system.slice/x.service\n8:pids:/other",
            UnitRef(name="x.service", scope="system"),
        ),
        ("0::/user.slice/user-0.slice/session-3.scope", None),
        ("0::/user.slice/user-1.slice/user@1.service/app.slice/vte-spawn-1.scope", None),
        ("0::/user.slice/user-1.slice/user@1.service/init.scope", None),
        ("9:name=systemd:/\n", None),
        ("", None),
        (
            "0::/system.slice/nedura-gateway.service/sub",
            UnitRef(name="nedura-gateway.service", scope="system"),
        ),
    ],
)
def test_unit_of_cgroup(text: str, unit: UnitRef | None) -> None:
    assert unit_of_cgroup(text) == unit


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("nedura-gateway.service", True),
        ("nedura-gateway-1a2b3c4d.service", True),
        ("nedura-gateway-server.service", True),
        ("nedura-gatewayx.service", False),
        ("nedura-server.service", False),
        ("hermes-gateway.service", True),
        ("my-nedura-gateway.service", False),
        ("nedura-gateway", True),
    ],
)
def test_families_match_whole_names(name: str, ours: bool) -> None:
    assert in_family(name, ("nedura-gateway", "hermes-gateway")) is ours


def supervised(
    environ: dict[str, str], cgroup: str = "", argv: tuple[str, ...] = (), platform: str = "linux"
) -> Supervision:
    return supervision_of(environ, argv, pid=100, ppid=90, cgroup=cgroup, platform=platform)


UNIT = "0::/system.slice/nedura-gateway.service"
ODD = "0::/system.slice/mybot.service"


def test_a_family_unit_supervises_whatever_runs_in_it() -> None:
    assert supervised({}, UNIT) == Supervision(
        supervisor="systemd", unit="nedura-gateway.service", unit_scope="system"
    )


@pytest.mark.parametrize(
    ("environ", "supervisor"),
    [
        ({"INVOCATION_ID": "x", "SYSTEMD_EXEC_PID": "100"}, "systemd"),
        ({"INVOCATION_ID": "x", "SYSTEMD_EXEC_PID": "90"}, "systemd"),  # a wrapper is the main process
        (
            {"INVOCATION_ID": "x", "SYSTEMD_EXEC_PID": "7"},
            "manual",
        ),  # inherited from a session or a CI runner
        ({"INVOCATION_ID": "x"}, "systemd"),  # before systemd 248
        ({}, "manual"),
    ],
)
def test_an_odd_unit_counts_when_the_manager_started_us(environ: dict[str, str], supervisor: str) -> None:
    assert supervised(environ, ODD).supervisor == supervisor


def test_other_supervisors() -> None:
    assert supervised({}, argv=("nedura", "gateway", "run", "--external-supervisor")).supervisor == "external"
    launchd = {"XPC_SERVICE_NAME": "ai.nedura.gateway-ops"}
    assert supervised(launchd, platform="darwin").unit == "ai.nedura.gateway-ops"
    assert supervised({"NEDURA_DESKTOP_MANAGED": "1"}).supervisor == "desktop"
    assert supervised({"XPC_SERVICE_NAME": "com.apple.Terminal"}, platform="darwin").supervisor == "manual"
