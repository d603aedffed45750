"""Ctrl-C while a command still starts: one line or nothing, exit code 130, never Python's own traceback."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from nedura.testing.installs import TOY_FILES, make_site
from tests.integration.checkout.test_launch import launch
from tests.integration.checkout.test_launch import own as own  # the fixture
from tests.integration.checkout.trees import Tree

STRUCK = "import os as _os, signal as _signal\n_os.kill(_os.getpid(), _signal.SIGINT)\n"
"""The keys are pressed while this very module is read."""

MOMENTS = {
    "the first import": ("nedura/streams.py", "--version", 0),
    "the version": ("nedura/_version.py", "--version", 0),
    "the look at the tree": ("nedura/whole.py", "profile list", 1),
    "the look at the pin": ("nedura/pinned.py", "profile list", 1),
    "the errors": ("nedura/errors.py", "profile list", 1),
    "the grammar": ("nedura/commands/__init__.py", "update --plan", 1),
    "the command": ("renderers/cli/nedura_cli/profile.py", "profile list", 1),
}


def strike(file: Path) -> None:
    """After the line that must come first in a module."""
    future = "from __future__ import annotations\n"
    text = file.read_text()
    assert future in text or file.name == "_version.py"
    file.write_text(text.replace(future, future + STRUCK, 1) if future in text else STRUCK + text)


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_start_that_is_interrupted_says_one_line_at_most(own: Tree, tmp_path: Path, moment: str) -> None:
    name, words, lines = MOMENTS[moment]
    strike(own.checkout / name)
    done = launch(own, tmp_path, ("nedura_cli.main", *words.split()))
    assert (done.returncode, done.stdout) == (130, ""), done.stderr
    assert done.stderr.strip() == ("nedura: interrupted." if lines else "")


def test_who_started_us_without_ctrl_c_is_not_overruled(own: Tree, tmp_path: Path) -> None:
    """A job in the background of a script has it ignored, and ends as ever."""
    strike(own.checkout / "nedura/streams.py")
    strike(own.checkout / "nedura/errors.py")
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        done = launch(own, tmp_path, ("nedura_cli.main", "profile", "list"))
    finally:
        signal.signal(signal.SIGINT, before)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("place", ["pin", "package"])
def test_a_sealed_start_is_quiet_from_its_pin_on(tmp_path: Path, place: str) -> None:
    files = {**TOY_FILES, **({"toy/__init__.py": STRUCK} if place == "package" else {})}
    site = make_site(tmp_path, files)
    if place == "pin":
        (pin,) = site.paths.generations.glob("000001/venv/lib/*/site-packages/_generation.py")
        pin.parent.chmod(0o755)
        text = pin.read_text()
        pin.unlink()
        pin.write_text(STRUCK + text)
    done = site.run()
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_a_programs_own_ctrl_c_is_its_own(tmp_path: Path) -> None:
    """A host's program that does not catch it shows what Python shows: the pin hides only what comes before the program."""
    site = make_site(tmp_path, {**TOY_FILES, "toy/main.py": STRUCK})
    done = site.run()
    assert done.returncode == -signal.SIGINT
    assert "KeyboardInterrupt" in done.stderr


def test_a_plan_that_is_interrupted_at_once_leaves_no_warnings(tmp_path: Path) -> None:
    """Parts that were never begun made Python complain in ten lines."""
    code = (
        "import asyncio, sys, warnings\nfrom pathlib import Path\n"
        "from nedura.clock import SystemClock\nfrom nedura.product import NEDURA\n"
        "from nedura.update.planning.plan_collect import collect_plan\n"
        "async def main():\n"
        "    home = Path(sys.argv[1])\n"
        "    task = asyncio.ensure_future(collect_plan(home, home, NEDURA, {}, SystemClock(), None))\n"
        "    await asyncio.sleep(0)\n    task.cancel()\n"
        "    await asyncio.wait([task])\n    print(task.cancelled())\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("True\n", "")
