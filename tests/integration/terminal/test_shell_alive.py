"""An open shell keeps the login of the profile it works on alive, and of no other."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

from nedura.profiles import create_profile
from nedura.signin import start_nous_auth_keepalive, stop_nous_auth_keepalive
from nedura_cli.look import find_look
from nedura_cli.shell.alive import Alive
from nedura_cli.shell.session import Session
from nedura_cli.shell.slash import parse


class Said:
    """A surface that only keeps what is said."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, text: str, key: str = "") -> None:
        self.lines.append(text)

    def __getattr__(self, name: str) -> Any:
        return lambda *given: None


def test_the_keepalive_goes_with_the_shell_to_another_profile(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    other = create_profile(home, "coder").home
    calls: list[tuple[str, Path]] = []
    alive = Alive(
        home, start=lambda one: calls.append(("start", one)), stop=lambda one: calls.append(("stop", one))
    )
    session = Session(home, find_look(home=home))
    session.moved = alive.follow
    face = Said()
    asyncio.run(session.run(parse("/profile coder"), face))
    assert session.home == other
    asyncio.run(session.run(parse("/profile coder"), face))
    asyncio.run(session.run(parse("/profile nobody"), face))
    alive.end()
    alive.end()
    assert calls == [("start", home), ("stop", home), ("start", other), ("stop", other)]


def test_the_real_workers_begin_and_end_with_it(tmp_path: Path) -> None:
    def workers() -> int:
        return sum(thread.name == "nedura-keepalive" for thread in threading.enumerate())

    before = workers()
    alive = Alive(tmp_path / "a", start=start_nous_auth_keepalive, stop=stop_nous_auth_keepalive)
    assert workers() == before + 1
    alive.follow(tmp_path / "b")
    assert workers() == before + 1
    start = time.monotonic()
    alive.end()
    assert time.monotonic() - start < 1
    assert workers() == before


def test_a_session_without_a_model_says_how_to_choose_one(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    session, face = Session(home, find_look(home=home)), Said()
    for typed in ("/model", "/status"):
        asyncio.run(session.run(parse(typed), face))
        assert any("/model ID --save" in line and "nedura model" in line for line in face.lines), typed
        face.lines.clear()
    (home / "config.yaml").write_text("model: hermes-4\n")
    asyncio.run(session.run(parse("/model"), face))
    assert face.lines == ["Model: hermes-4."], "the older form of the key counts, as it does for a message"
    (home / "config.yaml").write_text("model: [")
    asyncio.run(session.run(parse("/model"), face))
    assert "config.yaml line 1" in face.lines[-1]
