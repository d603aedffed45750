"""What is made of a typed line: no IO."""

from __future__ import annotations

import pytest

from nedura_cli.shell.slash import parse


@pytest.mark.parametrize(
    ("typed", "near"),
    [
        ("/logni", "login"),
        ("/modle x", "model"),
        ("/prof", "profile"),
        ("/up", "update"),
        ("/stauts", "status"),
        ("/exti", "quit"),
        ("/LOGIM", "login"),
    ],
)
def test_a_typo_and_a_beginning_are_understood(typed: str, near: str) -> None:
    line = parse(typed)
    assert (line.command, line.near) == (None, near)


@pytest.mark.parametrize(
    "typed", ["/bogus", "/foo", "/clear", "/", "/ ", "/x", "/sudo", "/config", "/reset", "/ünï"]
)
def test_what_is_like_no_command_gets_no_suggestion(typed: str) -> None:
    assert parse(typed).near == ""
