"""The completion child as a process: how it is started, heard, bounded and ended (facts/update.md 6.4, threats.md 5).

Its own session, so that one look finds everything it started; the lock's descriptor inherited; events over a pipe of their own,
stdout and stderr only logged. Whatever it sends is bounded: line length, number of events, bytes of output.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs
import psutil

from nedura.clock import Clock
from nedura.product import Product
from nedura.text import LineRedactor, clean
from nedura.update.ledger.lock import holders
from nedura.wire import MAX_LINE

__all__ = ["MAX_EVENTS", "MAX_OUTPUT", "Child", "ChildEnd", "child_argv", "child_environment", "exit_status"]

MAX_EVENTS: Final = 20_000
"""Events after which a child counts as flooding."""
MAX_OUTPUT: Final = 1024 * 1024
"""Bytes of stdout and stderr that are logged; the rest is read and thrown away."""
REAP_SECONDS: Final = 10.0
LEFTOVER_SECONDS: Final = 2.0
"""Seconds for which the event stream may stay open after the child has ended, before what holds it is ended, or left behind."""
_DROPPED: Final = ("VIRTUAL_ENV", "__PYVENV_LAUNCHER__")


def child_argv(
    bootstrap: Path, request: Path, result: Path, *, bytecode: Path, python: str | None = None
) -> list[str]:
    """The command line: isolated, no site, a private bytecode cache, started by path from the new tree."""
    interpreter = python or getattr(sys, "_base_executable", "") or sys.executable
    return [
        interpreter, "-I", "-S", "-u", "-X", "utf8", "-X", f"pycache_prefix={bytecode}", str(bootstrap), "complete",
        str(request), str(result),
    ]  # fmt: skip


def child_environment(environ: Mapping[str, str], home: Path, product: Product) -> dict[str, str]:
    """The parent's environment without anything that steers Python, and with the home said plainly."""
    kept = {
        key: value for key, value in environ.items() if not key.startswith("PYTHON") and key not in _DROPPED
    }
    return {**kept, product.env("HOME"): str(home), "PYTHONUNBUFFERED": "1"}


def exit_status(returncode: int) -> int:
    """A process's status as shells say it: 128+N for signal N."""
    return 128 - returncode if returncode < 0 else returncode


@attrs.define
class ChildEnd:
    """How a child ended.

    Attributes:
        status: its exit status, 128+N for a signal.
        stopped: why we ended it (`deadline`, `flood`, `cancelled`), empty when it ended by itself.
        last_words: the end of its output, cleaned, for a reason.
    """

    status: int = 0
    stopped: str = ""
    last_words: str = ""


class Child:
    """One completion child.

    Args:
        argv: command line; `events_fd` is announced in the request file.
        cwd: the new tree.
        environ: its environment.
        lock_fds: descriptors it inherits so that the install stays locked while it lives.
        clock: deadline.
        log: takes each line of its output.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        cwd: Path,
        environ: Mapping[str, str],
        lock_fds: Sequence[int],
        clock: Clock,
        log: Callable[[str], None],
        max_events: int = MAX_EVENTS,
    ) -> None:
        self.argv = list(argv)
        self.cwd = cwd
        self.environ = dict(environ)
        self.lock_fds = tuple(lock_fds)
        self.end = ChildEnd()
        self._clock = clock
        self._log = log
        self._max_events = max_events
        self._redact = LineRedactor()
        self._read_end, self.events_fd = os.pipe()
        self._output: asyncio.StreamReader | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._watch: asyncio.Task[None] | None = None
        self._events: asyncio.StreamReader | None = None
        self._transports: list[asyncio.ReadTransport] = []

    @property
    def pid(self) -> int:
        """Its process id; 0 before it runs."""
        return self._process.pid if self._process is not None else 0

    async def start(self) -> None:
        """Start it.

        Raises:
            OSError: it cannot be started.
        """
        output, written = os.pipe()  # our own: with asyncio's, `wait` waits for whoever else keeps it open
        try:
            self._output = await self._reader(output)
            self._process = await asyncio.create_subprocess_exec(
                *self.argv,
                cwd=self.cwd,
                env=self.environ,
                stdout=written,
                stderr=asyncio.subprocess.STDOUT,
                stdin=asyncio.subprocess.DEVNULL,
                start_new_session=True,
                pass_fds=(*self.lock_fds, self.events_fd),
            )
        finally:
            os.close(written)
            os.close(self.events_fd)
            self.events_fd = -1
        handle, self._read_end = self._read_end, -1
        self._events = await self._reader(handle)
        self._tasks.append(asyncio.ensure_future(self._drain_output()))
        self._watch = asyncio.ensure_future(self._end_stream())

    async def _end_stream(self) -> None:
        """The child has ended, but something it started keeps the event pipe open: nothing more is to be expected of that."""
        assert self._process is not None
        await self._process.wait()
        await asyncio.sleep(LEFTOVER_SECONDS)
        await end_session(self._process.pid, running=False, lock_fds=self.lock_fds)
        await asyncio.sleep(LEFTOVER_SECONDS)
        for transport in self._transports:  # another session keeps it; what was sent has been read by now
            transport.close()

    async def _reader(self, handle: int) -> asyncio.StreamReader:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=MAX_LINE, loop=loop)
        pipe = os.fdopen(handle, "rb", buffering=0)
        transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader, loop=loop), pipe
        )
        self._transports.append(transport)
        return reader

    async def records(self, deadline: float) -> AsyncGenerator[dict[str, Any], None]:
        """Its events as decoded records, until it ends or has to be ended.

        Args:
            deadline: clock seconds (`Clock.time`) after which it is ended.
        """
        seen = 0
        while True:
            line = await self._line(deadline)
            if line is None:
                break
            seen += 1
            if seen > self._max_events:
                self.end.stopped = "flood"
                break
            record = decode_line(line)
            if record is not None:
                yield record
        await self._finish(deadline)

    async def _line(self, deadline: float) -> bytes | None:
        """The next event line; None at the end of the stream or of our patience."""
        assert self._events is not None
        try:
            async with asyncio.timeout(max(0.0, deadline - self._clock.time())):
                return await self._events.readuntil(b"\n")
        except TimeoutError:
            self.end.stopped = "deadline"
        except asyncio.LimitOverrunError:
            self.end.stopped = "flood"
        except asyncio.IncompleteReadError:
            pass
        return None

    async def _finish(self, deadline: float) -> None:
        """The stream is over: wait for the process, or end what must end."""
        assert self._process is not None
        if not self.end.stopped:
            try:
                async with asyncio.timeout(max(1.0, deadline - self._clock.time())):
                    await self._process.wait()
            except TimeoutError:
                self.end.stopped = "deadline"
        await self.kill()

    async def kill(self) -> None:
        """End everything of its session that still runs, and whatever else holds the install's lock through it; reap it."""
        if self._watch is not None:
            self._watch.cancel()
        if self._process is None:
            self._close_fds()
            return
        running = self._process.returncode is None
        await end_session(self._process.pid, running=running, lock_fds=self.lock_fds)
        try:
            async with asyncio.timeout(REAP_SECONDS):
                await self._process.wait()
        except TimeoutError:
            pass  # it cannot be ended; its status says so below
        if self._tasks:
            _, unread = await asyncio.wait(self._tasks, timeout=LEFTOVER_SECONDS)
            for task in unread:
                task.cancel()
        self.end.status = exit_status(
            self._process.returncode if self._process.returncode is not None else 137
        )
        self._close_fds()

    def _close_fds(self) -> None:
        for transport in self._transports:
            transport.close()
        for name in ("_read_end", "events_fd"):
            handle = getattr(self, name)
            if handle >= 0:
                os.close(handle)
                setattr(self, name, -1)

    async def _drain_output(self) -> None:
        """Log its output line by line, bounded; read the rest so that it never blocks."""
        assert self._output is not None
        logged, rest = 0, b""
        while chunk := await self._output.read(MAX_LINE):
            if logged >= MAX_OUTPUT:
                continue
            logged += len(chunk)
            *lines, rest = (rest + chunk).split(b"\n")
            rest = rest[:MAX_LINE]
            for line in lines:
                self._say(line)
        if rest:
            self._say(rest)

    def _say(self, line: bytes) -> None:
        text = self._redact(clean(line.decode("utf-8", "replace"), 1000))
        if text:
            self.end.last_words = text[:200]
            self._log(text)


def decode_line(line: bytes) -> dict[str, Any] | None:
    """One event line; None when it is no object with a kind."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) and isinstance(value.get("kind"), str) else None


def tree_members(session: int, lock_fds: Sequence[int] = ()) -> list[psutil.Process]:
    """Processes of a session, and in other sessions those that hold a lock of ours through it; our own never among them.

    Args:
        session: session id.
        lock_fds: our descriptors of locks that only the session's leader was given.
    """
    pids = {pid for handle in lock_fds for pid in holders(handle)}
    for pid in psutil.pids():
        try:
            if os.getsid(pid) == session:
                pids.add(pid)
        except OSError:
            continue
    found = []
    for pid in sorted(pids - {os.getpid()}):
        try:
            found.append(psutil.Process(pid))
        except psutil.Error:
            continue
    return [process for process in found if _runs(process)]


def _runs(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


async def end_session(
    session: int, *, running: bool, grace: float = 2.0, lock_fds: Sequence[int] = ()
) -> None:
    """Ask every process of a session to end, then make it. Sessions that its members opened for others stay alone,
    unless a lock of ours would stay locked with them.

    Args:
        session: session id, the pid of the process that opened it.
        running: whether its leader still runs; if not, only leftovers are looked for.
        grace: seconds between the question and the order.
        lock_fds: our descriptors of locks that only the session's leader was given.
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + (grace if running else 0.5)
    members = tree_members(session, lock_fds)
    _signal_all(members, signal.SIGTERM)
    while members and loop.time() < until:
        await asyncio.sleep(0.02)
        members = tree_members(session, lock_fds)
    for _ in range(100):
        if not members:
            return
        _signal_all(members, signal.SIGKILL)
        await asyncio.sleep(0.02)
        members = tree_members(session, lock_fds)


def _signal_all(processes: Sequence[psutil.Process], signum: signal.Signals) -> None:
    """`psutil` compares creation times before it sends, so a reused pid is never hit."""
    for process in processes:
        try:
            process.send_signal(signum)
        except psutil.Error:
            continue
