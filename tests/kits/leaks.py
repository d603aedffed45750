"""Processes that tests leave behind are failures: looked for once, when a session (or one of its workers) ends.

Ours is what descends from this process, and what says in its environment that it lives below this session's temporary folder: a
detached process has lost its parent, but not that. Nothing else is looked at, so that sessions beside each other do not meet.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

__all__ = ["left_over", "pytest_sessionfinish", "pytest_testnodedown"]

GRACE_S = 3.0
_PLACES = ("NEDURA_HOME", "HOME", "XDG_RUNTIME_DIR")
_PYTHONS_OWN = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")
_found: list[str] = []


def left_over(base: Path) -> Iterator[psutil.Process]:
    """Live processes of a session.

    Args:
        base: its temporary folder.
    """
    me = psutil.Process()
    children = {child.pid for child in me.children(recursive=True)}
    above = {me.pid, *(parent.pid for parent in me.parents())}
    for process in psutil.process_iter():
        if process.pid in above:
            continue
        with contextlib.suppress(psutil.Error):
            if process.status() == psutil.STATUS_ZOMBIE or _is_pythons_own(process):
                continue
            if process.pid in children or _lives_below(process, base):
                yield process


def _is_pythons_own(process: psutil.Process) -> bool:
    line = " ".join(process.cmdline())
    return any(name in line for name in _PYTHONS_OWN)


def _lives_below(process: psutil.Process, base: Path) -> bool:
    try:
        environ = process.environ()
    except (psutil.AccessDenied, OSError):
        return False  # not ours, then
    return any(Path(environ.get(name, "/")).is_relative_to(base) for name in _PLACES)


def _describe(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.Error, OSError):
        home = process.environ().get("NEDURA_HOME") or process.environ().get("HOME", "")
        return f"process {process.pid} ({' '.join(process.cmdline())[:160]}) of {home}"
    return f"process {process.pid}"


def _end_left_overs(base: Path) -> list[str]:
    """Name them and end them; a process gets a moment to end by itself."""
    end = time.monotonic() + GRACE_S
    while (found := list(left_over(base))) and time.monotonic() < end:
        time.sleep(0.1)
    named = [_describe(process) for process in found]
    for process in found:
        with contextlib.suppress(psutil.Error):
            process.kill()
    return named


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Look, in a worker or in a session without workers; the session that has workers only sums up."""
    config: Any = session.config
    if not getattr(config.option, "numprocesses", None) or hasattr(config, "workeroutput"):
        factory = getattr(config, "_tmp_path_factory", None)
        if factory is None:
            return
        _found.extend(_end_left_overs(factory.getbasetemp().resolve()))
    if hasattr(config, "workeroutput"):
        config.workeroutput["left_over"] = _found
    elif _found:
        reporter = config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            reporter.ensure_newline()
            for line in _found:
                reporter.write_line(f"LEFT BEHIND by a test, ended now: {line}", red=True)
        if session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """What a worker found."""
    del error
    _found.extend(getattr(node, "workeroutput", {}).get("left_over", ()))
