"""One restart of a member at a time: a second one waits for the first and takes its result (facts/update.md 8.5, "attach").

Two at once would arm two successors of which one is refused, end a successor in its start, or take the watch over a first member for
its failure.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from nedura.clock import Clock
from nedura.errors import StoreError
from nedura.fleet.budget import drain_limit, restart_budget
from nedura.fleet.model import RuntimeKind
from nedura.fleet.supervisors.base import RestartError
from nedura.locks import FileLock, holder_of

__all__ = ["RestartLock", "patience"]

_STEP: Final = 0.05


def patience(drain_budget_s: float | None) -> float:
    """Seconds that somebody else's restart of a member may take: its drain, and a blunt restart with its second try."""
    return drain_limit(drain_budget_s) + 2 * restart_budget(None, None)


class RestartLock:
    """Held by the process that restarts a member, from before its drain until it is verified; free when that process dies.

    Args:
        home: the member's home.
        kind: what it serves.
    """

    def __init__(self, home: Path, kind: RuntimeKind = "gateway") -> None:
        self._lock = FileLock(home / f"{kind}-restart.lock", "the restart of this member")

    @property
    def holder(self) -> int | None:
        """Who restarts it now, for display only."""
        return holder_of(self._lock.path)

    def take(self) -> bool:
        """Take it if it is free. A home that takes no lock file (read-only, full, another user's) is restarted without one."""
        try:
            return self._lock.held or self._lock.try_acquire()
        except StoreError:
            return True

    def busy(self) -> bool:
        """Whether somebody restarts this member now; nothing is created to find out."""
        if self._lock.held or not self._lock.path.exists():
            return False
        free = self.take()
        self.release()
        return not free

    async def wait(self, clock: Clock, limit: float) -> None:
        """Take it when the other restart is done.

        Raises:
            RestartError: it is not done after `limit` seconds; it may yet be (`incomplete`).
        """
        start = clock.monotonic()
        while not self.take():
            if clock.monotonic() - start >= limit:
                raise RestartError(
                    f"Another restart of it (process {self.holder or 'unknown'}) is not done after {limit:.0f} s.",
                    check="busy",
                    incomplete=True,
                )
            await clock.sleep(_STEP)

    def release(self) -> None:
        """Let the next one."""
        self._lock.release()
