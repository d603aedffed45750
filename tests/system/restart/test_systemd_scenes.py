from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.system.restart.scenes import SCENES
from tests.system.restart.service_scenes import SCENES as SERVICE_SCENES
from tests.system.restart.system_scenes import SCENES as SYSTEM_SCENES

ROOT = Path(__file__).resolve().parents[3]
HARNESS = ROOT / "tests/system/real-systemd.sh"

pytestmark = [pytest.mark.system, pytest.mark.root]


def missing() -> str:
    if os.geteuid() != 0:
        return "needs uid 0 (namespaces)"
    if not Path("/lib/systemd/systemd").exists():
        return "needs systemd (Debian: systemd dbus)"
    for program in ("unshare", "pgrep", "mount"):
        if shutil.which(program) is None:
            return f"needs {program}"
    return ""


def run_scene(module: str, name: str, *options: str, mode: str = "user") -> str:
    reason = missing()
    if reason and os.environ.get("CI") != "true":
        pytest.skip(reason)
    assert not reason, reason
    result = subprocess.run(
        [str(HARNESS), mode, "-n", *options, "--", sys.executable, "-X", "dev", "-W", "error", "-m", module, name],
        cwd=ROOT, capture_output=True, text=True, timeout=58, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.mark.parametrize("name", sorted(SCENES))
def test_under_a_real_user_manager(name: str) -> None:
    assert f"scene {name}: done" in run_scene("tests.system.restart.scenes", name)


@pytest.mark.parametrize("name", sorted(SERVICE_SCENES))
def test_service_verbs_under_a_real_user_manager(name: str) -> None:
    assert f"scene {name}: done" in run_scene("tests.system.restart.service_scenes", name)


@pytest.mark.parametrize("name", sorted(SYSTEM_SCENES))
def test_the_command_under_a_real_system_manager(name: str) -> None:
    assert f"scene {name}: done" in run_scene("tests.system.restart.system_scenes", name, mode="system")
