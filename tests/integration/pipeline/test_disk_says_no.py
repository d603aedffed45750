"""A disk that cannot keep a new version says so: the flush before the commit point never passes over an error in silence."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash.strike import has_strace

CALL = """
import sys
from pathlib import Path
from nedura.update.generation.environment import sync_filesystem
sync_filesystem(Path(sys.argv[1]))
"""


def flush(folder: Path, *wrapper: str) -> subprocess.CompletedProcess[str]:
    command = [*wrapper, sys.executable, "-c", CALL, str(folder)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_a_flush_that_fails_is_an_error(tmp_path: Path) -> None:
    if not has_strace():
        pytest.skip("needs strace, which may trace here")
    assert flush(tmp_path).returncode == 0
    failed = flush(tmp_path, "strace", "-qq", "-o", "/dev/null", "-e", "inject=syncfs:error=EIO")
    assert failed.returncode == 1
    assert "OSError: [Errno 5]" in failed.stderr
