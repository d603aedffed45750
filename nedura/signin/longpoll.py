"""Waiting for a hand-off record to change, for surfaces that render the result themselves (facts/signin.md 7.7)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

from nedura.clock import Clock, SystemClock
from nedura.errors import StoreError
from nedura.signin.handoff import wire_status
from nedura.signin.handoff_record import HandoffStore

__all__ = ["LOOK_SECONDS", "MAX_WAIT_SECONDS", "wait_for_handoff"]

MAX_WAIT_SECONDS: Final = 25.0
"""Longest wait; below the idle limits of usual proxies."""

LOOK_SECONDS: Final = 0.05
"""How often the file is looked at: one stat call, so that a change by another process is seen within 100 ms and no thread waits."""


async def wait_for_handoff(
    home: Path, *, since: str | None = None, wait: float = 0.0, clock: Clock | None = None
) -> dict[str, Any] | None:
    """The latest hand-off record, as soon as it differs from the one the caller has.

    Answers at once when there is no record, when `since` is empty, or when it differs from the record's `updated_at`. Otherwise it holds
    until a write by any process changes the record or `wait` is over, and then answers with the record as it is.

    Args:
        home: the profile's home.
        since: `updated_at` of the record that the caller has.
        wait: longest wait in seconds, at most 25.
        clock: time.
    """
    clock = clock or SystemClock()
    path = HandoffStore(home).path
    deadline = clock.monotonic() + min(max(wait, 0.0), MAX_WAIT_SECONDS)
    seen = _mark(path)
    status = wire_status(home)
    while status is not None and since and status["updated_at"] == since and clock.monotonic() < deadline:
        await clock.sleep(min(LOOK_SECONDS, deadline - clock.monotonic()))
        if (mark := _mark(path)) != seen:
            changed = wire_status(home)
            # Seen again at the next look while it cannot be read: a damaged record is not "none".
            if changed is not None or _is_none(home):
                seen, status = mark, changed
    return status


def _is_none(home: Path) -> bool:
    """Whether it is certain that there is no record."""
    try:
        return not HandoffStore(home).read()
    except StoreError:
        return False


def _mark(path: Path) -> tuple[int, int, int] | None:
    """What changes when a file is replaced; None when it is not there."""
    try:
        info = os.stat(path)
    except OSError:
        return None
    return info.st_ino, info.st_mtime_ns, info.st_size
