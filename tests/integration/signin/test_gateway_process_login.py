"""`/login` in a whole gateway process, with whatever standard streams it was given."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nedura.signin import AccountStore
from nedura.testing.portal import PortalControl, portal_process
from nedura_gateway.login import STOPPED
from tests.kits.fleet import ROOT, Gateway, child_environ, say, wait_for

MODULE = f"{shlex.quote(sys.executable)} -m nedura_gateway"


@pytest.fixture(scope="module")
def portal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PortalControl]:
    with portal_process(tmp_path_factory.mktemp("portal"), "--interval", "1") as control:
        yield control


@contextmanager
def started(home: Path, portal: PortalControl, where: str, command: str = MODULE) -> Iterator[Gateway]:
    """A gateway as a shell line starts it, for example with closed outputs."""
    home.mkdir(parents=True, exist_ok=True)
    log = home.parent / "err"
    log.touch()
    process = subprocess.Popen(
        ["/bin/sh", "-c", f"exec {command} {where}"],
        cwd=ROOT,
        env=child_environ(home, NEDURA_PORTAL_BASE_URL=portal.url),
    )
    daemon = Gateway(home, process, log)
    try:
        daemon.wait_running()
        yield daemon
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(10)


@pytest.mark.parametrize("where", ["<&- >&- 2>&-", "> /dev/full 2> /dev/full"], ids=["closed", "full"])
def test_a_gateway_without_usable_streams_can_be_signed_in(
    tmp_path: Path, portal: PortalControl, where: str
) -> None:
    portal.knobs(auto_approve="alice@example.test")
    with started(tmp_path / "home", portal, where) as daemon:
        said = daemon.chat("/login")
        assert said[-2:] == [{"delta": "Signed in as alice@example.test.\n"}, {"done": True}]
        assert AccountStore(daemon.home).read().email == "alice@example.test"
        if sys.platform == "linux":
            streams = {os.readlink(f"/proc/{daemon.pid}/fd/{number}") for number in range(3)}
            assert streams <= {"/dev/null", "/dev/full"}, "a socket of the gateway is a standard stream"
        daemon.signal(signal.SIGUSR1)
        assert daemon.wait() == 75


def test_a_restart_ends_a_waiting_login_at_once_and_leaves_no_traceback(
    tmp_path: Path, portal: PortalControl
) -> None:
    portal.knobs(auto_approve="")
    log = shlex.quote(str(tmp_path / "err"))
    with started(tmp_path / "home", portal, f"2> {log}") as daemon, daemon.connect() as link:
        link.sendall(b'{"text": "/login"}\n')
        reader = link.makefile("rb")
        lines = [json.loads(reader.readline()) for _ in range(4)]
        assert "share it with nobody" in lines[-1]["delta"]
        with daemon.connect() as other, daemon.connect():
            assert say(other, "/login", "elsewhere")[-1] == {"done": True}
            daemon.signal(signal.SIGUSR1)
            assert json.loads(reader.readline())["copy"] == STOPPED
            assert daemon.wait(10) == 75
        assert "Traceback" not in daemon.said()
    assert not AccountStore(daemon.home).read().email


def test_an_interrupt_before_it_serves_is_one_line_and_130(tmp_path: Path) -> None:
    home = tmp_path / "home"
    process = subprocess.Popen(
        ["/bin/sh", "-c", f"exec {MODULE} --handler nedura.testing.handlers:slow_words"],
        cwd=ROOT, env=child_environ(home, PYTHONPATH=str(_hold(tmp_path))),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    wait_for((tmp_path / "held").exists, 30, "the import")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (130, "", "\nnedura-gateway: interrupted.\n")


def _hold(folder: Path) -> Path:
    """A start that stands still at an import of the gateway's own, until a signal comes."""
    (folder / "sitecustomize.py").write_text(
        "import importlib.abc, pathlib, sys, time\n"
        f"sys.path.insert(1, {str(ROOT)!r})\n"
        "class Hold(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'nedura_gateway.app':\n"
        f"            pathlib.Path({str(folder / 'held')!r}).touch(); time.sleep(30)\n"
        "sys.meta_path.insert(0, Hold())\n"
    )
    return folder


def test_the_help_names_what_was_typed_and_says_when_it_is_lost(tmp_path: Path) -> None:
    def run(words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["/bin/sh", "-c", f"exec {MODULE} {words}"], cwd=ROOT, env=child_environ(tmp_path), capture_output=True,
            text=True, timeout=30, check=False,
        )  # fmt: skip

    shown = run("--help")
    assert (shown.returncode, shown.stdout.splitlines()[0].split("[")[0]) == (0, "usage: nedura-gateway ")
    lost = run("--help > /dev/full")
    assert (lost.returncode, lost.stderr) == (
        1, "nedura-gateway: the output could not be written: No space left on device.\n",
    )  # fmt: skip


def test_a_help_that_nobody_reads_ends_as_the_commands_does(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        ran = subprocess.run(
            [sys.executable, "-m", "nedura_gateway", "--help"], cwd=ROOT, env=child_environ(tmp_path),
            stdout=writer, stderr=subprocess.PIPE, text=True, timeout=30, check=False,
        )  # fmt: skip
    finally:
        os.close(writer)
    assert (ran.returncode, ran.stderr) == (141, "")
