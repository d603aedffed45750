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
from nedura.update.source.move_marker import read_marker, write_marker
from nedura.update.source.torn import MODULES, is_torn
from nedura.whole import mend_own_tree
from tests.integration.checkout.test_torn import half_moved, own_tree, write_dead_marker
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


def stuck(tmp_path: Path) -> tuple[Tree, Path]:
    """A torn tree whose repair fails each time: a folder that must be a file again is not empty."""
    tree, _, _ = half_moved(tmp_path)
    (tree.checkout / "old.txt").mkdir()
    (tree.checkout / "old.txt/somebodys").write_text("x")
    program = tmp_path / "git"
    program.write_text(
        '#!/bin/sh\nfor w; do [ "$w" = read-tree ] && { echo x >> "$0.tries"; exit 1; }; done\nexec git "$@"\n'
    )
    program.chmod(0o755)
    marker = read_marker(tree.runner().git_dir)
    assert marker is not None
    write_marker(tree.runner().git_dir, marker._replace(git=str(program)))
    return tree, Path(f"{program}.tries")


def test_a_repair_that_fails_is_tried_by_three_launches_then_by_a_persons_update(tmp_path: Path) -> None:
    tree, log = stuck(tmp_path)
    root = str(tree.checkout)
    for number in (1, 2, 3):
        changed, reason = mend_own_tree(root)
        assert not changed
        assert "cannot be mended" in reason
        assert len(log.read_text().split()) == number
    for _ in range(4):
        changed, reason = mend_own_tree(root)
        assert not changed
        assert reason.startswith("3 tries to repair this install failed (")
        assert reason.endswith("remove the cause, then run: nedura update")
    assert len(log.read_text().split()) == 3, "exactly three"
    assert "cannot be mended" in mend_own_tree(root, again=True)[1]
    assert len(log.read_text().split()) == 4
    (tmp_path / "git").write_text('#!/bin/sh\nexec git "$@"\n')
    assert "4 tries" in mend_own_tree(root)[1]
    assert mend_own_tree(root, again=True) == (True, "")
    assert not is_torn(root)
    assert not list((tree.checkout / ".git").glob("*tries*")), "the next damage begins at none"


def test_a_repair_that_kills_its_launch_counts(tmp_path: Path) -> None:
    tree, _ = stuck(tmp_path)
    (tmp_path / "git").write_text(
        '#!/bin/sh\nfor w; do [ "$w" = read-tree ] && { kill -9 $PPID; sleep 5; }; done\nexec git "$@"\n'
    )
    script = "import sys; from nedura.whole import mend_own_tree; print(mend_own_tree(sys.argv[1]))"
    codes = []
    for _ in range(4):
        done = subprocess.run(
            [sys.executable, "-c", script, str(tree.checkout)], capture_output=True, text=True, check=False
        )
        codes.append(done.returncode)
    assert codes == [-9, -9, -9, 0]
    assert "3 tries" in done.stdout


def test_waiting_for_a_person_is_no_try(tmp_path: Path) -> None:
    tree, _, _ = half_moved(tmp_path)
    (tree.checkout / ".git/MERGE_HEAD").write_text("x")
    for _ in range(5):
        assert "somebody began a merge" in mend_own_tree(str(tree.checkout))[1]
    (tree.checkout / ".git/MERGE_HEAD").unlink()
    assert mend_own_tree(str(tree.checkout)) == (True, "")


def test_a_swap_that_cannot_be_undone_is_tried_three_times(tmp_path: Path) -> None:
    live = tmp_path / "live"
    live.mkdir()
    (live / ".nedura-update-swap.json").write_text(
        '{"pid": 4194301, "create_time": 1.0, "phase": "?", "entries": 5}'
    )
    said = [mend_own_tree(str(live))[1] for _ in range(5)]
    assert [text.startswith("3 tries") for text in said] == [False] * 3 + [True] * 2
    assert "3 tries" not in mend_own_tree(str(live), again=True)[1]


def test_a_copy_that_was_changed_is_never_run(tmp_path: Path) -> None:
    """The hash of each module is the commit's: a copy that a disk or a person damaged does not touch the tree."""
    tree = own_tree(tmp_path)
    pre = tree.head
    tree.commit({"toy/value.py": "VALUE = 2\n", **dict.fromkeys(MODULES, "TORN = (\n")})
    target = tree.fetch()
    folder = publish(tree.runner(), pre)
    assert folder is not None
    for name in MODULES:
        (tree.checkout / name).write_text("TORN = (\n")
    write_dead_marker(tree, pre, target)
    ran = tmp_path / "ran"
    script = folder / MODULES[-1]
    whole = script.read_text()
    script.chmod(0o600)
    script.write_text(f"open({str(ran)!r}, 'w')\n" + whole)
    code = "import sys; sys.path.insert(0, sys.argv[2]); from nedura.whole import mend_own_tree; print(mend_own_tree(sys.argv[1]))"
    shutil.copy(SOURCE / "nedura/whole.py", tree.checkout / "nedura/whole.py")
    words = [sys.executable, "-I", "-c", code, str(tree.checkout), str(tree.checkout)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert "copy of the repair code is damaged" in done.stdout, done.stderr
    assert not ran.exists()
    script.write_text(whole)
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert "(True, '')" in done.stdout, done.stderr


def test_own_repair_code_that_is_only_partly_new_is_not_trusted(tmp_path: Path) -> None:
    """It may import and yet be half a file: whatever differs from the published copy is left to the copy."""
    tree = own_tree(tmp_path)
    pre = tree.head
    tree.commit(
        {
            "toy/value.py": "VALUE = 2\n",
            MODULES[-1]: "def mend(root, *, again=False):\n    raise SystemExit('half')\n",
        }
    )
    target = tree.fetch()
    assert publish(tree.runner(), pre) is not None
    (tree.checkout / MODULES[-1]).write_text(
        "def mend(root, *, again=False):\n    raise SystemExit('half')\n"
    )
    write_dead_marker(tree, pre, target)
    code = "import sys; sys.path.insert(0, sys.argv[1]); from nedura.whole import mend_own_tree; print(mend_own_tree(sys.argv[1]))"
    shutil.copy(SOURCE / "nedura/whole.py", tree.checkout / "nedura/whole.py")
    done = subprocess.run(
        [sys.executable, "-I", "-c", code, str(tree.checkout)], capture_output=True, text=True, check=False
    )
    assert "(True, '')" in done.stdout, done.stderr
    assert (tree.head, is_torn(str(tree.checkout))) == (pre, False)


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
