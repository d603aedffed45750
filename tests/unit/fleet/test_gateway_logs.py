"""The gateway's log levels."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import logging, sys
from nedura_gateway.logs import set_up_logging
set_up_logging(verbose=sys.argv[1] == "-v")
logging.getLogger("httpx").info("HTTP Request: POST /token")
logging.getLogger("nedura.fleet").info("ours")
"""


def lines(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words], capture_output=True, text=True, timeout=30, check=True
    )
    return done.stderr


def test_a_request_is_a_line_of_the_log_only_when_somebody_wants_details() -> None:
    quiet, wordy = lines("-"), lines("-v")
    assert "ours" in quiet
    assert "HTTP Request" not in quiet
    assert "HTTP Request" in wordy
