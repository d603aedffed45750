"""Supervisors that we do not drive (s6, a parent named by `--external-supervisor`): they start a member again whenever it ends."""

from __future__ import annotations

import signal
from typing import Final

from nedura.fleet.incarnation import Incarnations, SystemIncarnations
from nedura.fleet.model import Runtime
from nedura.fleet.supervisors.base import RestartError, Say

__all__ = ["PassiveSupervisor"]

_TERM_SECONDS: Final = 60.0


class PassiveSupervisor:
    """Asks a member to end; somebody else starts its successor.

    Args:
        owner: who that is, in words.
        processes: the process table.
    """

    def __init__(self, owner: str, *, processes: Incarnations | None = None) -> None:
        self._owner = owner
        self._processes = processes or SystemIncarnations()

    async def able(self, runtime: Runtime) -> bool:
        """As `Supervisor.able`: nothing says that a successor would come, so it is never the first member."""
        return False

    async def arm(self, runtime: Runtime) -> None:
        """As `Supervisor.arm`: there is nothing to prepare."""

    async def revive(self, runtime: Runtime, say: Say) -> None:
        """As `Supervisor.revive`: it has ended with the code that asks for a restart."""
        say(f"{self._owner} to start it again")

    async def force(self, runtime: Runtime, say: Say) -> None:
        """As `Supervisor.force`: SIGTERM without notice ends it with a code that asks for a restart too.

        Raises:
            RestartError: it does not end.
        """
        say(f"process {runtime.pid} to end")
        self._processes.send(runtime.pid, runtime.start_time, signal.SIGTERM)
        if not await self._processes.gone(runtime.pid, runtime.start_time, _TERM_SECONDS):
            raise RestartError(f"Process {runtime.pid} does not end.", check="stop", final=True)

    async def gave_up(self, runtime: Runtime) -> str:
        """As `Supervisor.gave_up`: nobody says."""
        return ""

    def command(self, runtime: Runtime) -> str:
        """As `Supervisor.command`."""
        return f"restart it with {self._owner}"
