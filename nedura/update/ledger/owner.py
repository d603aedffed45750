"""Which process owns a record: pid and creation time together, so that a reused pid is never believed (facts/update.md 5.1)."""

from __future__ import annotations

import os
from typing import Final

import attrs

__all__ = ["TOLERANCE", "Owner", "ancestors", "is_alive", "is_gone", "myself"]

TOLERANCE: Final = 2.0
"""Seconds by which two readings of one process's creation time may differ (the boot time is rounded)."""


@attrs.frozen
class Owner:
    """A process, by its pid and creation time in unix seconds."""

    pid: int
    create_time: float


def _create_time(pid: int) -> float | None:
    import psutil

    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else float(process.create_time())
    except psutil.AccessDenied:
        return -1.0
    except psutil.Error:
        return None


def myself() -> Owner:
    """This process."""
    return Owner(os.getpid(), _create_time(os.getpid()) or 0.0)


def is_alive(owner: Owner) -> bool:
    """Whether exactly that process still runs. A zombie is dead; one we may not look at counts as alive."""
    if owner.pid <= 0:
        return False
    created = _create_time(owner.pid)
    if created is None:
        return False
    return created < 0 or owner.create_time <= 0 or abs(created - owner.create_time) <= TOLERANCE


def is_gone(pid: int, wrote_at: float) -> bool:
    """Whether the process with that pid which wrote something is gone; a later process with the same pid is another one.

    Args:
        pid: as the writer noted it.
        wrote_at: unix seconds at which it still wrote.
    """
    created = _create_time(pid) if pid > 0 else None
    return created is None or created > wrote_at + TOLERANCE


def ancestors(pid: int | None = None) -> frozenset[int]:
    """Pids above a process."""
    import psutil

    try:
        return frozenset(parent.pid for parent in psutil.Process(pid or os.getpid()).parents())
    except psutil.Error:
        return frozenset()
