"""`nedura dev portal` as a person runs it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from nedura_cli.main import main


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


def test_what_cannot_be_served_is_said_at_once_and_plainly(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(*words: str) -> tuple[int, str]:
        code = main(["dev", "portal", *words])
        said = capsys.readouterr()
        assert said.out == ""
        return code, said.err

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert refused("--port", port) == (
            1, f"nedura: Port {port} cannot be used: Address already in use. Choose another one, or 0 for a free one.\n",
        )  # fmt: skip
    assert refused("--port", "99999") == (2, "nedura: A port is 0 to 65535, not 99999.\n")
    code, said = refused("--log-file", str(tmp_path / "nowhere" / "log"))
    assert (code, "nowhere does not exist" in said) == (1, True), said
