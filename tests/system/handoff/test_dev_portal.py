"""`nedura dev portal` as a person runs it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path


def test_dev_portal_runs_until_interrupted_and_logs_what_it_is_asked(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "nedura_cli",
        "dev",
        "portal",
        "--json",
        "--log-file",
        str(tmp_path / "log"),
    ]
    environ = {**os.environ, "NEDURA_HOME": str(tmp_path / "home")}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ
    )
    assert process.stdout is not None
    try:
        first = json.loads(process.stdout.readline())
        assert first["kind"] == "portal"
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"{first['url']}/device", timeout=10) as answer:
            assert "Code shown on your device" in answer.read().decode()
    finally:
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=20)
    assert (process.returncode, errors) == (0, "")
    (line,) = (tmp_path / "log").read_text().splitlines()
    assert json.loads(line)["route"] == "device_page"


def test_people_read_how_to_use_it(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "nedura_cli", "dev", "portal"]
    environ = {**os.environ, "NEDURA_HOME": str(tmp_path / "home")}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ)
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(4)]
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)
    assert "NEDURA_PORTAL_BASE_URL=http://127.0.0.1:" in lines[1]
    assert "/device" in lines[2]
