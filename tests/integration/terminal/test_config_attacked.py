"""`nedura config` against slips: nothing that a person wrote is lost to a wrong key, a wrong value or a refused edit."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from nedura.config import edit_config, set_value
from nedura.config_keys import KEYS, parse_value
from nedura.errors import ConfigError, UsageError
from tests.kits.terminal import open_screen

Run = Callable[..., CompletedProcess[str]]


@pytest.mark.parametrize("value", ["x", "null", "[1]", "3", ""])
def test_a_value_never_wipes_out_a_section(tmp_path: Path, nedura: Run, value: str) -> None:
    written = "display:\n  skin: ares # mine\n"
    (tmp_path / "config.yaml").write_text(written)
    done = nedura("config", "set", "display", value)
    assert done.returncode == 1
    assert "display.KEY" in done.stderr
    assert (tmp_path / "config.yaml").read_text() == written


def test_an_empty_section_and_a_section_for_a_section_can_be_set(tmp_path: Path) -> None:
    edit_config(tmp_path, lambda content: set_value(content, "a", {}))
    edit_config(tmp_path, lambda content: set_value(content, "a", 1))
    assert edit_config(tmp_path, lambda content: set_value(content, "a", {"b": 2})).get("a") == {"b": 2}
    with pytest.raises(ConfigError, match="section"):
        edit_config(tmp_path, lambda content: set_value(content, "a", None))


@pytest.mark.parametrize("name", [name for name, key in KEYS.items() if key.kind == "whole"])
@pytest.mark.parametrize("text", ["-5", "-0", "1e3", "٣", "1_000", " ", "0x10"])
def test_seconds_and_counts_are_plain_numbers_from_0_up(name: str, text: str) -> None:
    with pytest.raises(UsageError, match="whole number from 0 up"):
        parse_value(Path("/nonexistent"), name, text)


def editor(folder: Path, body: str) -> str:
    path = folder / "editor"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return os.fspath(path)


@pytest.mark.parametrize("answer", ["n\r", "\x04", "\x03"], ids=["no", "end of input", "Ctrl-C"])
def test_an_edit_that_is_given_up_is_kept_beside_the_config(tmp_path: Path, answer: str) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "config.yaml").write_text("a: 1\n")
    program = editor(tmp_path, "printf 'a: [\\nlong work\\n' >$1")
    with open_screen(
        "config", "edit", home=home, columns=200, environ={"EDITOR": program, "VISUAL": ""}
    ) as screen:
        screen.until("Edit again")
        screen.send(answer)
        assert screen.ended() == 1
        assert "config.yaml.edited" in screen.text
        assert "Traceback" not in screen.text
    assert (home / "config.yaml").read_text() == "a: 1\n"
    assert (home / "config.yaml.edited").read_text() == "a: [\nlong work\n"


def test_an_edit_of_a_file_that_changed_meanwhile_ends_and_is_kept(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "config.yaml").write_text("a: 1\n")
    program = editor(tmp_path, f"echo 'a: 2' >{home}/config.yaml; echo 'a: 3' >$1")
    with open_screen(
        "config", "edit", home=home, columns=200, environ={"EDITOR": program, "VISUAL": ""}
    ) as screen:
        screen.until("config.yaml.edited")
        assert screen.ended() == 1
        assert "somebody else" in screen.text
    assert (home / "config.yaml").read_text() == "a: 2\n"
    assert (home / "config.yaml.edited").read_text() == "a: 3\n"


@pytest.mark.parametrize("plain", [False, True], ids=["drawn", "plain"])
def test_the_shell_says_at_its_start_that_the_config_is_broken(tmp_path: Path, plain: bool) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "config.yaml").write_text("a: [\n")
    with open_screen(*(["--plain"] if plain else []), home=home, columns=120) as screen:
        screen.until("config.yaml line 2")
        screen.until("nedura config edit")
        screen.send("\x04")
        assert screen.ended() == 0
