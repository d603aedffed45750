"""One update at a time: a marker in the root home and a kernel lock on the install, held by the whole process tree.

The marker names its owner by pid and creation time and is reclaimed when that process is gone. The install lock is a flock whose
descriptor the completion inherits, and nothing else: a killed parent with a live child stays locked, and closing releases it
(facts/update.md 5.1).
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Final

import attrs

from nedura.errors import RecordMissing, RefusedError, StoreError
from nedura.installs import git_folder
from nedura.locks import locked
from nedura.product import Product
from nedura.records import make_folder, open_ours, read_bytes, remove, write_bytes
from nedura.text import clean, spoken_wait
from nedura.update.ledger.owner import Owner, ancestors, is_alive, myself

__all__ = [
    "LockHeld",
    "LockRecord",
    "UpdateLock",
    "UpdateLockUnusable",
    "format_record",
    "holders",
    "is_running",
    "lock_place",
    "parse_record",
]

V1_CEILING: Final = 20 * 60.0
"""Seconds after which a version 1 marker (no creation time) is stale."""
CLOCK_SLACK: Final = 60.0
"""Seconds that a version 1 marker may lie ahead of this clock."""


class LockHeld(RefusedError):
    """Raised when another update of this root home or install is running.

    Attributes:
        holder: its pid, 0 when unknown.
    """

    code: ClassVar[str] = "lock_held"

    def __init__(self, holder: int, elapsed: float | None, left_by: int = 0) -> None:
        who = f"process {holder}" if holder else "another process"
        since = f", started {spoken_wait(elapsed)} ago" if elapsed is not None else ""
        advice = "Wait for it, then run the update again."
        if left_by:
            who += f" ({process_name(holder)}), left behind by the update of process {left_by}"
            advice = f"Wait for it, or, when it does not end by itself: kill {holder}"
        super().__init__(
            f"The install is locked by {who}{since}."
            if left_by
            else f"Another update is running ({who}{since}).",
            advice=advice,
        )
        self.holder = holder


class UpdateLockUnusable(RefusedError):
    """Raised when the lock cannot be taken at all; an update never runs unlocked."""

    code: ClassVar[str] = "lock_unusable"


@attrs.frozen
class LockRecord:
    """What marker and lock say: who holds it, and since when (unix seconds)."""

    owner: Owner
    started: float
    version: int = 2


def format_record(record: LockRecord) -> bytes:
    """The three lines of version 2."""
    return f"{record.owner.pid}\n{record.started:.0f}\nct:{record.owner.create_time:.3f}\n".encode()


def parse_record(data: bytes) -> LockRecord | None:
    """Read a marker of version 1 or 2; None when it is neither (a torn write has no owner)."""
    lines = data.decode("ascii", "replace").split()
    try:
        pid, started = int(lines[0]), float(lines[1])
        if len(lines) > 2 and lines[2].startswith("ct:"):
            return LockRecord(Owner(pid, float(lines[2][3:])), started)
    except (ValueError, IndexError):
        return None
    return LockRecord(Owner(pid, 0.0), started, version=1)


def is_live(record: LockRecord | None, now: float) -> bool:
    """Whether a record's owner still runs; version 1 ages out, also where a clock was set back since it was written."""
    if record is None:
        return False
    if record.version == 1 and not -CLOCK_SLACK <= now - record.started <= V1_CEILING:
        return False
    return is_alive(record.owner)


def holders(handle: int) -> tuple[int, ...]:
    """Processes besides this one that keep a locked file locked: they have inherited the very descriptor that was locked.

    Who merely has the file open is none of them. Empty where the system cannot be asked (no `/proc`).

    Args:
        handle: any descriptor of the file.
    """
    wanted = os.fstat(handle)
    names = os.listdir("/proc") if os.path.isdir("/proc/self/fdinfo") else ()
    pids = [int(name) for name in names if name.isdigit()]
    return tuple(pid for pid in pids if pid != os.getpid() and _holds(f"/proc/{pid}", wanted))


def _holds(process: str, wanted: os.stat_result) -> bool:
    try:
        numbers = os.listdir(f"{process}/fd")
    except OSError:  # it has ended, or is another user's and so none of ours
        return False
    for number in numbers:
        try:
            if not os.path.samestat(os.stat(f"{process}/fd/{number}"), wanted):
                continue
            with open(f"{process}/fdinfo/{number}", encoding="ascii") as stream:
                if any(line.startswith("lock:") and " FLOCK " in f"{line} " for line in stream):
                    return True
        except OSError:
            continue
    return False


def process_name(pid: int) -> str:
    """What a process is called, for people; `unknown` when it cannot be told."""
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as stream:
            return clean(stream.read(), 40) or "unknown"
    except OSError:
        return "unknown"


def lock_place(folder: Path, checkout: Path | None, product: Product) -> Path:
    """The install's lock file: beside its generations (sealed), in the git folder (checkout), else beside the release.

    Args:
        folder: the install's state folder (the root home where there is no install).
        checkout: the owner's checkout or unpacked release; None for a sealed install.
        product: names.
    """
    name = f"{product.command}-update.lock"
    if checkout is None:
        return folder / f".{name}"
    folder_of_git = git_folder(checkout)
    if folder_of_git is None:
        return checkout / f".{name}"
    # there nothing may end in .lock: that is how git's own left-overs are known
    return folder_of_git / f"{product.command}-update-holder"


def is_running(root_home: Path, lock_file: Path, product: Product, now: float) -> bool:
    """Whether an update of this home or install runs now, an orphaned second half included; in doubt it does.

    Args:
        root_home: root home.
        lock_file: the install's lock file.
        product: names.
        now: unix seconds.
    """
    try:
        if is_live(parse_record(read_bytes(root_home / f".{product.command}-update-in-progress", 4096)), now):
            return True
    except RecordMissing:
        pass
    except StoreError:
        return True
    try:
        handle = open_ours(lock_file, os.O_RDWR)
    except RecordMissing:
        return False
    except StoreError:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    else:
        return False
    finally:
        os.close(handle)


class UpdateLock:
    """Marker and install lock of one run.

    Args:
        root_home: whose tree of profiles the marker covers; never a profile's home.
        lock_file: the install's lock file, shared by every home that updates the same install.
        product: names.
        environ: the run's environment (`<PREFIX>_UPDATE_HANDOFF_PID` names a live owner we act for).
    """

    def __init__(
        self, root_home: Path, lock_file: Path, product: Product, environ: Mapping[str, str]
    ) -> None:
        self.marker = root_home / f".{product.command}-update-in-progress"
        self.mutex = root_home / f".{product.command}-update.mutex"
        self.lock_file = lock_file
        handoff = product.setting(environ, "UPDATE_HANDOFF_PID")
        self._acting_for = int(handoff) if handoff.isdigit() else 0
        self._handle: int | None = None
        self._adopted = False
        self._written = b""

    def acquire(self, now: float) -> None:
        """Take both, or change nothing.

        Args:
            now: unix seconds.

        Raises:
            LockHeld: another update runs.
            UpdateLockUnusable: a lock cannot be written here.
        """
        try:
            make_folder(self.marker.parent)
            make_folder(self.lock_file.parent)
            with locked(self.mutex, what="the update lock"):
                self._take(now)
        except RefusedError:
            raise
        except StoreError as error:
            self.release()
            raise UpdateLockUnusable(
                f"Cannot lock this install: {error.message}", advice=error.advice
            ) from error

    def _take(self, now: float) -> None:
        present = self._read_marker()
        if is_live(present, now) and present is not None:
            if not self._is_ours(present.owner.pid):
                raise LockHeld(present.owner.pid, max(0.0, now - present.started))
            self._adopted = True
        self._lock_install(now)
        if self._adopted:
            return
        record = format_record(LockRecord(myself(), now))
        write_bytes(self.marker, record)
        self._written = record

    def _is_ours(self, pid: int) -> bool:
        return pid in (os.getpid(), self._acting_for) or pid in ancestors()

    def _read_marker(self) -> LockRecord | None:
        try:
            return parse_record(read_bytes(self.marker, 4096))
        except RecordMissing:
            return None

    def _lock_install(self, now: float) -> None:
        handle = open_ours(self.lock_file, os.O_RDWR | os.O_CREAT)
        try:
            self._flock(handle)
        except BlockingIOError as error:
            holder = parse_record(os.pread(handle, 4096, 0))
            really = () if is_live(holder, now) else holders(handle)
            os.close(handle)
            keepers = really or ((holder.owner.pid,) if holder is not None else ())
            if self._adopted and any(map(self._is_ours, keepers)):  # it is held for us
                return
            pid = holder.owner.pid if holder is not None else 0
            elapsed = max(0.0, now - holder.started) if holder else None
            raise LockHeld(*((really[0], elapsed, pid) if really else (pid, elapsed))) from error
        except OSError as error:
            os.close(handle)
            raise StoreError(f"{self.lock_file} cannot be locked: {error.strerror}.") from error
        try:
            os.ftruncate(handle, 0)
            os.pwrite(handle, format_record(LockRecord(myself(), now)), 0)
        except OSError as error:
            os.close(handle)
            raise StoreError(
                f"{self.lock_file} cannot be written: {error.strerror}.",
                advice="Check free space and permissions.",
            ) from error
        self._handle = handle

    def _flock(self, handle: int) -> None:
        """Take it, past a launch that only looks (`is_running` holds it for a moment).

        Raises:
            BlockingIOError: somebody keeps it.
        """
        for again in (True, True, True, False):
            try:
                return fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if not again:
                    raise
                time.sleep(0.02)
        return None

    @property
    def fds(self) -> tuple[int, ...]:
        """Descriptors that a child must inherit to keep the install locked after our death."""
        return () if self._handle is None else (self._handle,)

    def release(self) -> None:
        """Give both back. The marker goes only while it still is the one we wrote; the flock by closing."""
        if self._written:
            try:
                if read_bytes(self.marker, 4096) == self._written:
                    remove(self.marker)
            except StoreError:
                pass  # a marker of a dead owner is reclaimed by the next update
            self._written = b""
        handle, self._handle = self._handle, None
        if handle is not None:
            os.close(handle)
