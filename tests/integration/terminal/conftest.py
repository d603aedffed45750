"""The real command on a scratch home."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nedura.testing.portal import PortalControl, portal_process

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


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home of a shell."""
    folder = tmp_path / "home"
    folder.mkdir(mode=0o700)
    return folder


@pytest.fixture
def portal(tmp_path: Path) -> Iterator[PortalControl]:
    """A development portal that also answers as the model route, with one paid account."""
    with portal_process(tmp_path, "--interval", "1") as control:
        control.account("alice@example.test", tier="paid")
        control.knobs(inference="self")
        yield control
