"""Real gateway processes and other victims for tests of the fleet."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs

from nedura.fleet import ask_now, find_socket
from nedura.installs import CodeIdentity

ROOT = Path(__file__).resolve().parents[2]
SLOW = "nedura.testing.handlers:slow_words"


def wait_for(condition: Callable[[], Any], timeout: float = 25.0, what: str = "it") -> Any:
    """Poll a condition until it is true and return its value."""
    end = time.monotonic() + timeout
    while not (value := condition()):
        if time.monotonic() > end:
            raise AssertionError(f"{what} did not happen within {timeout} s")
        time.sleep(0.02)
    return value


async def wait_async(condition: Callable[[], Any], timeout: float = 10.0, what: str = "it") -> Any:
    """`wait_for` on a running loop."""
    end = time.monotonic() + timeout
    while not (value := condition()):
        if time.monotonic() > end:
            raise AssertionError(f"{what} did not happen within {timeout} s")
        await asyncio.sleep(0.01)
    return value


def child_environ(home: Path, **more: str) -> dict[str, str]:
    """Environment of a child that serves one home."""
    environ = {
        **os.environ,
        "NEDURA_HOME": str(home),
        "PYTHONPATH": str(ROOT),
        "PYTHONUNBUFFERED": "1",
        **more,
    }
    environ.setdefault("HOME", str(home))
    return environ


@attrs.define
class Gateway:
    """One gateway process of a home.

    Attributes:
        home: its home.
        process: the process.
        log: its stderr.
    """

    home: Path
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    def said(self) -> str:
        return self.log.read_text("utf-8", "replace")

    def identify(self) -> dict[str, Any] | None:
        return ask_now(self.home, "identify")

    def code(self) -> CodeIdentity:
        """What it says it runs. A test compares with this, not with the checkout's HEAD, which may move while the test runs."""
        answer = self.identify()
        assert answer is not None
        names = ("install_id", "code_sha", "code_version")
        return CodeIdentity(**{name: answer[name] for name in names})

    def state(self) -> str:
        """What its state file says; the writer is a moment behind the socket."""
        try:
            return str(json.loads((self.home / "gateway_state.json").read_text())["gateway_state"])
        except FileNotFoundError:
            return ""

    def wait_running(self, timeout: float = 45.0) -> dict[str, Any]:
        def running() -> dict[str, Any] | None:
            if self.process.poll() is not None:
                raise AssertionError(f"the gateway ended with {self.process.returncode}: {self.said()}")
            answer = self.identify()
            good = answer and answer["gateway_state"] == "running" and self.state() == "running"
            return answer if good else None

        found: dict[str, Any] = wait_for(running, timeout, "running")
        return found

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self, timeout: float = 40.0) -> int:
        return self.process.wait(timeout)

    def connect(self) -> socket.socket:
        path = find_socket(self.home, "chat", os.environ)
        assert path is not None
        link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        link.settimeout(40)
        link.connect(str(path))
        return link

    def chat(self, text: str, chat: str = "t") -> list[dict[str, Any]]:
        """Send one message and read its answer to the end."""
        with self.connect() as link:
            return say(link, text, chat)


def say(link: socket.socket, text: str, chat: str = "t") -> list[dict[str, Any]]:
    """One message on an open connection; the lines up to `done`."""
    link.sendall(json.dumps({"text": text, "chat": chat}).encode() + b"\n")
    return read_answer(link)


def read_answer(link: socket.socket) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []
    with link.makefile("rb") as reader:
        for line in reader:
            lines.append(json.loads(line))
            if lines[-1].get("done"):
                break
    return lines


@contextmanager
def gateway(
    home: Path,
    *arguments: str,
    handler: str = SLOW,
    environ: Mapping[str, str] | None = None,
    command: tuple[str, ...] = ("-m", "nedura_cli.main", "gateway", "run"),
    ready: bool = True,
) -> Iterator[Gateway]:
    """Start a gateway on a home; it is ended and reaped when the block ends."""
    home.mkdir(parents=True, exist_ok=True)
    log = home.parent / f"{home.name}.log"
    with open(log, "ab") as stream:
        process = subprocess.Popen(
            [sys.executable, *command, *(("--handler", handler) if handler else ()), *arguments],
            cwd=ROOT,
            env=child_environ(home, **(environ or {})),
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
        )
    daemon = Gateway(home, process, log)
    try:
        if ready:
            daemon.wait_running()
        yield daemon
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(10)
