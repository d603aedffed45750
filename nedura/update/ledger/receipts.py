"""Where receipts live and how they are read: the ROOT home's `logs/update_receipts/` (facts/update.md 9.1)."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from nedura.clock import parse_iso
from nedura.errors import RecordCorrupt, RecordMissing, StoreError
from nedura.records import make_folder, read_json, remove, write_json
from nedura.update.ledger.owner import Owner, is_alive
from nedura.update.ledger.receipt import Receipt, is_finished, opened, shed_more

__all__ = ["KEEP", "ReceiptStore", "is_lock_refusal", "readable", "receipt_name"]

KEEP: Final = 20
LATEST: Final = "latest.json"
AHEAD: Final = 3600.0
"""Seconds that a stamp may lie ahead of our clock before it is called wrong."""
_NAME: Final = re.compile(r"^update_\d{8}_\d{6}_\d+_[A-Za-z0-9._-]{1,64}\.json$")
_MAX_BYTES: Final = 8 * 1024 * 1024


def receipt_name(started_at: str, pid: int, run_id: str) -> str:
    """File name of a receipt: running and final records of a run are the same file."""
    stamp = re.sub(r"[^0-9]", "", started_at[:19])
    return f"update_{stamp[:8]}_{stamp[8:14]}_{pid}_{run_id}.json"


def is_lock_refusal(receipt: Mapping[str, Any]) -> bool:
    """Whether a run never began because another one had the lock."""
    return receipt.get("outcome") == "refused" and receipt.get("stop_class") == "lock_held"


def readable(receipt: Receipt, limit: int = _MAX_BYTES) -> Receipt:
    """A receipt that its readers take: what a flood of events made of it is cut, oldest first, and `shed` says how much of what.

    Without it the whole run would be lost to every reader for the sake of its least part.
    """
    if _size(receipt) <= limit:
        return receipt
    short = {**receipt, "shed": {}}
    shed: Mapping[str, int] = shed_more(receipt, "foreign", 0)
    while _size({**short, "shed": shed}) > limit:
        widest = max(short, key=lambda key: _size({key: short[key]}))
        value = short[widest]
        if isinstance(value, list | tuple) and value:
            short[widest] = list(value[(len(value) + 1) // 2 :])
            shed = shed_more({"shed": shed}, widest, len(value) - len(short[widest]))
        else:
            short[widest] = opened().get(widest)
            shed = shed_more({"shed": shed}, widest, 1)
    return {**short, "shed": {key: count for key, count in shed.items() if count}}


def _size(value: Mapping[str, Any]) -> int:
    return len(json.dumps(value, indent=2).encode())


class ReceiptStore:
    """The receipts of one root home.

    Args:
        root_home: the root home; a sticky profile's home is never used.
        now: unix seconds; a stamp of a clock that ran ahead is not believed.
    """

    def __init__(self, root_home: Path, now: Callable[[], float] = time.time) -> None:
        self.folder = root_home / "logs" / "update_receipts"
        self._now = now

    @property
    def latest(self) -> Path:
        """Full copy of the newest run's receipt."""
        return self.folder / LATEST

    def path_of(self, receipt: Mapping[str, Any]) -> Path:
        """Where a receipt is archived."""
        return self.folder / receipt_name(
            str(receipt["started_at"]), int(receipt["pid"]), str(receipt["update_id"])
        )

    def write(self, receipt: Receipt, *, latest: bool = True, place: Path | None = None) -> Path:
        """Write a receipt durably, archive first. A closed record is never replaced by an open one.

        Args:
            receipt: its whole content.
            latest: also make it the newest; a run refused by another's lock never does (decision 18).
            place: its file; default the one its own fields name.

        Raises:
            StoreError: it cannot be written.
        """
        make_folder(self.folder)
        path = self.path_of(receipt) if place is None else place
        if not is_finished(receipt) and self._closed(path):
            return path
        receipt = readable(receipt)
        write_json(path, receipt)
        if latest:
            write_json(self.latest, receipt)
        return path

    def _closed(self, path: Path) -> bool:
        try:
            return is_finished(read_json(path, _MAX_BYTES))
        except (StoreError, AttributeError):
            return False

    def read(self, path: Path) -> Receipt:
        """One receipt. Keys of later versions are kept as they are.

        Raises:
            StoreError: it cannot be read or is no receipt.
        """
        value = read_json(path, _MAX_BYTES)
        if not isinstance(value, dict) or "update_id" not in value:
            raise RecordCorrupt(f"{path.name} is no update receipt.")
        return value

    def names(self) -> list[Path]:
        """Archived receipts, newest first by their own start time, then by name; one from the future by when its file was written."""
        try:
            found = [name for name in os.listdir(self.folder) if _NAME.match(name)]
        except OSError:
            return []
        latest = self._now() + AHEAD

        def began(name: str) -> tuple[float, str]:
            day, clock = name[7:15], name[16:22]
            stamp = f"{day[:4]}-{day[4:6]}-{day[6:]}T{clock[:2]}:{clock[2:4]}:{clock[4:]}Z"
            at = parse_iso(stamp) or 0.0
            return at if at <= latest else self._written(self.folder / name, latest), name

        return [self.folder / name for name in sorted(found, key=began, reverse=True)]

    def _written(self, path: Path, latest: float) -> float:
        """When a receipt was last written; 0 when that is not known, or not yet."""
        try:
            at = path.stat().st_mtime
        except OSError:
            return 0.0
        return at if at <= latest else 0.0

    def entries(self) -> list[tuple[Path, Receipt]]:
        """Every readable archived receipt with its file, newest first."""
        found = []
        for path in self.names():
            try:
                found.append((path, self.read(path)))
            except StoreError:
                continue
        return found

    def recent(self, count: int = KEEP) -> list[Receipt]:
        """The newest readable receipts, newest first; unreadable ones are left out."""
        found: list[Receipt] = []
        for path in self.names():
            if len(found) == count:
                break
            try:
                found.append(self.read(path))
            except StoreError:
                continue
        return found

    def newest(self) -> Receipt | None:
        """`latest.json`, or the newest archived receipt when it is not there or damaged; None when there is none."""
        try:
            return self.read(self.latest)
        except StoreError:
            found = self.recent(1)
            return found[0] if found else None

    def find(self, run_id: str) -> Receipt | None:
        """The receipt of a run by its id (or a prefix of at least 6 characters of it).

        One that was refused because another run had the lock counts only when the id has no other: it did nothing.
        """
        waited = None
        for path in self.names():
            name = path.stem.split("_", 4)[-1]
            if name == run_id or (len(run_id) >= 6 and name.startswith(run_id)):
                try:
                    found = self.read(path)
                except StoreError:
                    continue
                if not is_lock_refusal(found):
                    return found
                waited = waited or found
        return waited

    def by_action(self, action_id: str) -> Receipt | None:
        """The newest receipt that a dashboard action started."""
        return next((r for r in self.recent() if r.get("action_id") == action_id), None)

    def _may_run(self, path: Path) -> bool:
        """Whether a receipt belongs to a run that is still going on, however many were refused beside it."""
        try:
            receipt = self.read(path)
            owners = [
                Owner(int(receipt.get(pid) or 0), float(receipt.get(created) or 0.0))
                for pid, created in (("pid", "pid_create_time"), ("writer_pid", "writer_create_time"))
            ]
        except (StoreError, TypeError, ValueError, OverflowError):
            return False
        return receipt.get("outcome") == "running" and any(map(is_alive, owners))

    def prune(self) -> None:
        """Keep the newest `KEEP` by modification time; a running one is never removed, one from the future is the first to go."""
        latest = self._now() + AHEAD
        for path in sorted(self.names(), key=lambda path: self._written(path, latest), reverse=True)[KEEP:]:
            try:
                if not self._may_run(path):
                    remove(path)
            except (RecordMissing, StoreError):
                continue
