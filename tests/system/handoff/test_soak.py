"""The soak's seeded share, and the proof that it sees planted bugs."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.soak.bugs import BUGS

ROOT = Path(__file__).resolve().parents[3]


def run(*arguments: str) -> tuple[int, list[dict[str, Any]]]:
    command = [sys.executable, "-m", "tests.soak", "--json", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=170, check=False)
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.timeout(180)
def test_a_seeded_share_of_the_soak_finds_nothing() -> None:
    code, lines = run("--seed", "20261130", "--steps", "100")
    assert [line for line in lines if line["kind"] == "soak_violation"] == []
    last = lines[-1]
    assert (code, last["kind"], last["violations"], last["steps"]) == (0, "soak_finished", 0, 100)
    assert last["requests"] > 20
    assert last["kills"] > 0


@pytest.mark.system
@pytest.mark.timeout(180)
@pytest.mark.parametrize("bug", BUGS)
def test_the_soak_sees_a_planted_bug(bug: str) -> None:
    if bug == "skip_fsync" and shutil.which("strace") is None:
        pytest.skip("strace is not here: a skipped fsync cannot be planted")
    code, lines = run("--seed", "1", "--steps", "100", "--self-check", bug)
    (seen,) = [line for line in lines if line["kind"] == "soak_bug"]
    assert (seen["bug"], seen["seen"]) == (bug, True)
    assert (code, lines[-1]["kind"], lines[-1]["violations"]) == (0, "soak_finished", 0)


def test_without_a_tracer_it_kills_by_time_and_says_what_it_cannot_show(tmp_path: Path) -> None:
    environ = {"PATH": str(tmp_path), "HOME": str(tmp_path)}
    command = [sys.executable, "-m", "tests.soak", "--json", "--seed", "3", "--steps", "120"]
    for ci, code in (("", 0), ("true", 1)):
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=environ | {"CI": ci},
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        last = json.loads(done.stdout.splitlines()[-1])
        assert (done.returncode, last["violations"], last["tracer"]) == (code, 0, False)
        assert "strace" in last["weak"]
        assert last["kills"] > 0
