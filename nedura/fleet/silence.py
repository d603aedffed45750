"""Whether a draining process that does not answer is wedged: judged by its signs of life, without IO.

A member has three: its socket thread answers, its state thread writes `gateway_state.json` again at least each minute, and its event loop
says `draining` there right after SIGUSR1. A dead socket alone proves nothing: the member may be finishing its turns.
"""

from __future__ import annotations

from typing import Final

from nedura.fleet.statefile import TERMINAL_STATES, StateRecord

__all__ = ["SILENCE_SECONDS", "Silence"]

SILENCE_SECONDS: Final = 90.0
"""As long as a loop may stand still before it counts as wedged (facts/runtime.md 5.7)."""


class Silence:
    """What one process said since it got SIGUSR1.

    Args:
        pid, start_time: which process; a record of another one says nothing about it.
        now: monotonic seconds.
        limit: seconds of silence that are proof.
    """

    def __init__(self, pid: int, start_time: int | None, now: float, limit: float = SILENCE_SECONDS) -> None:
        self._who = (pid, start_time)
        self._limit = limit
        self._stamp: float | None = None
        self._deaf = False
        self._heard = self._heeded = now

    def heard(self, now: float) -> None:
        """It answered, or was held by somebody else until now: nothing is held against it."""
        self._heard = self._heeded = now
        self._deaf = False

    def read(self, record: StateRecord | None, now: float) -> None:
        """What its state file says now."""
        if record is None or record.updated_at is None or record.drain_budget_s is None:
            return  # none, or of a writer that is no member of ours and may write when it likes
        if (record.pid, record.start_time) != self._who:
            return
        fresh = record.updated_at != self._stamp
        if fresh:
            self._stamp, self._heard = record.updated_at, now
        if record.state == "draining" or record.state in TERMINAL_STATES:
            self._heeded, self._deaf = now, False
        elif fresh and now - self._heeded >= self._limit / 3:
            self._deaf = True  # written long after the signal, and still without a word of it

    def proof(self, now: float, *, writable: bool) -> str:
        """Why it counts as wedged, in words; empty while there is a doubt.

        Args:
            now: monotonic seconds.
            writable: its home takes a file; else its silence may be the disk's.
        """
        if self._stamp is None:
            return ""  # it never wrote here: what it does not say means nothing
        if self._deaf and now - self._heeded >= self._limit:
            return "its event loop did not act on the signal"
        if writable and now - self._heard >= self._limit:
            return "no thread of it gives a sign of life"
        return ""
