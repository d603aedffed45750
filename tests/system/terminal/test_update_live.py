"""`nedura update` of a real install with a live gateway, seen on a real terminal."""

from __future__ import annotations

import subprocess
import sys
import time
from itertools import pairwise

import pytest

from tests.kits.site import quick_tree, world
from tests.kits.terminal import open_screen


def bare_start() -> float:
    """Seconds that a bare interpreter needs now: a measure of how busy this machine is."""
    start = time.monotonic()
    for _ in range(3):
        subprocess.run([sys.executable, "-c", "pass"], check=True)
    return (time.monotonic() - start) / 3


@pytest.mark.timeout(240)
def test_stages_matrix_and_never_silent() -> None:
    with world() as here:
        here.start("default")
        before = here.pids(["default"])
        files = quick_tree({"NOTE": "newer\n"})
        here.site.origin.commit({"NOTE": files["NOTE"]}, "newer")
        busy = max(1.0, bare_start() / 0.02)
        with open_screen(
            "update", home=here.home, rows=30, columns=90, environ=here.environ, launcher=here.site.launcher
        ) as screen:
            screen.until("Checking this install", 60)
            first = screen.moments[1] - screen.moments[0]
            screen.until("Updated to", 150)
            assert screen.ended(60) == 0
        assert first < 1.0 * busy
        assert max(later - earlier for earlier, later in pairwise(screen.moments)) < 2.0 * busy
        shown = screen.text
        for part in (
            "Looking at the fleet",
            "Saving a snapshot",
            "Preparing the new version",
            "Restarting",
            "up to date",
        ):
            assert part in shown, part
        assert "default" in shown
        assert here.pids(["default"]) != before
        assert here.current == "000002"


# The newer code takes long to import, so that Ctrl-C always comes while the update is still looking at it.
SLOW_IMPORT = "\nimport time\n\ntime.sleep(40)\n"


@pytest.mark.timeout(240)
def test_ctrl_c_before_the_commit_changes_nothing_and_ends_130() -> None:
    files = quick_tree()
    product = files["nedura/product.py"]
    assert isinstance(product, bytes)
    with world(files) as here:
        here.site.origin.commit({"nedura/product.py": product + SLOW_IMPORT.encode()}, "newer")
        with open_screen(
            "update", home=here.home, environ=here.environ, launcher=here.site.launcher
        ) as screen:
            screen.until("Checking the new version", 60)
            screen.send("\x03")
            code = screen.ended(30)
        assert code == 130
        assert "Traceback" not in screen.text
        assert here.current == "000001"
        assert here.receipts()[-1]["outcome"] == "interrupted"
