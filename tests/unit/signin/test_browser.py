"""When a browser is opened, and with what."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from nedura.signin.browser import REMOTE, TEXT_BROWSERS, open_page, why_not

DESK = {"DISPLAY": ":0", "PATH": "/usr/bin:/bin"}


@pytest.mark.parametrize("name", REMOTE)
def test_a_remote_session_opens_nothing(name: str) -> None:
    assert why_not({**DESK, name: "x"}, "linux")
    assert why_not({name: "x"}, "darwin")


@pytest.mark.parametrize("browser", sorted(TEXT_BROWSERS))
def test_a_text_mode_browser_is_never_started(browser: str) -> None:
    assert why_not({**DESK, "BROWSER": f"/usr/bin/{browser} --x"}, "linux")


def test_linux_needs_a_display() -> None:
    assert why_not({}, "linux")
    assert not why_not({"WAYLAND_DISPLAY": "wayland-0"}, "linux")
    assert not why_not({}, "darwin")


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "javascript:alert(1)",
        "-x",
        "--help",
        "https://portal@evil.example",
        "https://a\nb",
        "",
        "https://x y",
    ],
)
def test_nothing_but_a_plain_address_is_opened(url: str) -> None:
    def start(argv: Sequence[str]) -> None:
        raise AssertionError(argv)

    assert not open_page(url, {**DESK, "SSH_TTY": ""}, "linux", start)


def test_the_page_is_one_argument_of_an_argv(tmp_path: Path) -> None:
    seen: list[Sequence[str]] = []
    tmp_path.chmod(0o755)
    program = tmp_path / "open"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    url = "https://portal.example/device?user_code=A;touch%20x"
    assert open_page(url, {"PATH": str(tmp_path)}, "darwin", seen.append)
    assert [list(argv) for argv in seen] == [[str(program), url]]


def test_a_machine_without_an_opener_says_so() -> None:
    assert not open_page("https://portal.example/", {"DISPLAY": ":0", "PATH": ""}, "linux")


def test_a_program_that_cannot_start_is_no_crash() -> None:
    def start(argv: Sequence[str]) -> None:
        raise PermissionError

    assert not open_page("https://portal.example/", DESK, "linux", start)
