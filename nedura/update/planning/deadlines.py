"""How long each stage may take: from measured sizes and declared budgets, printed in the plan (decision 35). Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

__all__ = ["BACKUP_RATE", "FETCH_TIMEOUT", "deadlines", "total"]

FETCH_TIMEOUT: Final = 300.0
"""Seconds that a fetch may take."""
SNAPSHOT_RATE: Final = 8 << 20
"""Bytes a second that a slow disk still copies and checks."""
BACKUP_RATE: Final = 4 << 20
"""Bytes a second that a slow machine still deflates: a tenth of what one core did with program text (39 MiB/s, zlib level 6)."""
DRAIN_SLACK: Final = 180.0
UNKNOWN_DRAIN: Final = 1800.0
BUILD_SETUP: Final = 1800.0


def deadlines(
    *,
    state_bytes: int,
    backup_bytes: int = 0,
    drains: Sequence[float | None],
    boots: Sequence[float | None],
    builds: Sequence[float] = (),
    environment: bool = True,
) -> dict[str, float]:
    """Seconds by stage.

    Args:
        state_bytes: bytes that a snapshot copies.
        backup_bytes: bytes that a full backup packs.
        drains: each member's declared drain budget, None where it declares none.
        boots: each member's measured boot, None where unknown.
        builds: limits of the declared builds.
        environment: whether packages may have to be installed.
    """
    slowest_boot = max((boot or 0.0 for boot in boots), default=0.0)
    longest_drain = max((UNKNOWN_DRAIN if drain is None else drain for drain in drains), default=0.0)
    restart = longest_drain + max(90.0, 3 * slowest_boot) + DRAIN_SLACK if drains else 30.0
    return {
        "fetch": FETCH_TIMEOUT,
        "snapshot": 60.0 + round(state_bytes / SNAPSHOT_RATE) + round(backup_bytes / BACKUP_RATE),
        "prepare": 300.0 + (BUILD_SETUP if environment else 0.0) + sum(builds),
        "validate": 180.0,
        "restart": restart,
        "verify": max(120.0, 3 * slowest_boot),
    }


def total(by_stage: dict[str, float]) -> float:
    """Seconds of a whole run; the first member and the others are restarted one after the other."""
    return sum(by_stage.values()) + by_stage.get("restart", 0.0)
