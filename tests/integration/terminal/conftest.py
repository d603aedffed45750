"""The real command on a scratch home."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def nedura(tmp_path: Path) -> Run:
    """Runs `nedura ARGS` on `tmp_path` as its root home."""

    def run(*argv: str, stdin: str = "", **environ: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "nedura_cli", *argv],
            env={**os.environ, "NEDURA_HOME": str(tmp_path), **environ},
            capture_output=True,
            text=True,
            check=False,
            input=stdin,
            timeout=40,
        )

    return run
