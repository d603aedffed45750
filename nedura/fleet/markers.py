"""Small notes between processes of one home: "this stop is planned", "I take over from you" (facts/runtime.md 2.1, 2.4).

Each names its target by pid and start time, counts for 60 s and is removed once used.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final, Literal

import attrs

from nedura.errors import StoreError
from nedura.records import read_json, remove, write_json

__all__ = ["MARKER_LIFE", "MarkerKind", "consume_marker", "remove_marker", "write_marker"]

MarkerKind = Literal["planned-stop", "takeover"]
MARKER_LIFE: Final = 60.0
"""Seconds that a marker counts."""


@attrs.frozen(kw_only=True)
class _Marker:
    target_pid: int
    target_start_time: int | None
    target_home: str
    written_at: float

    def meant_for(self, pid: int, start_time: int | None, home: Path, now: float) -> bool:
        if self.target_pid != pid or not 0 <= now - self.written_at <= MARKER_LIFE:
            return False
        if self.target_home and os.path.realpath(self.target_home) != os.path.realpath(home):
            return False
        both = self.target_start_time is not None and start_time is not None
        return not both or self.target_start_time == start_time


def _path(home: Path, kind: MarkerKind) -> Path:
    return home / f".gateway-{kind}.json"


def write_marker(home: Path, kind: MarkerKind, *, pid: int, start_time: int | None, now: float) -> None:
    """Announce to a member what the coming signal means.

    Args:
        home: the member's home.
        kind: which note.
        pid: the member.
        start_time: its kernel start time.
        now: unix seconds.

    Raises:
        StoreError: it cannot be written.
    """
    record: dict[str, Any] = {
        "target_pid": pid,
        "target_start_time": start_time,
        "target_home": str(home),
        "stopper_pid": os.getpid(),
        "written_at": now,
    }
    write_json(_path(home, kind), record, indent=None)


def remove_marker(home: Path, kind: MarkerKind) -> None:
    """Take a note back whose signal was never sent; one that cannot be removed expires by itself."""
    try:
        remove(_path(home, kind))
    except StoreError:
        pass


def consume_marker(home: Path, kind: MarkerKind, *, pid: int, start_time: int | None, now: float) -> bool:
    """Whether a note for this process lies there; a used or expired one is removed.

    Args:
        home: our home.
        kind: which note.
        pid: our pid.
        start_time: our kernel start time.
        now: unix seconds.
    """
    path = _path(home, kind)
    try:
        record = read_json(path)
    except StoreError:
        return False
    marker = _parse(record)
    meant = marker is not None and marker.meant_for(pid, start_time, home, now)
    expired = marker is None or now - marker.written_at > MARKER_LIFE
    if meant or expired:
        try:
            remove(path)
        except StoreError:
            pass  # it expires by itself
    return meant


def _parse(record: Any) -> _Marker | None:
    if not isinstance(record, dict):
        return None
    pid, written, start = (record.get(key) for key in ("target_pid", "written_at", "target_start_time"))
    if not isinstance(pid, int) or not isinstance(written, (int, float)):
        return None
    return _Marker(
        target_pid=pid,
        target_start_time=start if isinstance(start, int) else None,
        target_home=str(record.get("target_home") or ""),
        written_at=float(written),
    )
