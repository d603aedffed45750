"""`gateway status -l`: the newest lines of a gateway, from its manager's journal or from its home."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nedura.fleet.service.log_lines import LINES, newest_lines


def journal(folder: Path, text: str, status: int = 0) -> dict[str, str]:
    """An environment whose `journalctl` writes down how it was called and says `text`."""
    folder.mkdir()
    tool = folder / "journalctl"
    (folder / "says").write_text(text)
    tool.write_text(f'#!/bin/sh\necho "$@" > {folder}/called\ncat {folder}/says\nexit {status}\n')
    tool.chmod(0o755)
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}


def log_of(home: Path, text: str) -> Path:
    (home / "logs").mkdir(parents=True)
    (home / "logs" / "gateway.log").write_text(text)
    return home


@pytest.mark.parametrize(("scope", "flag"), [("user", "--user "), ("system", "")])
async def test_a_unit_is_read_from_its_own_managers_journal(tmp_path: Path, scope: str, flag: str) -> None:
    environ = journal(tmp_path / "bin", "one\ntwo\n")
    log_of(tmp_path / "home", "from the home\n")
    lines = await newest_lines(
        tmp_path / "home", unit="nedura-gateway-x.service", scope=scope, environ=environ
    )
    assert lines == ("one", "two")
    called = (tmp_path / "bin" / "called").read_text()
    assert called.startswith(f"{flag}--no-pager")
    assert called.endswith("--unit=nedura-gateway-x.service\n")


@pytest.mark.parametrize(("text", "status"), [("", 0), ("no rights\n", 1)])
async def test_a_journal_that_says_nothing_leaves_the_log_of_the_home(
    tmp_path: Path, text: str, status: int
) -> None:
    environ = journal(tmp_path / "bin", text, status)
    home = log_of(tmp_path / "home", "from the home\n")
    lines = await newest_lines(home, unit="nedura-gateway.service", scope="user", environ=environ)
    assert lines == ("from the home",)


async def test_only_the_newest_lines_cleaned_and_without_a_secret(tmp_path: Path) -> None:
    secret = "sk-" + "a" * 40
    text = "".join(f"line {number}\n" for number in range(50_000)) + f"token={secret}\n\x1b[31mred\x07\n"
    lines = await newest_lines(log_of(tmp_path / "home", text))
    assert len(lines) == LINES
    assert lines[0] == f"line {50_000 - LINES + 2}"
    assert not any(secret in line or "\x1b" in line or "\x07" in line for line in lines)


async def test_a_link_a_pipe_and_nothing_are_no_log(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("another file\n")
    home = tmp_path / "home"
    (home / "logs").mkdir(parents=True)
    assert await newest_lines(home) == ()
    (home / "logs" / "gateway.log").symlink_to(tmp_path / "secret")
    assert await newest_lines(home) == ()
    (home / "logs" / "gateway.log").unlink()
    os.mkfifo(home / "logs" / "gateway.log")
    assert await newest_lines(home) == ()
