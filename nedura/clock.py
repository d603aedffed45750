"""Time as a seam: every wait and every deadline asks a `Clock`."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Protocol

__all__ = ["Clock", "SystemClock", "iso", "parse_iso"]


class Clock(Protocol):
    """What nedura asks of time."""

    def monotonic(self) -> float:
        """Seconds that never go back; stands still while the machine sleeps."""
        ...

    def time(self) -> float:
        """Unix seconds, wall clock."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


class SystemClock:
    """The real one."""

    def monotonic(self) -> float:
        """Seconds of the monotonic clock."""
        return time.monotonic()

    def time(self) -> float:
        """Unix seconds."""
        return time.time()

    async def sleep(self, seconds: float) -> None:
        """Wait on the running loop."""
        await asyncio.sleep(seconds)


def iso(unix: float) -> str:
    """Unix seconds as ISO 8601 in UTC with a `Z`, microseconds kept."""
    return datetime.fromtimestamp(unix, UTC).isoformat().replace("+00:00", "Z")


def parse_iso(text: str) -> float | None:
    """ISO 8601 to unix seconds; naive means UTC; None when it is no time."""
    try:
        moment = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    try:
        return moment.timestamp()
    except (OverflowError, OSError, ValueError):
        return None
