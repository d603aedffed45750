"""A tree without git that nobody else owns: plan, update and check give the same answer, and none of them promises an update."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import nedura
from nedura.product import NEDURA
from nedura.records import make_folder
from nedura.update.planning.admission import find_subject, refusal_of
from nedura.update.planning.observe import Machine
from nedura.update.planning.plan import plan_update

SOURCE = Path(nedura.__file__).parents[1]
ROOTS = ("", "renderers/cli", "renderers/gateway")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """This very code, unpacked without its repository."""
    for name in ("nedura", "renderers/cli/nedura_cli", "renderers/gateway/nedura_gateway"):
        shutil.copytree(
            SOURCE / name,
            tmp_path / "tree" / name,
            ignore=shutil.ignore_patterns("__pycache__", "testing"),
        )
    make_folder(tmp_path / "home")
    return tmp_path / "tree"


def command(tree: Path, *words: str) -> subprocess.CompletedProcess[str]:
    home = tree.parent / "home"
    paths = os.pathsep.join(str(tree / root) for root in ROOTS)
    env = {**os.environ, "PYTHONPATH": paths, "HOME": str(home), "NEDURA_HOME": str(home / "n")}
    return subprocess.run(
        [sys.executable, "-B", "-m", "nedura_cli", *words],
        env=env,
        cwd="/",
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )


async def test_the_plan_promises_nothing(tree: Path) -> None:
    plan = await plan_update(home=tree.parent / "home", anchor=tree / "nedura/text.py")
    assert (plan.install_method, plan.updatable_in_place) == ("unknown", False)
    assert "without .git" in plan.copy_terminal
    assert "./run install" in plan.copy_terminal


def test_another_owners_answer_comes_first(tree: Path) -> None:
    root = tree.parent / "machine"
    make_folder(root / "etc/nedura")
    (root / "etc/nedura/image-label").write_text("registry.example/team/nedura\n")
    machine = Machine(root=root, executable="/usr/bin/python3")
    subject = find_subject(tree.parent / "home", NEDURA, {}, anchor=tree / "nedura/text.py", machine=machine)
    refusal = refusal_of(subject.kind)
    assert refusal is not None
    assert refusal.code == "docker"


def test_the_update_stops_before_any_snapshot_and_says_what_to_do(tree: Path) -> None:
    done = command(tree, "update")
    assert done.returncode == 1, done.stderr
    told = done.stdout + done.stderr
    assert "without .git" in told
    assert "./run install" in told
    assert "snapshot" not in told
    check = command(tree, "update", "--check")
    assert "./run install" in check.stdout + check.stderr
