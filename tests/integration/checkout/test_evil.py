"""A checkout whose configuration runs programs: every trap fires under plain git, none under our move (threats.md 1)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nedura.testing.installs import git
from nedura.update.source.source_git import EXEC_KEYS, neutral
from nedura.update.source.torn import mend
from tests.integration.checkout.test_torn import write_dead_marker
from tests.integration.checkout.trees import FILES, Tree, make_tree, run_move


def arm(tree: Tree, tmp_path: Path) -> Path:
    """Every key and hook writes its own marker."""
    marks = tmp_path / "marks"
    marks.mkdir()

    def trap(name: str, more: str = "") -> str:
        script = tmp_path / f"trap-{name}"
        script.write_text(f'#!/bin/sh\n: > "{marks}/{name}"\n{more}')
        script.chmod(0o755)
        return str(script)

    included = tmp_path / "included"
    included.write_text(
        f'[filter "inc"]\n\tclean = {trap("include-clean", "cat")}\n\tsmudge = {trap("include-smudge", "cat")}\n'
    )
    settings = {
        "core.fsmonitor": trap("fsmonitor"),
        "core.hooksPath": str(tmp_path / "hooks"),
        "core.editor": trap("editor"),
        "core.pager": trap("pager"),
        "core.sshCommand": trap("ssh"),
        "filter.evil.clean": trap("clean", "cat"),
        "filter.evil.smudge": trap("smudge", "cat"),
        "filter.evil.required": "true",
        "filter.proc.process": trap("process", "exit 1"),
        "diff.external": trap("diff"),
        "diff.evil.textconv": trap("textconv", 'cat "$1"'),
        "diff.evil.command": trap("diffcommand"),
        "merge.evil.driver": trap("merge", "exit 0"),
        "gpg.program": trap("gpg"),
        "commit.gpgSign": "true",
        "credential.helper": trap("credential"),
        "include.path": str(included),
    }
    for key, value in settings.items():
        tree.git("config", key, value)
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    for name in (
        "post-checkout", "post-merge", "pre-commit", "post-commit", "post-index-change", "reference-transaction", "pre-auto-gc",
        "post-rewrite", "fsmonitor-watchman",
    ):  # fmt: skip
        (hooks / name).write_text(f'#!/bin/sh\n: > "{marks}/hook-{name}"\n')
        (hooks / name).chmod(0o755)
        (tree.checkout / ".git/hooks" / name).write_text(f'#!/bin/sh\n: > "{marks}/own-hook-{name}"\n')
        (tree.checkout / ".git/hooks" / name).chmod(0o755)
    return marks


ATTRIBUTES = "*.txt filter=evil diff=evil merge=evil\n*.py filter=inc\n*.dat filter=proc\n"
EVIL = {**FILES, ".gitattributes": ATTRIBUTES, "a.txt": "one\n" * 9, "p.dat": "x\n"}


def evil_tree(tmp_path: Path) -> Tree:
    tree = make_tree(tmp_path, EVIL)
    tree.commit({"a.txt": "one\n" * 9 + "theirs\n", "toy/value.py": "VALUE = 2\n", "p.dat": "y\n"}, "two")
    return tree


def test_the_traps_fire_under_plain_git(tmp_path: Path) -> None:
    tree = evil_tree(tmp_path)
    target = tree.fetch()
    marks = arm(tree, tmp_path)
    (tree.checkout / "a.txt").write_text("mine\n" + "one\n" * 9)
    (tree.checkout / "toy/value.py").write_text("VALUE = 3\n")
    (tree.checkout / "p.dat").write_text("z\n")
    tree.git("status", check=False)
    tree.git("-c", "core.fsmonitor=false", "add", "p.dat", check=False)
    quiet = ("-c", "core.fsmonitor=false", "-c", "filter.proc.process=")
    for args in (("add", "a.txt", "toy/value.py"), ("reset", "-q", "--hard"), ("checkout", "-q", target)):
        tree.git(*quiet, *args)
    fired = set(os.listdir(marks))
    expected = {"fsmonitor", "clean", "smudge", "include-clean", "include-smudge", "process"}
    assert (
        expected | {"hook-post-index-change", "hook-reference-transaction", "hook-post-checkout"} <= fired
    ), fired


@pytest.mark.parametrize("edited", ["a.txt", "toy/main.py"])
async def test_none_fires_under_our_move(tmp_path: Path, edited: str) -> None:
    tree = evil_tree(tmp_path)
    target = tree.fetch()
    marks = arm(tree, tmp_path)
    path = tree.checkout / edited
    path.write_text("# mine\n" + path.read_text())
    result = await run_move(tree.job(target))
    assert result.error is None
    assert result.committed
    assert os.listdir(marks) == []
    head = (tree.checkout / ".git/refs/heads/main").read_text().strip()
    assert head == target
    kept = path.read_text().startswith("# mine\n") or result.actions
    assert kept, "the edit is back in its file or parked and named"


async def test_none_fires_when_branches_diverge_and_switch(tmp_path: Path) -> None:
    tree = evil_tree(tmp_path)
    tree.git("checkout", "-q", "-b", "feature")
    tree.commit({"mine.txt": "mine\n"}, "mine", where=tree.checkout)
    target = tree.fetch()
    marks = arm(tree, tmp_path)
    result = await run_move(tree.job(target, strategy="update_in_place"))
    assert result.committed
    assert os.listdir(marks) == []


def test_none_fires_when_a_torn_tree_is_mended(tmp_path: Path) -> None:
    tree = evil_tree(tmp_path)
    pre, target = tree.head, tree.fetch()
    marks = arm(tree, tmp_path)
    (tree.checkout / "a.txt").write_text("")
    (tree.checkout / "toy/value.py").unlink()
    write_dead_marker(tree, pre, target)
    assert mend(str(tree.checkout)).action == "put_back"
    assert os.listdir(marks) == []
    assert (tree.checkout / "toy/value.py").read_text() == "VALUE = 1\n"


async def test_inherited_variables_do_not_steer_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = evil_tree(tmp_path)
    target = tree.fetch()
    job = tree.job(target)
    for name, value in {
        "GIT_DIR": "/nowhere", "GIT_WORK_TREE": "/nowhere", "GIT_INDEX_FILE": str(tmp_path / "index"), "GIT_TRACE": str(tmp_path / "trace"),
        "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "core.fsmonitor", "GIT_CONFIG_VALUE_0": f"touch {tmp_path}/env",
        "GIT_EXEC_PATH": "/nowhere", "GIT_EXTERNAL_DIFF": f"touch {tmp_path}/ext",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    result = await run_move(job)
    assert result.error is None
    assert not {"index", "trace", "env", "ext"} & set(os.listdir(tmp_path))


@pytest.mark.parametrize(
    "key",
    [
        "core.editor",
        "filter.x.clean",
        "filter.a.b.smudge",
        "merge.x.driver",
        "diff.external",
        "diff.x.textconv",
        "branch.a.mergeoptions",
    ],
)
def test_keys_that_name_programs_are_known(key: str) -> None:
    assert EXEC_KEYS.match(key)
    (setting,) = neutral([key])
    assert setting.startswith(f"{key}=")


@pytest.mark.parametrize(
    "key", ["core.autocrlf", "user.name", "remote.origin.url", "merge.x.name", "filter.x.other"]
)
def test_other_keys_are_left_alone(key: str) -> None:
    assert not EXEC_KEYS.match(key)


def test_the_owners_line_end_settings_are_carried_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = make_tree(tmp_path)
    home = tmp_path / "owner"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    git(home, "config", "--file", str(home / ".gitconfig"), "core.autocrlf", "input")
    git(home, "config", "--file", str(home / ".gitconfig"), "core.pager", "evil")
    options = tree.runner().options
    assert "core.autocrlf=input" in options
    assert not any("evil" in option for option in options)
