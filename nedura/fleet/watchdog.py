"""Watching the process's own event loop and its stop from a thread that neither can block (facts/runtime.md 5.2)."""

from __future__ import annotations

import asyncio
import faulthandler
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from nedura.errors import StoreError
from nedura.fleet.notify import Notifier
from nedura.records import make_folder, open_ours

__all__ = ["LoopWatch", "ShutdownWatch", "dump_stacks"]

PROBE: Final = 30.0
STRIKES: Final = 3


def dump_stacks(path: Path) -> None:
    """Append every thread's stack to a log of ours; best effort, the process is about to end."""
    try:
        make_folder(path.parent)
        handle = open_ours(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    except StoreError:
        return
    try:
        os.write(handle, f"--- pid {os.getpid()} at {time.time():.0f}\n".encode())
        faulthandler.dump_traceback(handle, all_threads=True)
    finally:
        os.close(handle)


class LoopWatch:
    """Pings an event loop from another thread's loop; feeds systemd's watchdog; three silent probes in a row end the process.

    Args:
        loop: the loop that is watched.
        notifier: the manager's notify socket.
        wedged: called after the last strike.
        enabled: False only measures.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        notifier: Notifier,
        wedged: Callable[[], None],
        *,
        enabled: bool = True,
        probe: float = PROBE,
    ) -> None:
        self._loop = loop
        self._notifier = notifier
        self._wedged = wedged
        self._enabled = enabled
        leash = notifier.watchdog_s
        self._interval = min(probe, leash / 2) if leash else probe
        self._strikes_for = max(STRIKES, round(STRIKES * probe / self._interval))
        self._sent: float | None = None

    def ping(self) -> None:
        """Ask the loop for a sign of life, unless an earlier question is still open."""
        if self._sent is None:
            self._sent = time.monotonic()
            try:
                self._loop.call_soon_threadsafe(self._pong)
            except RuntimeError:
                self._sent = None  # the loop has ended: nothing to watch

    def _pong(self) -> None:
        self._sent = None

    @property
    def age(self) -> float:
        """Seconds that the oldest unanswered question is open; 0 when all are answered."""
        sent = self._sent
        return 0.0 if sent is None else time.monotonic() - sent

    async def run(self) -> None:
        """Probe until cancelled. A stopped and continued process gets one strike at most, for strikes count probes."""
        strikes = 0
        while True:
            self.ping()
            await asyncio.sleep(self._interval)
            silent = self.age >= self._interval / 3
            strikes = strikes + 1 if silent else 0
            if not silent and self._notifier.watchdog_s:
                self._notifier.send(WATCHDOG="1")
            if strikes >= self._strikes_for and self._enabled:
                self._wedged()
                return


class ShutdownWatch:
    """Ends a stop that hangs.

    Args:
        expired: called from a thread when time is over.
    """

    def __init__(self, expired: Callable[[], None]) -> None:
        self._expired = expired
        self._timer: threading.Timer | None = None

    def arm(self, seconds: float) -> None:
        """Start the leash; a second call changes nothing."""
        if self._timer is None:
            self._timer = threading.Timer(seconds, self._expired)
            self._timer.daemon = True
            self._timer.start()

    def disarm(self) -> None:
        """The stop has ended by itself."""
        if self._timer is not None:
            self._timer.cancel()
