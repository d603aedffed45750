"""Respawn storms: a member that starts again and again waits before it does it once more (facts/runtime.md 2.4). Never fatal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import attrs

from nedura.errors import StoreError
from nedura.records import read_bytes, write_bytes

__all__ = ["STARTS_NAME", "StormRule", "note_start", "storm_delay"]

STARTS_NAME: Final = "gateway-starts.log"


@attrs.frozen(kw_only=True)
class StormRule:
    """When starts are too many.

    Attributes:
        max_starts: starts inside the window that are fine.
        window_s: the window in seconds.
    """

    max_starts: int = 5
    window_s: float = 120.0

    @property
    def kept(self) -> int:
        """Entries that the log keeps."""
        return max(4 * self.max_starts, 40)


def storm_delay(starts: Sequence[float], now: float, rule: StormRule) -> float:
    """Seconds to wait before this start: 0, or 5 s doubled for each start above the rule, at most 300.

    Args:
        starts: unix seconds of earlier starts.
        now: unix seconds.
        rule: what counts as a storm.
    """
    recent = sum(0 <= now - start <= rule.window_s for start in starts)
    excess = recent - rule.max_starts
    return 0.0 if excess < 0 else min(300.0, 5.0 * 2 ** min(excess, 6))


def note_start(home: Path, now: float, rule: StormRule) -> float:
    """Record a start and return the delay it calls for. An unreadable log counts as empty: it only delays.

    Args:
        home: the member's home.
        now: unix seconds.
        rule: what counts as a storm.
    """
    path = home / STARTS_NAME
    try:
        lines = read_bytes(path).decode("ascii", "replace").split()
    except StoreError:
        lines = []
    starts = [number for line in lines if (number := _moment(line)) is not None]
    delay = storm_delay(starts, now, rule)
    kept = [*starts, now][-rule.kept :]
    try:
        write_bytes(path, "".join(f"{start:.3f}\n" for start in kept).encode())
    except StoreError:
        return 0.0
    return delay


def _moment(line: str) -> float | None:
    try:
        return float(line)
    except ValueError:
        return None
