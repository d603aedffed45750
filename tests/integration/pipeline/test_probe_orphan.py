"""Found by the crash harness: a probe outlived an updater that was killed during validation and kept its generation leased."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from tests.kits.pipeline import gone

PARENT = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-m", "nedura_gateway.main"], start_new_session=True)
print(child.pid, flush=True)
time.sleep(300)
"""


def test_a_probe_ends_with_the_update_that_booted_it(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(0o700)
    environ = {
        **os.environ,
        "NEDURA_PROBE": "1",
        "NEDURA_HOME": str(home),
        "NEDURA_GATEWAY_LOCK_DIR": str(tmp_path / "locks"),
    }
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, env=environ, text=True)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    until = time.monotonic() + 40
    while not (home / "gateway_state.json").exists() and not gone(pid) and time.monotonic() < until:
        time.sleep(0.05)
    assert not gone(pid), "the probe runs"
    parent.kill()
    parent.wait()
    parent.stdout.close()
    while not gone(pid) and time.monotonic() < until + 10:
        time.sleep(0.05)
    assert gone(pid)
