"""Completion scripts, asked by the real shells."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pexpect
import pytest

from nedura.commands import build_parser, each_parser
from nedura.profiles import create_profile
from nedura_cli.completion import nodes, script

Run = Callable[..., CompletedProcess[str]]


BARE = {"bash": ["--norc"], "zsh": ["-f"], "fish": ["--no-config"]}


def ask(shell: str, program: str, home: Path, tmp_path: Path, *words: str) -> str:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    (tmp_path / "script").write_text(script(shell))
    done = subprocess.run(
        [shell, *BARE[shell], "-c", program, *words],
        env={
            "PATH": "/usr/bin:/bin",
            "HOME": str(tmp_path),
            "NEDURA_HOME": str(home),
            "SCRIPT": str(tmp_path / "script"),
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=20,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def bash(home: Path, tmp_path: Path, *words: str) -> list[str]:
    program = 'source "$SCRIPT"; COMP_WORDS=(nedura "$0" "$@"); COMP_CWORD=$#; ((COMP_CWORD++)); _nedura; echo "${COMPREPLY[@]}"'
    return ask("bash", program, home, tmp_path, *words).split()


def fish(home: Path, tmp_path: Path, *words: str) -> list[str]:
    told = ask("fish", f"source $SCRIPT; complete -C 'nedura {' '.join(words)}'", home, tmp_path)
    return [row.split("\t")[0] for row in told.splitlines()]


def zsh(home: Path, tmp_path: Path, *words: str) -> list[str]:
    """`compadd` prints what it is given, in place of the line editor's own."""
    program = (
        'compdef() { :; }; _files() { :; }; compadd() { while [[ "$1" == -* && "$1" != "--" ]]; do shift; done; '
        '[[ "$1" == "--" ]] && shift; print -l -- $@ }; source "$SCRIPT"; words=(nedura "$@"); CURRENT=${#words}; _nedura'
    )
    found = ask("zsh", program, home, tmp_path, "zsh", *words).split()
    return [one for one in found if one.startswith(words[-1])]


@pytest.mark.parametrize("complete", [bash, zsh, fish])
def test_words_options_and_profiles(tmp_path: Path, complete: Callable[..., list[str]]) -> None:
    home = tmp_path / "home"
    create_profile(home, "coder")
    assert "profile" in complete(home, tmp_path, "pro")
    assert "create" in complete(home, tmp_path, "profile", "cr")
    assert "--json" in complete(home, tmp_path, "profile", "list", "--js")
    assert "coder" in complete(home, tmp_path, "-p", "co")
    assert "zsh" in complete(home, tmp_path, "completion", "zs")


def typed(home: Path, tmp_path: Path, line: str) -> str:
    """What a real prompt of bash makes of a line and one TAB: only it breaks words as it does."""
    (tmp_path / "script").write_text(script("bash"))
    shell = pexpect.spawn(
        "bash",
        ["--norc", "--noprofile", "-i"],
        env={
            "PATH": "/usr/bin:/bin",
            "HOME": str(tmp_path),
            "NEDURA_HOME": str(home),
            "TERM": "dumb",
            "PS1": "$ ",
        },
        cwd=str(tmp_path),
        encoding="utf-8",
        timeout=20,
    )
    try:
        shell.sendline("source ./script; nedura() { printf '<%s>' \"$*\"; echo; }; echo 're''ady'")
        shell.expect("\nready\r\n")
        shell.sendline(f"{line}\t")
        shell.expect(r"\r\n<([^>]*)>")
        return str(shell.match.group(1)).strip()
    finally:
        shell.close(force=True)


def test_a_value_behind_an_equals_sign_is_completed(tmp_path: Path) -> None:
    home = tmp_path / "home"
    for name in ("coder", "update"):
        create_profile(home, name)
    assert typed(home, tmp_path, "nedura --profile=co") == "--profile=coder"
    assert typed(home, tmp_path, "nedura profile list --profile=co") == "profile list --profile=coder"
    assert typed(home, tmp_path, "nedura --profile=coder profile lis") == "--profile=coder profile list"
    assert {"coder", "default"} <= set(bash(home, tmp_path, "--profile", "="))
    assert zsh(home, tmp_path, "--profile=co") == ["--profile=coder"]
    assert "--profile=coder" in fish(home, tmp_path, "--profile=co")


@pytest.mark.parametrize("complete", [bash, zsh, fish])
def test_a_profile_with_the_name_of_a_command_is_no_command(
    tmp_path: Path, complete: Callable[..., list[str]]
) -> None:
    home = tmp_path / "home"
    create_profile(home, "update")
    assert "create" in complete(home, tmp_path, "-p", "update", "profile", "cr")


@pytest.mark.parametrize("complete", [bash, zsh])
def test_options_before_the_command_do_not_confuse(
    tmp_path: Path, complete: Callable[..., list[str]]
) -> None:
    home = tmp_path / "home"
    create_profile(home, "coder")
    assert "coder" in complete(home, tmp_path, "-v", "profile", "use", "co")


@pytest.mark.parametrize("complete", [bash, zsh, fish])
def test_the_value_of_an_option_is_completed_and_is_no_command(
    tmp_path: Path, complete: Callable[..., list[str]]
) -> None:
    home = tmp_path / "home"
    create_profile(home, "coder")
    for words, value in (
        (("update", "--channel", "sta"), "stable"),
        (("update", "--set-channel", "can"), "canary"),
        (("profile", "create", "--clone-from", "co"), "coder"),
        (("skin", "new", "--from", "mo"), "mono"),
        (("pm", "convert", "--environment", "ma"), "managed"),
    ):
        assert complete(home, tmp_path, *words) == [value], words
    assert "create" in complete(home, tmp_path, "-m", "update", "profile", "cr")
    assert "list" not in complete(home, tmp_path, "--provider", "l")
    assert "verify" not in complete(home, tmp_path, "backup", "--output", "v"), "a file, and nothing of ours"


def test_the_script_knows_every_command() -> None:
    assert {node.path for node in nodes()} == {path for path, _ in each_parser(build_parser())}


def test_the_command_prints_it(nedura: Run) -> None:
    for shell in ("bash", "zsh", "fish"):
        assert nedura("completion", shell).stdout == script(shell) + "\n"
    assert nedura("completion", "csh").returncode == 2


def test_keys_and_skins_complete_and_profiles_are_the_roots_from_inside_one(tmp_path: Path) -> None:
    create_profile(tmp_path, "coder")
    inside = create_profile(tmp_path, "ops").home
    for home in (tmp_path, inside):
        assert {"coder", "ops", "default"} <= set(bash(home, tmp_path, "profile", "use", ""))
        assert {"coder", "ops", "default"} <= set(bash(home, tmp_path, "-p", ""))
        assert {"coder", "ops"} <= set(fish(home, tmp_path, "-p", "''")) if shutil.which("fish") else True
    assert "display.skin" in bash(tmp_path, tmp_path, "config", "set", "dis")
    assert bash(tmp_path, tmp_path, "config", "get", "model.d") == ["model.default"]
    assert {"ares", "mono"} <= set(bash(tmp_path, tmp_path, "skin", "use", ""))
    assert {word for node in nodes() if node.path == ("skin", "show") for word, _ in node.words} >= {"slate"}
