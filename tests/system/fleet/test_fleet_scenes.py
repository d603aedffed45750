"""The real gateway under a real systemd user manager."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.system.fleet.scenes import SCENES

ROOT = Path(__file__).resolve().parents[3]
HARNESS = ROOT / "tests/system/real-systemd.sh"

pytestmark = [pytest.mark.system, pytest.mark.root]


def missing() -> str:
    if os.geteuid() != 0:
        return "needs uid 0 (namespaces)"
    if not Path("/lib/systemd/systemd").exists():
        return "needs systemd (Debian: systemd dbus)"
    absent = [program for program in ("unshare", "pgrep", "mount") if shutil.which(program) is None]
    return f"needs {', '.join(absent)}" if absent else ""


@pytest.mark.parametrize("name", sorted(SCENES))
def test_under_a_real_user_manager(name: str) -> None:
    reason = missing()
    if reason:
        pytest.skip(reason)
    result = subprocess.run(
        [str(HARNESS), "user", "-n", "--", sys.executable, "-m", "tests.system.fleet.scenes", name],
        cwd=ROOT, capture_output=True, text=True, timeout=58, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr
    assert f"scene {name}: done" in result.stdout
