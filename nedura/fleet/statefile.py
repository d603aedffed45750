"""`gateway_state.json`: what a member says about itself, re-stamped whole on every write by one background thread."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from nedura.clock import parse_iso
from nedura.errors import StoreError
from nedura.installs import CodeIdentity
from nedura.records import read_json, write_json
from nedura.text import clean

__all__ = [
    "STATE_NAME",
    "TERMINAL_STATES",
    "StateRecord",
    "StateWriter",
    "last_exit",
    "parse_moment",
    "parse_state",
    "read_state",
]

STATE_NAME: Final = "gateway_state.json"
TERMINAL_STATES: Final = frozenset({"stopped", "startup_failed"})
STALE_AFTER: Final = 120.0
"""Seconds without a write after which a record is old. Liveness never keys on it alone."""
MIN_GAP: Final = 0.1
"""Seconds between two writes; what changes meanwhile goes with the later one."""
_EPOCH_FLOOR: Final = 946684800.0

logger = logging.getLogger(__name__)


@attrs.frozen(kw_only=True)
class StateRecord:
    """A state file as read, whoever wrote it.

    Attributes:
        pid: the writer.
        start_time: its kernel start time.
        home: the home it serves.
        profile: its profile's name.
        kind: `nedura-gateway` and so on.
        state: `starting`, `running`, `degraded`, `draining`, `stopped`, `startup_failed`; empty when unknown.
        exit_reason: why it ended.
        supervisor: id as in `model.RESTART_VIA`.
        unit: systemd unit or label.
        unit_scope: `user` or `system`.
        active_agents: units of work in flight.
        served_profiles: further profiles of the same process.
        updated_at: unix seconds, None when unreadable.
        code: identity of the code it imported.
        boot_s: seconds from start to `running`.
        drain_budget_s: seconds after which its drain ends.
        stale: it says that its install would start other code now.
        restart_requested: it ended in order to be started again.
        planned: somebody asked for its end: a stop, a takeover or a restart.
        boot_id: boot of the machine that it ran in.
    """

    pid: int | None = None
    start_time: int | None = None
    home: str = ""
    profile: str = ""
    kind: str = ""
    state: str = ""
    exit_reason: str = ""
    supervisor: str = ""
    unit: str = ""
    unit_scope: str = ""
    active_agents: int = 0
    served_profiles: tuple[str, ...] = ()
    updated_at: float | None = None
    code: CodeIdentity = CodeIdentity()  # noqa: RUF009 - frozen
    boot_s: float | None = None
    drain_budget_s: float | None = None
    stale: bool = False
    restart_requested: bool = False
    planned: bool = False
    boot_id: str = ""


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def parse_moment(value: Any, now: float) -> float | None:
    """A time stamp as any writer left it: ISO with or without zone, or epoch seconds between 2000 and tomorrow.

    Args:
        value: what the record holds.
        now: unix seconds.
    """
    if isinstance(value, str):
        return parse_iso(value)
    number = _number(value)
    return number if number is not None and _EPOCH_FLOOR <= number <= now + 86400 else None


def parse_state(value: Any, now: float) -> StateRecord | None:
    """Read a state record or an `identify` answer; junk in a field is its default. None when it is no object."""
    if not isinstance(value, Mapping):
        return None
    agents = _whole(value.get("active_agents"))
    served = value.get("served_profiles")
    pid = _whole(value.get("pid"))
    text = {
        name: clean(value.get(key), 300)
        for name, key in (
            ("profile", "profile"), ("kind", "kind"), ("state", "gateway_state"), ("exit_reason", "exit_reason"),
            ("supervisor", "supervisor"), ("unit", "unit"), ("unit_scope", "unit_scope"), ("boot_id", "boot_id"),
        )
    }  # fmt: skip
    code = {field.name: clean(value.get(field.name), 80) for field in attrs.fields(CodeIdentity)}
    return StateRecord(
        pid=pid if pid and pid > 0 else None,
        start_time=_whole(value.get("start_time")),
        home=str(value.get("nedura_home") or ""),
        active_agents=max(0, agents or 0),
        served_profiles=tuple(clean(item, 80) for item in served) if isinstance(served, list) else (),
        updated_at=parse_moment(value.get("updated_at"), now),
        code=CodeIdentity(**code),
        boot_s=_number(value.get("boot_s")),
        drain_budget_s=_number(value.get("drain_budget_s")),
        stale=value.get("stale") is True,
        restart_requested=value.get("restart_requested") is True,
        planned=value.get("planned") is True,
        **text,
    )


def read_state(home: Path, now: float) -> StateRecord | None:
    """A home's state record; None when it is missing or unreadable."""
    try:
        return parse_state(read_json(home / STATE_NAME), now)
    except StoreError:
        return None


def last_exit(home: Path) -> str:
    """Why the last member of a home ended, as its state file says; empty when it says nothing."""
    record = read_state(home, 0.0)
    return record.exit_reason if record is not None and record.state in TERMINAL_STATES else ""


class StateWriter:
    """The one writer of a state file: takes the newest record, writes it from its own thread, never blocks the caller.

    Args:
        path: the state file.
        stamp: called in the writer's thread right before each write; returns the whole record.
        rewrite_every: seconds after which an unchanged record is written again.
    """

    def __init__(
        self, path: Path, stamp: Callable[[], Mapping[str, Any]], rewrite_every: float = 60.0
    ) -> None:
        self.path = path
        self.writes = 0
        self._stamp = stamp
        self._rewrite_every = rewrite_every
        self._wake = threading.Condition()
        self._dirty = False
        self._stopping = False
        self._failed = ""
        self._thread = threading.Thread(target=self._run, name="nedura-state-writer", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def touch(self) -> None:
        """Say that something changed. Never blocks for longer than a mutex."""
        with self._wake:
            self._dirty = True
            self._wake.notify()

    def stop(self, timeout: float = 2.0) -> bool:
        """Write a last time and end the thread; False when the disk did not answer in time."""
        with self._wake:
            self._dirty = self._stopping = True
            self._wake.notify()
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def end(self) -> None:
        """End the thread without another wait; nothing happens when it was never started."""
        with self._wake:
            self._stopping = True
            self._wake.notify()

    def _run(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._dirty or self._stopping, self._rewrite_every)
                last = self._stopping
                self._dirty = False
            self._write()
            if last:
                return
            with self._wake:
                self._wake.wait_for(lambda: self._stopping, MIN_GAP)

    def _write(self) -> None:
        try:
            self._write_stamp()
        except Exception as error:  # border of the thread: one bad value must not end the writing for good
            reason = error.message if isinstance(error, StoreError) else repr(error)
            if reason != self._failed:
                logger.warning("%s", reason)
            self._failed = reason
        else:
            self._failed = ""
            self.writes += 1

    def _write_stamp(self) -> None:
        stamp = self._stamp()
        try:
            write_json(self.path, stamp, indent=None)
        except (TypeError, ValueError):  # a host's value that is no JSON: the rest of the record still counts
            write_json(self.path, json.loads(json.dumps(stamp, default=str, skipkeys=True)), indent=None)
