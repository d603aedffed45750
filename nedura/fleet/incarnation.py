"""One incarnation of a process, a pid with its start time, as a restart needs it: is it there, signal it, wait for its end."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Final, Protocol

from nedura.fleet.processes import liveness, system_processes
from nedura.fleet.signals import Sent, send_signal

__all__ = ["Incarnations", "SystemIncarnations"]

_POLL_SECONDS: Final = 0.05


class Incarnations(Protocol):
    """What a restart asks of processes."""

    def alive(self, pid: int, start_time: int | None) -> bool:
        """Whether this very incarnation runs. A zombie does not."""
        ...

    def send(self, pid: int, start_time: int | None, number: signal.Signals) -> Sent:
        """Signal this incarnation or nobody."""
        ...

    def halted(self, pid: int) -> bool:
        """Whether a signal or a debugger holds it, so that it cannot act on anything."""
        ...

    async def gone(self, pid: int, start_time: int | None, timeout: float) -> bool:
        """Wait until it has ended; False when it still runs after `timeout` seconds."""
        ...


class SystemIncarnations:
    """The real ones."""

    def __init__(self) -> None:
        self._table = system_processes()

    def alive(self, pid: int, start_time: int | None) -> bool:
        """As `Incarnations.alive`."""
        return liveness(self._table, pid, start_time) in ("alive", "unknown")

    def send(self, pid: int, start_time: int | None, number: signal.Signals) -> Sent:
        """As `Incarnations.send`."""
        return send_signal(pid, number, start_time=start_time, processes=self._table)

    def halted(self, pid: int) -> bool:
        """As `Incarnations.halted`."""
        stat = self._table.stat(pid)
        return stat is not None and stat.halted

    async def gone(self, pid: int, start_time: int | None, timeout: float) -> bool:
        """As `Incarnations.gone`; woken by the kernel where it can be."""
        if not self.alive(pid, start_time):
            return True
        try:
            handle = os.pidfd_open(pid)
        except (AttributeError, OSError):
            return await self._poll_gone(pid, start_time, timeout)
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        loop.add_reader(handle, ended.set)
        try:
            if not self.alive(pid, start_time):
                return True
            await asyncio.wait_for(ended.wait(), timeout)
        except TimeoutError:
            return not self.alive(pid, start_time)
        finally:
            loop.remove_reader(handle)
            os.close(handle)
        return True

    async def _poll_gone(self, pid: int, start_time: int | None, timeout: float) -> bool:
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout
        while self.alive(pid, start_time):
            if loop.time() >= end:
                return False
            await asyncio.sleep(_POLL_SECONDS)
        return True
