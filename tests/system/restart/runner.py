"""Runs one scene next to a real manager."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
HARNESS = ROOT / "tests/system/real-systemd.sh"


def missing() -> str:
    """What this machine lacks, empty when a real manager can run."""
    if os.geteuid() != 0:
        return "needs uid 0 (namespaces)"
    if not Path("/lib/systemd/systemd").exists():
        return "needs systemd (Debian: systemd dbus)"
    for program in ("unshare", "pgrep", "mount", "ip"):
        if shutil.which(program) is None:
            return f"needs {program}"
    return ""


def run_scene(module: str, name: str, *, mode: str = "user") -> None:
    """Run a scene; where a part is missing it is skipped with its reason."""
    reason = missing()
    if reason:
        pytest.skip(reason)
    hidden = mode == "system" and ROOT.is_relative_to("/tmp")  # where a machine of its own has a fresh folder
    keep = ["-b", str(ROOT)] if hidden else []
    harness = subprocess.Popen(
        [str(HARNESS), mode, "-n", *keep, "--", sys.executable, "-W", "error", "-m", module, name],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    try:
        told, _ = harness.communicate(timeout=115)
    except subprocess.TimeoutExpired:
        harness.terminate()  # it takes its namespaces along; a SIGKILL would leave them behind
        told, _ = harness.communicate(timeout=30)
        pytest.fail(f"scene {name} took too long:\n{told}")
    assert harness.returncode == 0, told
    assert f"scene {name}: done" in told
