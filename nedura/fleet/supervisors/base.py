"""What a supervisor is to a restart: who starts the successor, and how hard it may be pushed."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Protocol

from nedura.errors import FleetError
from nedura.fleet.model import Runtime

__all__ = ["RestartError", "Say", "Supervisor"]

Say = Callable[[str], None]
"""Names what a restart waits for now, in words for a progress line."""


class RestartError(FleetError):
    """Raised when a member could not be restarted.

    Attributes:
        check: closed token of what failed (`drain`, `start`, `boot`, `ready`, `manager`, `privileges`, ...).
        incomplete: the manager still works on it; it may yet come up.
        final: trying again now is of no use.
    """

    code: ClassVar[str] = "restart"

    def __init__(
        self, message: str, *, check: str, incomplete: bool = False, final: bool = False, advice: str = ""
    ) -> None:
        super().__init__(message, advice=advice)
        self.check = check
        self.incomplete = incomplete
        self.final = final


class Supervisor(Protocol):
    """One kind of service manager. An implementation turns every failure of its own into a `RestartError`."""

    async def able(self, runtime: Runtime) -> bool:
        """Whether we may start this member again ourselves: privileges, or a way to relaunch it."""
        ...

    async def arm(self, runtime: Runtime) -> None:
        """Before anything is stopped: make sure a successor comes even if this process dies now.

        Raises:
            RestartError: it cannot be; nothing was stopped.
        """
        ...

    async def revive(self, runtime: Runtime, say: Say) -> None:
        """The member has drained and ended: get its successor started.

        Raises:
            RestartError: it did not come up.
        """
        ...

    async def force(self, runtime: Runtime, say: Say) -> None:
        """Restart a member that cannot drain, or whose drain or start failed.

        Raises:
            RestartError: it did not come up.
        """
        ...

    async def gave_up(self, runtime: Runtime) -> str:
        """Why no successor will come any more, in words; empty while one may."""
        ...

    def command(self, runtime: Runtime) -> str:
        """What a person runs to restart it by hand."""
        ...
