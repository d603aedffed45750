"""The table of facts/runtime.md 1.5, "right" column, row by row."""

from __future__ import annotations

from pathlib import Path

import pytest

from nedura.commands import build_parser, flags_with_value, own_flags, subparser
from nedura.fleet.argv_walk import grammars
from nedura.fleet.identity import classify
from nedura.profile_flag import select

BOOT = "import runpy; runpy.run_module('nedura_cli.main', run_name='__main__', alter_sys=True)"
M = ("-m", "nedura_cli.main")

ROWS: list[tuple[int, list[str], bool | None, str | None, str | None]] = [
    (1, ["nedura", "gateway"], True, None, "gateway"),
    (2, ["nedura", "gateway", "run"], True, None, "gateway"),
    (3, ["/o/venv/bin/python", *M, "gateway", "run", "--replace"], True, None, "gateway"),
    (4, ["/o/venv/bin/python", *M, "--profile", "ops", "gateway", "run"], True, "ops", "gateway"),
    (5, ["python", *M, "--profile=ops-2", "gateway", "run"], True, "ops-2", "gateway"),
    (6, ["nedura", "gateway", "run", "-p", "coder"], True, "coder", "gateway"),
    (7, ["nedura", "gateway", "-p", "coder"], True, "coder", "gateway"),
    (8, ["nedura", "-p", "gateway", "gateway", "run"], True, "gateway", "gateway"),
    (9, ["nedura", "--profile", "gateway", "status"], False, "gateway", "status"),
    (10, ["nedura", "--profile", "default", "gateway", "run"], True, "default", "gateway"),
    (11, ["nedura", "gateway", "status"], False, None, "gateway"),
    (12, ["nedura", "gateway", "stop"], False, None, "gateway"),
    (13, ["nedura", "gateway", "restart"], False, None, "gateway"),
    (14, ["nedura", "gateway", "--accept-hooks"], True, None, "gateway"),
    (15, ["nedura", "gateway", "--accept-hooks", "run"], True, None, "gateway"),
    (16, ["nedura-gateway"], True, None, None),
    (17, ["C:\\x\\Scripts\\nedura-gateway.exe"], True, None, None),
    (18, ["/v/python", "/srv/agent/gateway/run.py"], True, None, None),
    (19, ["vim", "gateway/run.py"], False, None, None),
    (20, ["systemctl", "--user", "restart", "nedura-gateway"], False, None, None),
    (21, ["journalctl", "-u", "nedura-gateway.service", "-f"], False, None, None),
    (22, ["/v/bin/python", "/v/bin/nedura", "gateway", "run"], True, None, "gateway"),
    (
        23,
        ["C:\\Users\\J D\\AppData\\Local\\nedura\\venv\\Scripts\\pythonw.exe", *M, "gateway", "run"],
        True,
        None,
        "gateway",
    ),
    (24, ["NEDURA.EXE", "GATEWAY", "RUN"], True, None, "gateway"),
    (25, ["…\\.nedura-runtime\\python\\generation-1\\cpython-3.1"], None, None, None),
    (
        26,
        ["python", "-c", "while alive(): pass", "4242", "python", *M, "gateway", "run"],
        False,
        None,
        None,
    ),
    (27, ["python", "-X", "utf8", "-c", "x=1", "9", "python", *M, "gateway", "run"], False, None, None),
    (28, ["python", "-q", *M, "gateway", "run"], True, None, "gateway"),
    (29, ["python", "-c", BOOT, "gateway", "run"], True, None, "gateway"),
    (
        30,
        ["bash", "-lc", "while kill -0 9; do sleep 0.2; done; nedura gateway restart"],
        False,
        None,
        None,
    ),
    (
        31,
        [
            "/usr/bin/osascript",
            "-l",
            "JavaScript",
            "-e",
            "exec /v/python -m nedura_cli.main gateway run",
        ],
        False,
        None,
        None,
    ),
    (
        32,
        [
            "/v/python", "-m", "nedura_cli.stderr_timestamp", "--error-log", "/h/logs/gateway.error.log", "--",
            "/v/python", *M, "gateway", "run", "--external-supervisor",
        ],
        False,
        None,
        None,
    ),
    (33, ["python3", "-m", "tui_gateway"], False, None, None),
    (34, ["nedura", "kanban", "--preserve-cache"], False, None, "kanban"),
    (35, ["nedura", "-m", "dashboard", "serve"], False, None, "serve"),
    (36, ["nedura", "--reasoning", "high", "serve"], False, None, "serve"),
    (37, ["nedura", "--model=serve", "dashboard"], False, None, "dashboard"),
    (38, ["nedura", "mcp", "serve"], False, None, "mcp"),
    (39, ["python", *M, "--profile", "work", "dashboard", "--no-open"], False, "work", "dashboard"),
    (40, ["python.exe", *M, "serve", "--host", "127.0.0.1", "--port", "0"], False, None, "serve"),
    (41, ['"C:\\x\\nedura.exe"', "dashboard", "--no-open"], False, None, "dashboard"),
    (42, ["nedura", "chat", "-q", "gateway run"], False, None, "chat"),
    (43, ["nedura", "-z", "please gateway run"], False, None, None),
    (44, ["nedura", "-m", "gateway", "chat"], False, None, "chat"),
    (45, ["nedura", "-c", "serve"], False, None, None),
    (46, ["nedura", "update", "--gateway"], False, None, "update"),
    (
        47,
        ["nedura", "mcp", "add", "x", "--args", "docker", "mcp", "gateway", "run", "--profile", "prod"],
        False,
        None,
        "mcp",
    ),
    (48, ["docker", "mcp", "gateway", "run", "--profile", "prod"], False, None, None),
    (49, ["docker", "exec", "box", "nedura", "gateway", "run"], False, None, None),
    (50, ["tmux", "new-session", "-d", "nedura", "gateway", "run"], False, None, None),
    (51, ["sudo", "-u", "bob", "nedura", "gateway", "run"], False, None, None),
    (51, ["doppler", "run", "--", "python", *M, "gateway", "run"], False, None, None),
    (52, ["nedura.real", "gateway", "run"], False, None, None),
    (53, ["SafariWidgetExtension"], False, None, None),
    (54, ["python", "-m", "http.server", "8000"], False, None, None),
]  # fmt: skip


@pytest.mark.parametrize(
    ("argv", "running", "profile", "subcommand"),
    [pytest.param(*row[1:], id=f"row{row[0]}-{number}") for number, row in enumerate(ROWS)],
)
def test_the_right_column(
    argv: list[str], running: bool | None, profile: str | None, subcommand: str | None
) -> None:
    verdict = classify(argv, platform="linux")
    assert verdict.gateway_run is running, verdict.why
    assert (verdict.profile, verdict.subcommand) == (profile, subcommand)
    assert verdict.why


def test_restart_may_host_the_runtime_and_is_no_run() -> None:
    verdict = classify(["nedura", "gateway", "restart"])
    assert (verdict.gateway_run, verdict.may_host, verdict.role) == (False, True, "gateway_restart")


def test_upper_case_counts_only_where_the_system_ignores_case() -> None:
    assert classify(["NEDURA", "GATEWAY", "RUN"], platform="win32").gateway_run is True
    assert classify(["NEDURA", "gateway", "run"], platform="linux").gateway_run is False


@pytest.mark.parametrize(
    ("argv", "running"),
    [
        (["nedura", "gateway", "run", "-p", "ops…"], True),
        (["…/nedura gateway run"], None),
        (["/L/Python.framework/Versions/3.12/Resources/Python.app/Contents/MacOS/Python", *M, "gateway", "run"], True),
        (["python3.11-dbg", *M, "gateway", "run"], True),
        (["C:\\py\\python_d.exe", *M, "gateway", "run"], True),
        (["python", "-m", "nedura_cli.__main__", "gateway", "run"], True),
        (["C:\\v\\python.exe", "C:\\v\\Scripts\\nedura-script.py", "gateway", "run"], True),
        (["python", "-V", *M, "gateway", "run"], False),
        (["python", "-qh", *M, "gateway", "run"], False),
        (["python", "--version", *M, "gateway", "run"], False),
        (["python", "-Wh", *M, "gateway", "run"], True),
    ],
)  # fmt: skip
def test_spellings_of_other_systems_and_builds(argv: list[str], running: bool | None) -> None:
    assert classify(argv, platform="linux").gateway_run is running


@pytest.mark.parametrize(
    ("words", "profile", "left"),
    [
        (["-pops", "gateway", "run"], "ops", ["gateway", "run"]),
        (["-vp", "ops", "gateway", "run"], "ops", ["-v", "gateway", "run"]),
        (["-vpops", "gateway", "run"], "ops", ["-v", "gateway", "run"]),
        (["-p=ops", "gateway", "run"], "ops", ["gateway", "run"]),
        (["-vm", "-p", "gateway", "run"], None, ["-vm", "-p", "gateway", "run"]),
        (["-mpops", "gateway", "run"], None, ["-mpops", "gateway", "run"]),
        (["gateway", "run", "-pops"], "ops", ["gateway", "run"]),
        (["-p", "no:x", "gateway", "run"], None, ["-p", "no:x", "gateway", "run"]),
    ],
)
def test_the_launcher_and_the_fleet_read_one_profile(
    tmp_path: Path, words: list[str], profile: str | None, left: list[str]
) -> None:
    (tmp_path / "profiles" / "ops").mkdir(parents=True)
    found = select(words, {"NEDURA_HOME": str(tmp_path), "HOME": str(tmp_path)}, own_flags)
    assert (found.profile or None, found.argv) == (profile, left)
    assert classify(["nedura", *words]).profile == profile


def test_the_grammars_are_those_of_the_real_parser() -> None:
    whole = build_parser()
    for grammar, parser in zip(grammars(), (whole, subparser(whole, "gateway")), strict=True):
        assert parser is not None
        swallowing = flags_with_value(parser) | {"-p", "--profile"}
        assert {flag for flag, arity in grammar.options.items() if arity != "none"} == swallowing
