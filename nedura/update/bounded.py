"""Running other programs so that they always end: a time limit for the whole group, no wait for a pipe somebody else kept open.

Output goes to files without a name, not to pipes: when the direct child has ended, we are done, whatever it left behind.
Standard library only: the completion bootstrap uses it before any dependency exists.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Final, NamedTuple, ParamSpec, TypeVar

__all__ = ["Finished", "in_thread", "own_umask", "run_bounded", "to_the_end"]

P = ParamSpec("P")
T = TypeVar("T")

SLICE: Final = 0.1
MAX_OUTPUT: Final = 256 * 1024 * 1024
_stop: ContextVar[threading.Event | None] = ContextVar("nedura_bounded_stop", default=None)


class Finished(NamedTuple):
    """How a program ended.

    Attributes:
        code: exit status, negative for a signal.
        out, err: what it wrote, each at most 256 MiB.
        timed_out: our time limit ended it.
        stopped: the task that waited for it was cancelled.
    """

    code: int
    out: bytes
    err: bytes
    timed_out: bool = False
    stopped: bool = False


def run_bounded(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: str | Path = "/",
    stdin: bytes | None = None,
    timeout: float,
    sweep: bool = False,
    beat: Callable[[float], None] | None = None,
    beat_seconds: float = 20.0,
    umask: int = 0o077,
) -> Finished:
    """Run a program in a session of its own and wait for it, not for what it started.

    Args:
        argv: command and arguments.
        env: its whole environment.
        cwd: its folder.
        stdin: bytes for standard input; else it reads nothing.
        timeout: seconds; then its whole group is killed.
        sweep: kill what is left of its group after a normal end, too.
        beat: called with the elapsed seconds every `beat_seconds` while it runs.
        beat_seconds: how often.
        umask: mode mask of the program; -1 is ours, for what it writes into a folder of the owner's, but nobody else may write there: a
            place that others can write to is refused as a source of code.

    Raises:
        OSError: it cannot be started.
    """
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        if stdin:
            given.write(stdin)
            given.seek(0)
        child = subprocess.Popen(
            list(argv),
            env=dict(env),
            cwd=cwd,
            stdin=given if stdin else subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,  # no terminal to ask on, and one group to end
            umask=own_umask() | 0o022 if umask < 0 else umask,
        )
        why = "stopped"
        try:
            why = _wait(child, timeout, beat, beat_seconds)
        finally:
            if why or sweep:
                _end_group(child)
            child.wait()
        return Finished(
            child.returncode, _read(out.fileno()), _read(err.fileno()), why == "timeout", why == "stopped"
        )


def own_umask(status: str = "/proc/self/status") -> int:
    """Mode mask of this process.

    Args:
        status: where Linux says it; elsewhere it can only be told by setting it, for a moment to the strictest.
    """
    try:
        with open(status, encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.startswith("Umask:"):
                    return int(line.split()[1], 8)
    except (OSError, ValueError):
        pass
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _read(handle: int) -> bytes:
    size = min(os.fstat(handle).st_size, MAX_OUTPUT)
    return os.pread(handle, size, 0) if size else b""


def _wait(
    child: subprocess.Popen[bytes], timeout: float, beat: Callable[[float], None] | None, beat_seconds: float
) -> str:
    """Wait until the child has ended, without reaping it; returns why we stopped waiting, empty for its own end."""
    start = time.monotonic()
    next_beat = start + beat_seconds
    stop = _stop.get()
    with _Watch(child.pid) as ended:
        while True:
            now = time.monotonic()
            if ended(min(max(0.0, start + timeout - now), SLICE)):
                return ""
            if now - start >= timeout:
                return "timeout"
            if stop is not None and stop.is_set():
                return "stopped"
            if beat is not None and now >= next_beat:
                next_beat = now + beat_seconds
                beat(now - start)


class _Watch:
    """Asks whether a child of ours has ended and leaves it unreaped, so that its group id stays its own."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._handle = os.pidfd_open(pid) if hasattr(os, "pidfd_open") else -1

    def __enter__(self) -> Callable[[float], bool]:
        return self._poll_handle if self._handle >= 0 else self._poll_state

    def __exit__(self, *_: object) -> None:
        if self._handle >= 0:
            os.close(self._handle)

    def _poll_handle(self, seconds: float) -> bool:
        poll = select.poll()
        poll.register(self._handle, select.POLLIN)
        return bool(poll.poll(seconds * 1000))

    def _poll_state(self, seconds: float) -> bool:
        until = time.monotonic() + seconds
        while os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
            if time.monotonic() >= until:
                return False
            time.sleep(0.01)
        return True


def _end_group(child: subprocess.Popen[bytes]) -> None:
    """Kill the group that we made for the child: it is unreaped, so its id cannot be another's."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """`asyncio.to_thread` whose programs end when the waiting task is cancelled.

    Raises:
        asyncio.CancelledError: after the function has returned.
    """
    stop = threading.Event()

    def call() -> T:
        _stop.set(stop)
        return function(*args, **kwargs)

    return await to_the_end(call, stopped=stop.set)


async def to_the_end(function: Callable[[], T], *, stopped: Callable[[], object] = lambda: None) -> T:
    """`asyncio.to_thread` for work that is never abandoned half-way: its end is waited for, whoever is cancelled meanwhile.

    Args:
        function: the work.
        stopped: called when the waiting task is cancelled.

    Raises:
        asyncio.CancelledError: after the function has returned.
    """
    work = asyncio.ensure_future(asyncio.to_thread(function))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        stopped()
        await asyncio.wait([work])
        if not work.cancelled():
            work.exception()  # seen; the cancellation is what counts
        raise
