"""The spawn ledger: serve and dashboard processes that somebody started, by exact pid and creation time (facts/update.md 3.2)."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import attrs

from nedura.errors import RecordCorrupt, RecordMissing, StoreError
from nedura.fleet.processes import Processes, liveness, system_processes
from nedura.locks import locked
from nedura.records import read_json, write_json

__all__ = ["LEDGER_NAME", "LedgerEntry", "SpawnLedger"]

LEDGER_NAME: Final = "spawn-ledger.json"


@attrs.frozen(kw_only=True)
class LedgerEntry:
    """One spawned process.

    Attributes:
        pid: its pid.
        start_time: its kernel start time; an entry without one proves nothing.
        purpose: `serve`, `dashboard` or `gateway`.
        install: install id of its code.
        spawner_pid: who started it.
        spawner_start: that one's kernel start time.
        registered_at: unix seconds.
        argv: its arguments as a list, for people; never executed.
        host: address it listens on.
        port: port it listens on.
        profile: whose.
        home: its home.
    """

    pid: int
    start_time: int | None
    purpose: str
    install: str = ""
    spawner_pid: int | None = None
    spawner_start: int | None = None
    registered_at: float = 0.0
    argv: tuple[str, ...] = ()
    host: str = ""
    port: int | None = None
    profile: str = "default"
    home: str = ""

    @classmethod
    def parse(cls, value: Any) -> LedgerEntry | None:
        """Read an entry of any version; None when it names no process."""
        if not isinstance(value, dict):
            return None
        pid, start = value.get("pid"), value.get("start_time")
        argv, port = value.get("argv"), value.get("port")
        if not isinstance(pid, int) or isinstance(pid, bool) or pid <= 0:
            return None
        whole = {
            key: value[key] if isinstance(value.get(key), int) else None
            for key in ("spawner_pid", "spawner_start")
        }
        registered = value.get("registered_at")
        return cls(
            pid=pid,
            start_time=start if isinstance(start, int) else None,
            purpose=str(value.get("purpose") or ""),
            install=str(value.get("install") or ""),
            registered_at=float(registered) if isinstance(registered, (int, float)) else 0.0,
            argv=tuple(str(item) for item in argv[:10]) if isinstance(argv, list) else (),
            host=str(value.get("host") or ""),
            port=port if isinstance(port, int) and 0 < port < 65536 else None,
            profile=str(value.get("profile") or "default"),
            home=str(value.get("home") or ""),
            **whole,
        )


class SpawnLedger:
    """The ledger of a root home.

    Args:
        root: the root home.
        processes: the process table.
    """

    def __init__(self, root: Path, processes: Processes | None = None) -> None:
        self.path = root / LEDGER_NAME
        self._processes = system_processes() if processes is None else processes

    def read(self) -> tuple[LedgerEntry, ...]:
        """Entries as written, dead ones included.

        Raises:
            StoreError: it cannot be read; a missing ledger is empty.
        """
        try:
            value = read_json(self.path)
        except RecordMissing:
            return ()
        if not isinstance(value, list):
            raise RecordCorrupt(f"{LEDGER_NAME} is not a list.")
        return tuple(entry for item in value if (entry := LedgerEntry.parse(item)) is not None)

    def live(self) -> tuple[LedgerEntry, ...]:
        """Entries whose very process lives, proven by start time. An unreadable ledger proves nothing."""
        try:
            entries = self.read()
        except StoreError:
            return ()
        return tuple(entry for entry in entries if self._alive(entry.pid, entry.start_time))

    def spawner_alive(self, entry: LedgerEntry) -> bool:
        """Whether who started it still lives."""
        return entry.spawner_pid is not None and self._alive(entry.spawner_pid, entry.spawner_start)

    def register(self, entry: LedgerEntry) -> None:
        """Add an entry and drop the dead ones. A corrupt ledger is set aside first.

        Raises:
            StoreError: it cannot be written.
        """
        with locked(self.path.with_suffix(".lock"), what="The spawn ledger"):
            self._write([*self._kept(), entry])

    def _kept(self) -> Iterable[LedgerEntry]:
        try:
            entries = self.read()
        except RecordCorrupt:
            os.replace(self.path, self.path.with_suffix(".json.corrupt"))
            return []
        return [entry for entry in entries if self._alive(entry.pid, entry.start_time)]

    def _write(self, entries: Iterable[LedgerEntry]) -> None:
        write_json(self.path, [attrs.asdict(entry) for entry in entries], indent=None)

    def _alive(self, pid: int, start_time: int | None) -> bool:
        return liveness(self._processes, pid, start_time) == "alive"
