"""Every launch from a torn tree mends it first and starts again on whole files."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import nedura
from nedura.records import write_json
from nedura.testing.installs import git
from nedura.update.commit.recovery_copy import publish
from nedura.update.source.torn import MODULES, is_torn
from nedura.whole import mend_own_tree
from tests.integration.checkout.test_torn import half_moved, write_dead_marker
from tests.integration.checkout.trees import Tree, make_tree

SOURCE = Path(nedura.__file__).parents[1]


@pytest.fixture
def own(tmp_path: Path) -> Tree:
    """A checkout of this very code, small enough to start the command."""
    origin = tmp_path / "origin"
    for name in ("nedura", "renderers/cli/nedura_cli", "renderers/gateway/nedura_gateway"):
        shutil.copytree(SOURCE / name, origin / name, ignore=shutil.ignore_patterns("__pycache__", "testing"))
    git(origin, "init", "-q", "-b", "main")
    git(origin, "add", "-A")
    git(origin, "commit", "-q", "-m", "one")
    git(tmp_path, "clone", "-q", str(origin), str(tmp_path / "checkout"))
    return Tree(origin, tmp_path / "checkout")


def launch(
    tree: Tree, home: Path, words: tuple[str, ...] = ("nedura_cli", "profile", "list")
) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join(str(tree.checkout / part) for part in ("", "renderers/cli", "renderers/gateway"))
    env = {**os.environ, "PYTHONPATH": paths, "NEDURA_HOME": str(home), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [sys.executable, "-m", *words],
        env=env,
        cwd="/",
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )


def test_the_command_mends_its_own_tree_and_runs(own: Tree, tmp_path: Path) -> None:
    """Even when the repair modules themselves are torn."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    pre = own.head
    own.commit(
        {
            "nedura/clock.py": "VALUE = 2\n",
            "extra.py": "x\n",
            **dict.fromkeys(MODULES, "TORN = (\n"),
        }
    )
    target = own.fetch()
    assert publish(own.runner(), pre) is not None
    (own.checkout / "nedura/clock.py").write_text("VALUE =")
    (own.checkout / "extra.py").write_text("x\n")
    for name in MODULES:
        (own.checkout / name).write_text("TORN = (\n")
    write_dead_marker(own, pre, target)
    done = launch(own, home)
    assert done.returncode == 0, done.stderr
    assert "default" in done.stdout
    assert (own.head, own.status) == (pre, [])
    assert not is_torn(str(own.checkout))
    again = launch(own, home)
    assert again.returncode == 0
    assert again.stderr == ""


@pytest.mark.parametrize("module", ["nedura_gateway", "nedura_gateway.main"])
def test_the_gateway_mends_its_own_tree_first(own: Tree, tmp_path: Path, module: str) -> None:
    """A unit starts it without the command in front: it must not come up on half a tree."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    pre = own.head
    own.commit({"renderers/gateway/nedura_gateway/app.py": "TORN = (\n", "extra.py": "x\n"})
    target = own.fetch()
    assert publish(own.runner(), pre) is not None
    (own.checkout / "renderers/gateway/nedura_gateway/app.py").write_text("TORN = (")
    write_dead_marker(own, pre, target)
    done = launch(own, home, (module, "--help"))
    assert done.returncode == 0, done.stderr
    assert (own.head, own.status, is_torn(str(own.checkout))) == (pre, [], False)


def test_the_gateway_does_not_start_on_a_tree_that_cannot_be_mended(own: Tree, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    write_dead_marker(own, own.head, "f" * 40)
    (own.checkout / "nedura/skins.py").write_text("mine = 1\n")
    done = launch(own, home, ("nedura_gateway", "--help"))
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert done.stderr.startswith("nedura-gateway: ")


def test_what_cannot_be_mended_stops_the_launch_with_one_line(tmp_path: Path) -> None:
    tree = make_tree(tmp_path)
    write_dead_marker(tree, tree.head, "f" * 40)
    (tree.checkout / "README").write_text("mine\n")
    changed, reason = mend_own_tree(str(tree.checkout))
    assert not changed
    assert "gone" in reason
    assert "\n" not in reason
    assert is_torn(str(tree.checkout))


def test_a_torn_tree_is_put_back_in_process(tmp_path: Path) -> None:
    tree, pre, _ = half_moved(tmp_path)
    assert mend_own_tree(str(tree.checkout)) == (True, "")
    assert (tree.head, tree.status) == (pre, [])


def test_a_whole_tree_costs_nothing(tmp_path: Path) -> None:
    tree = make_tree(tmp_path)
    assert mend_own_tree(str(tree.checkout)) == (False, "")
    assert mend_own_tree(str(tmp_path / "nowhere")) == (False, "")


def test_a_swap_is_undone_too(tmp_path: Path) -> None:
    live = tmp_path / "live"
    live.mkdir()
    (live / "pkg.nedura-update-old").mkdir()
    (live / "pkg.nedura-update-old/a.py").write_text("old\n")
    (live / "pkg").mkdir()
    record = {
        "pid": 2**22 - 3,
        "create_time": 1.0,
        "phase": "swapping",
        "entries": [{"name": "pkg", "was_there": True}],
    }
    write_json(live / ".nedura-update-swap.json", record)
    assert mend_own_tree(str(live)) == (True, "")
    assert (live / "pkg/a.py").read_text() == "old\n"
    assert os.listdir(live) == ["pkg"]


def test_without_a_copy_it_says_so(tmp_path: Path) -> None:
    tree, _, _ = half_moved(tmp_path)
    code = (
        "import sys, builtins\nreal = builtins.__import__\n"
        "def broken(name, *a, **k):\n"
        "    if 'torn' in (a[2] or ()) if len(a) > 2 else False: raise SyntaxError('torn')\n"
        "    return real(name, *a, **k)\n"
        "builtins.__import__ = broken\nfrom nedura.whole import mend_own_tree\nprint(mend_own_tree(sys.argv[1]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tree.checkout)], capture_output=True, text=True, check=True
    )
    assert "no copy of the repair code" in done.stdout
