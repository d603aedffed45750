"""An update that never became a run: a dashboard and a chat that wait for its end hear of it, too."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kits.checkout import ROOTS
from tests.kits.pipeline import ROOT

ACTION = "0123456789abcdef" * 2


@pytest.mark.parametrize(
    ("words", "code", "place"),
    [
        (("--run-id", "/"), 2, "stdout"),
        (("--run-id", "/", "--json"), 2, "stderr"),
        (("--deadline", "-1"), 2, "stdout"),
    ],
)
def test_who_waits_hears_of_an_update_that_could_not_begin(
    tmp_path: Path, words: tuple[str, ...], code: int, place: str
) -> None:
    home = tmp_path / "home"
    home.mkdir(0o700)
    done = subprocess.run(
        [sys.executable, "-m", "nedura_cli.main", "update", "--gateway", *words],
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "NEDURA_HOME": str(home),
            "NEDURA_ACTION_ID": ACTION,
            "PYTHONPATH": os.pathsep.join(str(ROOT / root) for root in ROOTS),
        },
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == code, done.stderr
    marks = [line for line in getattr(done, place).splitlines() if line.startswith("===")]
    assert marks == [f"=== nedura update {ACTION}: failed with exit {code} ==="]
    assert (home / ".update_exit_code").read_text().strip() == "1"
