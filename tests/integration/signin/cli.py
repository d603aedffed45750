"""Runs the command against a portal in another process: in this process where that is enough, as a real one where it is not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import attrs
import pytest

from nedura.testing.portal import PortalControl
from nedura_cli.main import main


@attrs.frozen(kw_only=True)
class Ran:
    """What a command said."""

    code: int
    out: str
    err: str

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def kinds(self) -> list[str]:
        return [event["kind"] for event in self.events]


@attrs.define
class Machine:
    """A user's home and a portal."""

    folder: Path
    portal: PortalControl
    monkeypatch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]
    extra: dict[str, str] = attrs.field(factory=dict)

    @property
    def home(self) -> Path:
        return self.folder / ".nedura"

    @property
    def environ(self) -> dict[str, str]:
        base = {"PATH": os.environ["PATH"], "HOME": str(self.folder), "LANG": "C.UTF-8"}
        return base | {"NEDURA_PORTAL_BASE_URL": self.portal.url} | self.extra

    def run(self, *words: str) -> Ran:
        """Run a command here."""
        self.monkeypatch.delenv("NEDURA_HOME", raising=False)
        for name, value in self.environ.items():
            self.monkeypatch.setenv(name, value)
        self.capsys.readouterr()
        code = main(words)
        said = self.capsys.readouterr()
        return Ran(code=code, out=said.out, err=said.err)

    def sign_in(self, *words: str, account: str = "alice@example.test", action: str = "approve") -> Ran:
        """Run a login and be its person."""
        before = self.pending()
        trouble: list[BaseException] = []

        def person() -> None:
            try:
                self.portal.decide(self.fresh_code(before), action, account)
            except BaseException as error:  # told by the test's own thread
                trouble.append(error)

        thread = threading.Thread(target=person)
        thread.start()
        ran = self.run(*(words or ("auth", "upgrade", "--json")))
        thread.join()
        assert not trouble, (trouble, ran)
        return ran

    def pending(self) -> set[str]:
        """Codes that wait for somebody."""
        return {
            str(grant["user_code"]) for grant in self.portal.state()["grants"] if grant["status"] == "pending"
        }

    def fresh_code(self, before: set[str]) -> str:
        """The code that a login just asked for."""
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            if fresh := self.pending() - before:
                return fresh.pop()
            time.sleep(0.02)
        raise AssertionError("no code was asked for")

    def begin(self, *words: str) -> subprocess.Popen[str]:
        """Start a login as a process of its own; returns once its code is out."""
        before = self.pending()
        process = subprocess.Popen(
            [sys.executable, "-m", "nedura_cli", *words], env=self.environ, text=True, cwd="/",
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        self.fresh_code(before)
        return process

    def interrupt(self, *words: str) -> Ran:
        """Run a login as a process of its own and press Ctrl-C at the code."""
        process = self.begin(*words)
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=45)
        return Ran(code=process.returncode, out=out, err=err)

    def auth(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.home / "auth.json").read_text())
        return found
