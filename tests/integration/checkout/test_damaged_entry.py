"""Files of a checkout that are emptied, cut off or garbled without any move: one line, exit 1, and the way back that it names works."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import attrs
import pytest

from nedura.installs import InstallPaths, install_id_for
from nedura.product import NEDURA
from nedura.testing.installs import git
from nedura.update.completion.checkout_launcher import publish_checkout_launcher
from tests.integration.checkout.test_launch import launch
from tests.integration.checkout.test_launch import own as own  # the fixture
from tests.integration.checkout.trees import Tree

MAIN = "renderers/cli/nedura_cli/main.py"


@attrs.define
class Desk:
    """The launcher of a checkout of this code."""

    tree: Tree
    home: Path
    launcher: Path

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        env = {"PATH": os.environ["PATH"], "HOME": str(self.home), "PYTHONDONTWRITEBYTECODE": "1"}
        return subprocess.run(
            [self.launcher, *words], env=env, cwd="/", capture_output=True, text=True, timeout=50, check=False
        )


@pytest.fixture
def desk(own: Tree, tmp_path: Path) -> Desk:
    home = tmp_path / "a home é"
    home.mkdir(mode=0o700)
    paths = ":".join(str(own.checkout / part) for part in ("", "renderers/cli", "renderers/gateway"))
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={paths} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    install = InstallPaths(home, install_id_for(own.checkout))
    install.folder.mkdir(parents=True, mode=0o700)
    environ = {"PATH": os.environ["PATH"]}
    assert publish_checkout_launcher(install, NEDURA, own.checkout, str(python), environ) == ""
    return Desk(own, home, install.launcher())


def spoil(file: Path, how: str) -> None:
    data = file.read_bytes()
    match how:
        case "gone":
            file.unlink()
        case "empty":
            file.write_bytes(b"")
        case "blank":
            file.write_bytes(b"\n\n")
        case "garbled":
            file.write_bytes(os.urandom(200) + b"\0\x93")
        case "cut within":
            file.write_bytes(data[: int(len(data) * 0.6)])
        case "cut between":  # what is left compiles, and does nothing
            file.write_bytes(data[: data.index(b"\ndef main(")])


WAYS = ("gone", "empty", "blank", "garbled", "cut within", "cut between")


@pytest.mark.parametrize("how", WAYS)
def test_a_damaged_entry_point_is_said_and_put_back(desk: Desk, how: str) -> None:
    """Emptied, `nedura update` ended 0 and had done nothing."""
    file = desk.tree.checkout / MAIN
    spoil(file, how)
    for words in (("--version",), ("update", "--plan")):
        done = desk.run(*words)
        assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (1, "", 1), done.stderr
    assert done.stderr.startswith(f"nedura: this code is damaged: {file}: ")
    back = done.stderr.split("Put it back: ", 1)[1]
    subprocess.run(shlex.split(back), check=True)
    done = desk.run("--version")
    assert (done.returncode, done.stdout[:7], done.stderr) == (0, "nedura ", "")


def test_an_owners_edit_is_no_damage(desk: Desk) -> None:
    """Whatever its last line is now: a launcher may be older than the code that it starts."""
    file = desk.tree.checkout / MAIN
    file.write_text(file.read_text().replace("raise SystemExit(program())", "sys.exit(program())"))
    done = desk.run("--version")
    assert (done.returncode, done.stdout[:7], done.stderr) == (0, "nedura ", "")
    git(desk.tree.checkout, "commit", "-q", "-a", "-m", "mine")
    assert desk.run("--version").returncode == 0


def test_another_products_entry_point_is_only_asked_whether_it_is_empty(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "toy").mkdir(parents=True)
    (tree / "toy/__init__.py").write_text("")
    main = tree / "toy/main.py"
    main.write_text("print('toy')\n")
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={tree} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    install = InstallPaths(tmp_path / "home", "0" * 12)
    install.folder.mkdir(parents=True, mode=0o700)
    product = attrs.evolve(NEDURA, command="toy", main_modules=("toy.main",))
    environ = {"PATH": os.environ["PATH"]}
    assert publish_checkout_launcher(install, product, tree, str(python), environ) == ""
    said = subprocess.run([install.launcher("toy")], capture_output=True, text=True, check=False)
    assert (said.returncode, said.stdout, said.stderr) == (0, "toy\n", "")
    main.write_text("")
    said = subprocess.run([install.launcher("toy")], capture_output=True, text=True, check=False)
    assert (said.returncode, said.stdout) == (1, "")
    assert said.stderr == (
        f"toy: this code is damaged: {main}: it is empty. Put it back: unpack the release again\n"
    )


CLOSURE = (
    "nedura/_version.py",
    "nedura/errors.py",
    "nedura/pinned.py",
    "nedura/profile_flag.py",
    "nedura/commands/__init__.py",
    "renderers/cli/nedura_cli/output.py",
    "renderers/cli/nedura_cli/profile.py",
)


@pytest.mark.parametrize("how", ["gone", "empty", "garbled", "cut within"])
@pytest.mark.parametrize("name", CLOSURE)
def test_whatever_a_start_reads_is_named_in_one_line(own: Tree, tmp_path: Path, name: str, how: str) -> None:
    file = own.checkout / name
    spoil(file, how)
    version = name == "nedura/_version.py"
    done = launch(
        own, tmp_path, ("nedura_cli", "--version") if version else ("nedura_cli", "profile", "list")
    )
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (1, "", 1), done.stderr
    assert done.stderr.startswith("nedura: this code cannot be loaded: ")
    assert f"git -C {own.checkout} status" in done.stderr
    if how != "gone":
        assert str(file) in done.stderr
        subprocess.run(shlex.split(done.stderr.split("Put it back: ", 1)[1]), check=True)
        assert launch(own, tmp_path).returncode == 0


@pytest.mark.parametrize("reader", ["nedura/pinned.py", "nedura/profiles.py"])
def test_null_bytes_are_found_by_what_an_older_python_says(own: Tree, tmp_path: Path, reader: str) -> None:
    """Before 3.11.4 Python raises a plain ValueError without a file; here the module that reads first says what it would."""
    (own.checkout / reader).write_text("raise ValueError('source code string cannot contain null bytes')\n")
    spoil(own.checkout / "nedura/wrappers.py", "garbled")
    done = launch(own, tmp_path, ("nedura_cli", "profile", "list"))
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (1, "", 1), done.stderr
    assert f"this code cannot be loaded: ValueError in {own.checkout / 'nedura/wrappers.py'}: " in done.stderr
    assert done.stderr.rstrip().endswith("checkout -- nedura/wrappers.py")
