"""The soak's seeded share, and the proof that it sees planted bugs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]


def run(*arguments: str) -> tuple[int, list[dict[str, Any]]]:
    command = [sys.executable, "-m", "tests.soak", "--json", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=170, check=False)
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.timeout(180)
def test_a_seeded_share_of_the_soak_finds_nothing() -> None:
    code, lines = run("--seed", "20261130", "--steps", "120")
    assert lines[-1]["kind"] == "soak_finished"
    assert [line for line in lines if line["kind"] == "soak_violation"] == []
    assert (code, lines[-1]["violations"], lines[-1]["steps"]) == (0, 0, 120)
    assert lines[-1]["requests"] > 20


@pytest.mark.system
@pytest.mark.timeout(180)
def test_the_soak_sees_every_planted_bug() -> None:
    if shutil.which("strace") is None and os.environ.get("CI") != "true":
        pytest.skip("strace is not here: a skipped fsync cannot be planted")
    code, lines = run("--seed", "1", "--steps", "200", "--self-check")
    seen = {line["bug"]: line["seen"] for line in lines if line["kind"] == "soak_bug"}
    assert seen == dict.fromkeys(
        ("skip_lease", "replay_token", "skip_fsync", "third_account", "not_a_renewal"), True
    )
    assert (code, lines[-1]["violations"]) == (0, 0)
