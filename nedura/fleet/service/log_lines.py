"""The newest lines that a gateway wrote: from the manager's journal, else from the log in its home."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from nedura.fleet.supervisors.base import RestartError
from nedura.fleet.supervisors.systemctl import Systemctl, run_bounded
from nedura.programs import find_program
from nedura.text import clean, redact

__all__ = ["newest_lines"]

LINES: Final = 20
_TAIL_BYTES: Final = 64 * 1024
_JOURNAL_SECONDS: Final = 5.0


async def newest_lines(
    home: Path, *, unit: str = "", scope: str = "", environ: Mapping[str, str] | None = None
) -> tuple[str, ...]:
    """Cleaned and redacted lines, the oldest first; none when there is no log or it may not be read.

    Args:
        home: the gateway's home.
        unit: its systemd unit; empty for a gateway of launchd or by hand, whose log lies in its home.
        scope: `user` or `system` for a unit.
        environ: where PATH comes from; default this process's.
    """
    environ = os.environ if environ is None else environ
    text = ""
    if unit and scope in ("user", "system"):
        text = await _journal(unit, scope, environ)
    text = text or _tail(home / "logs" / "gateway.log")
    return tuple(clean(redact(line), 500) for line in text.splitlines()[-LINES:])


async def _journal(unit: str, scope: str, environ: Mapping[str, str]) -> str:
    program = find_program("journalctl", environ)
    if program is None:
        return ""
    argv = (program, *(("--user",) if scope == "user" else ()), "--no-pager", "-q", "-o", "short-iso", "-n", str(LINES),
            f"--unit={unit}")  # fmt: skip
    manager = Systemctl("user" if scope == "user" else "system", environ=environ)
    try:
        ran = await run_bounded(argv, manager.environment(), _JOURNAL_SECONDS)
    except RestartError:
        return ""  # a journal that does not answer hides nothing else of the status
    return ran.out if ran.status == 0 else ""


def _tail(path: Path) -> str:
    """The end of a plain file; a link or a pipe is none."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        info = os.fstat(handle)
        if not stat.S_ISREG(info.st_mode):
            return ""
        start = max(0, info.st_size - _TAIL_BYTES)
        return os.pread(handle, _TAIL_BYTES, start).decode("utf-8", "replace")
    finally:
        os.close(handle)
