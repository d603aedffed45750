"""A test that leaves a process behind fails its session, which ends that process; with workers and without."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).resolve().parents[2]

LEAK = """
import os, subprocess, sys

def start(tmp_path, detached):
    code = "import os, sys, time; os.fork() and os._exit(0); os.setsid(); time.sleep(120)" if detached else "import time; time.sleep(120)"
    process = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "NEDURA_HOME": str(tmp_path / "home"), "MARK": "%s"})
    if detached:
        process.wait()
    return process

def test_one(tmp_path):
    start(tmp_path, %r)
"""
CLEAN = "\ndef test_two(tmp_path):\n    process = start(tmp_path, False)\n    process.kill()\n    process.wait()\n"


def run(folder: Path, text: str, *flags: str) -> subprocess.CompletedProcess[str]:
    (folder / "conftest.py").write_text(
        "from tests.kits.leaks import pytest_sessionfinish, pytest_testnodedown\n"
    )
    (folder / "test_leak.py").write_text(text)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, "-W", "ignore", f"--rootdir={folder}",
         f"--basetemp={folder / 'base'}", *flags, str(folder)],
        cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def marked(mark: str) -> list[int]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("MARK") == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except (psutil.Error, OSError):
            continue
    return found


@pytest.mark.parametrize(
    ("detached", "flags"),
    [(False, ("-n", "0")), (True, ("-n", "0")), (True, ("-n", "1"))],
    ids=["child", "detached", "detached, a worker"],
)
def test_a_process_left_behind_is_named_ended_and_fails_the_session(
    tmp_path: Path, detached: bool, flags: tuple[str, ...]
) -> None:
    ran = run(tmp_path, LEAK % (tmp_path, detached), *flags)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "1 passed" in ran.stdout
    assert "LEFT BEHIND by a test" in ran.stdout
    assert "/test_one0/home" in ran.stdout, "its home says whose it was"
    assert marked(str(tmp_path)) == []


def test_a_session_that_cleans_up_passes(tmp_path: Path) -> None:
    ran = run(tmp_path, (LEAK % (tmp_path, False)).replace("def test_one", "def one") + CLEAN, "-n", "0")
    assert (ran.returncode, "LEFT BEHIND" in ran.stdout) == (0, False), ran.stdout + ran.stderr
