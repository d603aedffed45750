"""`nedura auth upgrade` with a person at the terminal."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from nedura.testing.portal import PortalControl, portal_process
from tests.kits.terminal import open_screen


@pytest.fixture
def portal(tmp_path: Path) -> Iterator[PortalControl]:
    with portal_process(tmp_path, "--interval", "1") as control:
        control.account("alice@example.test", tier="paid")
        yield control


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir(mode=0o700)
    return folder


@pytest.mark.parametrize(("rows", "columns"), [(24, 80), (20, 40)])
def test_link_code_time_and_keys(home: Path, portal: PortalControl, rows: int, columns: int) -> None:
    environ = {"NEDURA_PORTAL_BASE_URL": portal.url}
    with open_screen("auth", "upgrade", home=home, rows=rows, columns=columns, environ=environ) as screen:
        screen.until("Esc cancels")
        code = portal.wait_for_code()
        assert f"code:  {code}" in screen.text or code in screen.text.replace("\n", "")
        assert re.search(r"code \S+, \d+:\d\d left", screen.text)
        assert "No browser is opened here" in screen.text
        screen.send("c")
        screen.until("Asked your terminal")
        assert b"\x1b]52;c;" in screen.raw
        portal.decide(code)
        screen.until("Signed in as")
        assert screen.ended() == 0
        assert "c copies" not in "\n".join(screen.lines)


@pytest.mark.parametrize("key", ["\x1b", "\x03", "q"])
def test_a_cancel_is_exit_130_and_saves_nothing(home: Path, portal: PortalControl, key: str) -> None:
    environ = {"NEDURA_PORTAL_BASE_URL": portal.url}
    with open_screen("auth", "upgrade", home=home, environ=environ) as screen:
        screen.until("c copies")
        screen.send(key)
        screen.until("cancelled")
        assert screen.ended() == 130
    assert not (home / "auth.json").exists()


def test_plain_stays_append_only(home: Path, portal: PortalControl) -> None:
    environ = {"NEDURA_PORTAL_BASE_URL": portal.url, "ACCESSIBLE": "1"}
    with open_screen("auth", "upgrade", home=home, environ=environ) as screen:
        screen.until("To sign in, open this page:")
        portal.decide(portal.wait_for_code())
        screen.until("Signed in as")
        assert screen.ended() == 0
        assert b"\x1b" not in screen.raw
