"""The programs of examples/ do what they show, as a person starts them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from nedura.fleet import ask_now
from nedura.signin import AccountStore, Kind
from nedura.testing.portal import portal_process
from tests.kits.fleet import ROOT, wait_for


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir(mode=0o700)
    return folder


def environ(home: Path, **more: str) -> dict[str, str]:
    return {**os.environ, "NEDURA_HOME": str(home), **more}


def test_the_sign_in_example_signs_in(home: Path, tmp_path: Path) -> None:
    with portal_process(tmp_path, "--interval", "1", "--approve", "alice@example.test") as portal:
        done = subprocess.run(
            [sys.executable, str(ROOT / "examples/sign_in.py")],
            env=environ(home, NEDURA_PORTAL_BASE_URL=portal.url, NOUS_INFERENCE_BASE_URL=f"{portal.url}/v1"),
            capture_output=True,
            text=True,
            timeout=40,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Signed in as alice@example.test" in done.stdout
    assert AccountStore(home).read().kind(0) is Kind.ACCOUNT


def test_the_daemon_example_joins_the_fleet_and_restarts_by_the_rules(home: Path) -> None:
    with subprocess.Popen(
        [sys.executable, str(ROOT / "examples/host_daemon.py")], env=environ(home), stdout=subprocess.PIPE, text=True
    ) as daemon:  # fmt: skip
        try:
            told = wait_for(lambda: ask_now(home, "identify"), 20, "the daemon's answer")
            assert told["pid"] == daemon.pid
            daemon.send_signal(signal.SIGUSR1)
            assert daemon.wait(20) == 75, "a restart is drained and asks its manager for a successor"
            assert daemon.stdout is not None
            assert daemon.stdout.read() == "one unit of work\n"
        finally:
            daemon.kill()
