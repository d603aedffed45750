"""A checkout's launcher mends a torn tree before Python reads any of it: the very entry point may be the half-written file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nedura.installs import InstallPaths, install_id_for
from nedura.product import NEDURA
from nedura.update.commit.recovery_copy import publish
from nedura.update.completion.checkout_launcher import publish_checkout_launcher
from nedura.update.source.move_marker import MARKER
from nedura.update.source.torn import MODULES, is_torn
from nedura.whole import mend_from_outside
from tests.integration.checkout.test_launch import launch
from tests.integration.checkout.test_launch import own as own  # the fixture
from tests.integration.checkout.test_torn import write_dead_marker
from tests.integration.checkout.trees import Tree, make_tree

MAIN = "renderers/cli/nedura_cli/main.py"
ENTRIES = (
    MAIN,
    "renderers/cli/nedura_cli/__init__.py",
    "nedura/__init__.py",
    "nedura/_version.py",
    "nedura/_lazy.py",
    "nedura/streams.py",
    "nedura/whole.py",
    *MODULES,
)


class Desk:
    """A home with the launcher of a checkout of this code, torn in a move to a commit that lengthens every entry."""

    def __init__(self, tree: Tree, folder: Path) -> None:
        self.tree, self.home = tree, folder / "a home é"
        self.home.mkdir(mode=0o700)
        paths = ":".join(str(tree.checkout / part) for part in ("", "renderers/cli", "renderers/gateway"))
        python = folder / "python"
        python.write_text(f'#!/bin/sh\nPYTHONPATH={paths} exec {sys.executable} "$@"\n')
        python.chmod(0o755)
        install = InstallPaths(self.home, install_id_for(tree.checkout))
        install.folder.mkdir(parents=True, mode=0o700)
        environ = {"PATH": os.environ["PATH"]}
        assert publish_checkout_launcher(install, NEDURA, tree.checkout, str(python), environ) == ""
        self.launcher = install.launcher()
        self.pre = tree.head
        self.new = {name: (tree.checkout / name).read_text() + "\n# more\n" * 40 for name in ENTRIES}
        tree.commit(dict(self.new))
        self.target = tree.fetch()
        assert publish(tree.runner(), self.pre) is not None

    def tear(self, name: str, share: float | None) -> None:
        """The move ended while this path was written; None: while it was away."""
        write_dead_marker(self.tree, self.pre, self.target)
        place = self.tree.checkout / name
        if share is None:
            place.unlink()
        else:
            place.write_text(self.new[name][: int(len(self.new[name]) * share)])

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.launcher, *words],
            env={"PATH": os.environ["PATH"], "HOME": str(self.home), "PYTHONDONTWRITEBYTECODE": "1"},
            cwd="/",
            capture_output=True,
            text=True,
            timeout=50,
            check=False,
        )


def test_every_entry_may_be_the_torn_file(own: Tree, tmp_path: Path) -> None:
    desk = Desk(own, tmp_path)
    for name, share in [
        *((name, 0.4) for name in ENTRIES),
        (MAIN, 0.0),
        (MAIN, None),
        ("nedura/whole.py", None),
    ]:
        desk.tear(name, share)
        done = desk.run("--version")
        assert (done.returncode, done.stdout.split()[:1]) == (0, ["nedura"]), f"{name} {share}: {done.stderr}"
        assert "Traceback" not in done.stderr
        assert (own.head, own.status, is_torn(str(own.checkout))) == (desk.pre, [], False), name


def test_a_tree_that_waits_for_a_person_stops_the_launcher_with_one_line(own: Tree, tmp_path: Path) -> None:
    desk = Desk(own, tmp_path)
    desk.tear(MAIN, 0.4)
    (own.checkout / ".git/MERGE_HEAD").write_text("x")
    done = desk.run("profile", "list")
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (1, "", 1)
    assert done.stderr.startswith("nedura: somebody began a merge or rebase")


@pytest.mark.parametrize("own_too", [False, True])
def test_a_damaged_copy_is_not_run_by_the_launcher(own: Tree, tmp_path: Path, own_too: bool) -> None:
    """Nothing that differs from its commit may write into the tree; and a cut-off entry point must not end 0 without a word."""
    desk = Desk(own, tmp_path)
    desk.tear(MAIN, 0.4)
    ran = tmp_path / "ran"
    script = own.checkout / ".git/nedura-update-recovery" / desk.pre / MODULES[-1]
    for place in (script, own.checkout / MODULES[-1])[: 1 + own_too]:
        place.chmod(0o600)
        place.write_text(f"open({str(ran)!r}, 'w')\n" + place.read_text())
    done = desk.run("profile", "list")
    assert not ran.exists()
    if not own_too:
        assert (done.returncode, own.head, own.status) == (0, desk.pre, []), done.stderr
        return
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (1, "", 1)
    assert "copy of the repair code is damaged" in done.stderr
    assert (own.checkout / ".git" / MARKER).exists()


def test_a_move_that_ended_since_the_launcher_looked_is_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tree = make_tree(tmp_path)
    assert mend_from_outside(str(tree.checkout), "nedura") == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "name", ["nedura/__init__.py", "nedura/_lazy.py", "nedura/streams.py", "nedura/whole.py"]
)
def test_a_core_file_that_is_cut_off_without_any_move_is_named_in_one_line(
    own: Tree, tmp_path: Path, name: str
) -> None:
    """Nothing tells what belongs there, but the owner's git does."""
    whole = (own.checkout / name).read_text()
    (own.checkout / name).write_text(whole[: int(len(whole) * 0.4)])
    done = launch(own, tmp_path)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (1, "", 1), done.stderr
    assert done.stderr.startswith("nedura: this code cannot be loaded")
    assert str(own.checkout / name) in done.stderr
    assert f"git -C {own.checkout} status" in done.stderr
    assert "Traceback" in launch(own, tmp_path, ("nedura_cli", "--debug", "profile", "list")).stderr
