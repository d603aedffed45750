"""`nedura fleet explain` as it is typed: what is a pid, what is a command line, and what reaches the terminal of either."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nedura.fleet.explain import explain_argv
from tests.kits.fleet import ROOT, child_environ


def explain(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "nedura_cli.main", "fleet", "explain", *words],
        cwd=ROOT, env=child_environ(home), capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip


def told(home: Path, *words: str) -> dict[str, Any]:
    ran = explain(home, *words)
    assert ran.returncode == 0, ran.stderr
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--json", "--", "7"), "The program is 7;"),
        (("--json", "--", str(os.getpid())), f"The program is {os.getpid()};"),
        (("--json", "--"), "It has no command line"),
        (("--json", "--", ""), "It has no command line"),
        (("--json", "²"), "The program is ²;"),
        (("--json", "٧"), "The program is ٧;"),
        (("--json", "999999999"), "There is no process with this pid."),
        (("--json", "--", "--json"), "The program is --json;"),
    ],
    ids=["number", "live pid", "nothing", "empty word", "squared digit", "arabic digit", "no pid", "our own flag"],
)  # fmt: skip
def test_what_stands_behind_the_dashes_is_a_command_line_and_only_plain_digits_are_a_pid(
    tmp_path: Path, words: tuple[str, ...], why: str
) -> None:
    found = told(tmp_path, *words)
    assert found["gateway_run"] is False
    assert found["why"].startswith(why)


def test_a_second_pair_of_dashes_belongs_to_the_command_line(tmp_path: Path) -> None:
    assert told(tmp_path, "--json", "--", "nedura", "-p", "ops", "gateway", "run")["profile"] == "ops"
    assert told(tmp_path, "--json", "--", "nedura", "--", "gateway", "run")["gateway_run"] is True
    assert told(tmp_path, "nedura", "gateway", "run", "--json")["gateway_run"] is True


@pytest.mark.parametrize(
    ("words", "says"), [((), "required"), (("7", "--", "nedura"), "not both")], ids=["nothing", "both"]
)
def test_a_line_that_asks_nothing_or_two_things_is_refused(
    tmp_path: Path, words: tuple[str, ...], says: str
) -> None:
    ran = explain(tmp_path, *words)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert says in ran.stderr


HOSTILE = "\x1b]0;owned\x07\x1b[31mred\u202e\n✓ all is well"


@pytest.mark.parametrize(
    "argv",
    [
        (HOSTILE, "gateway", "run"),
        ("nedura", "-p", HOSTILE, "gateway", "run"),
        ("nedura", HOSTILE),
        ("nedura", "gateway", HOSTILE),
        ("nedura", "gateway", "run", "--token", "sk-" + "a" * 40),
        ("/bin/" + HOSTILE,),
        ("python", "-c", HOSTILE),
    ],
)
def test_a_hostile_command_line_moves_no_cursor_adds_no_line_and_shows_no_secret(
    argv: tuple[str, ...],
) -> None:
    found = explain_argv(argv)
    fields = [found.command, found.why, found.profile or "", found.subcommand or "", found.home or ""]
    for text in fields:
        assert not any(ord(char) < 32 or char in "\x7f\u202e" for char in text), repr(text)
        assert "a" * 40 not in text
    assert len(found.copy_terminal.split("\n")) == 7
