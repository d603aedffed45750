"""The claim of a home: one member at a time. `gateway.lock` is the truth, `gateway.pid` only says who (facts/runtime.md 2)."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import attrs

from nedura.errors import FleetError, RecordMissing, StoreError
from nedura.fleet.identity import masked_argv
from nedura.fleet.processes import Processes, liveness, system_processes
from nedura.fleet.scope import home_key, same_home
from nedura.locks import FileLock
from nedura.records import open_ours, parse_json, read_bytes, read_json, remove, write_json

__all__ = [
    "LOCK_NAME",
    "PID_NAME",
    "Claim",
    "ClaimTaken",
    "Holder",
    "PidRecord",
    "boot_id",
    "holds_claim",
    "lock_holder",
    "read_pid_record",
]

LOCK_NAME: Final = "gateway.lock"
PID_NAME: Final = "gateway.pid"


class ClaimTaken(FleetError):
    """Raised when another process serves the home already.

    Attributes:
        holder: what is known about it.
    """

    code = "claim_taken"

    def __init__(self, holder: Holder) -> None:
        who = f"process {holder.pid}" if holder.pid else "another process"
        super().__init__(
            f"A gateway already runs on this home: {who}.",
            advice="Stop it first, or start this one with --replace.",
        )
        self.holder = holder


@cache
def boot_id() -> str:
    """Id of this boot of the machine or container; empty where there is none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return ""


@attrs.frozen(kw_only=True)
class PidRecord:
    """Who claimed a home.

    Attributes:
        pid: its pid.
        kind: `nedura-gateway` and so on.
        argv: its argument list, for people and for validation; never executed.
        start_time: the kernel's start time.
        nedura_home: the home it claimed.
        host: host name, since pids repeat between containers.
        boot_id: boot of that host.
    """

    pid: int
    kind: str = "nedura-gateway"
    argv: tuple[str, ...] = ()
    start_time: int | None = None
    nedura_home: str = ""
    host: str = ""
    boot_id: str = ""

    @classmethod
    def of_this_process(
        cls, home: Path, *, kind: str = "nedura-gateway", processes: Processes | None = None
    ) -> PidRecord:
        """The record of the running process."""
        stat = (processes or system_processes()).stat(os.getpid())
        return cls(
            pid=os.getpid(),
            kind=kind,
            argv=tuple(masked_argv(sys.orig_argv)),
            start_time=stat.start_time if stat else None,
            nedura_home=str(home),
            host=socket.gethostname(),
            boot_id=boot_id(),
        )

    @classmethod
    def parse(cls, value: Any) -> PidRecord | None:
        """Read a record that any version wrote; a bare integer counts. None when it names no pid."""
        if isinstance(value, int) and not isinstance(value, bool):
            return cls(pid=value) if 0 < value < 2**31 else None
        if not isinstance(value, Mapping):
            return None
        pid, start, argv = value.get("pid"), value.get("start_time"), value.get("argv")
        if not isinstance(pid, int) or isinstance(pid, bool) or not 0 < pid < 2**31:
            return None
        return cls(
            pid=pid,
            kind=str(value.get("kind") or ""),
            argv=tuple(str(item) for item in argv) if isinstance(argv, list) else (),
            start_time=start if isinstance(start, int) and not isinstance(start, bool) else None,
            nedura_home=str(value.get("nedura_home") or ""),
            host=str(value.get("host") or ""),
            boot_id=str(value.get("boot_id") or ""),
        )

    @property
    def elsewhere(self) -> bool:
        """Whether it was written on another host or boot, where its pid means nothing here."""
        if self.host and self.host != socket.gethostname():
            return True
        return bool(self.boot_id and boot_id() and self.boot_id != boot_id())


@attrs.frozen(kw_only=True)
class Holder:
    """The state of a home's lock.

    Attributes:
        held: a live process holds it; None when that cannot be told.
        pid: who, as its own record says and its start time confirms; None when unknown or of another pid namespace.
        record: that record.
    """

    held: bool | None
    pid: int | None = None
    record: PidRecord | None = None


def lock_holder(home: Path, processes: Processes | None = None) -> Holder:
    """Who holds a home's claim, by the kernel's word on the lock. Reads only; a racing start retries past this probe."""
    try:
        handle = open_ours(home / LOCK_NAME)
    except RecordMissing:
        return Holder(held=False)
    except StoreError:
        return Holder(held=None)
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
            return Holder(held=None)
        return _described(os.pread(handle, 65536, 0), processes)
    finally:
        os.close(handle)
    return Holder(held=False)


def _described(content: bytes, processes: Processes | None) -> Holder:
    _, _, line = content.partition(b"\n")
    try:
        record = PidRecord.parse(parse_json(line, LOCK_NAME))
    except StoreError:
        record = None
    if record is None or record.elsewhere:
        return Holder(held=True, record=record)
    proven = liveness(processes or system_processes(), record.pid, record.start_time) in ("alive", "unknown")
    return Holder(held=True, pid=record.pid if proven else None, record=record)


def holds_claim(home: Path, pid: int, processes: Processes | None = None) -> bool:
    """Whether a live process holds a home's claim: the held lock's record names it, its start time and this home, and the
    kernel shows the lock file among its open files. The text alone is no proof: anybody who may write the home can forge it.
    """
    holder = lock_holder(home, processes)
    record = holder.record
    if not holder.held or holder.pid != pid or record is None or record.start_time is None:
        return False
    if not record.nedura_home or not same_home(home_key(record.nedura_home), home_key(home)):
        return False
    return _has_open(pid, home / LOCK_NAME)


def _has_open(pid: int, path: Path) -> bool:
    folder = f"/proc/{pid}/fd"
    try:
        wanted = os.stat(path)
        names = os.listdir(folder)
    except OSError:
        return False
    for name in names:
        try:
            info = os.stat(f"{folder}/{name}")
        except OSError:
            continue  # closed meanwhile
        if (info.st_dev, info.st_ino) == (wanted.st_dev, wanted.st_ino):
            return True
    return False


def read_pid_record(home: Path) -> PidRecord | None:
    """The pid file of a home; None when it is missing or useless. It is never proof of life."""
    try:
        return PidRecord.parse(read_json(home / PID_NAME))
    except StoreError:
        return None


class Claim:
    """One process's claim of one home, held until `release` or death.

    Args:
        home: the home.
        record: who claims.
    """

    def __init__(self, home: Path, record: PidRecord) -> None:
        self.home = home
        self.record = record
        self._lock = FileLock(home / LOCK_NAME, "The gateway claim of this home")

    @property
    def held(self) -> bool:
        """Whether this process holds it."""
        return self._lock.held

    def take(self, attempts: int = 10, pause: float = 0.05) -> None:
        """Take the lock, say who holds it, replace whatever pid file is left over.

        Args:
            attempts: tries, because a reader's probe holds the lock for an instant.
            pause: seconds between them.

        Raises:
            ClaimTaken: another process holds it.
            StoreError: the home cannot be written.
        """
        import time

        for _ in range(attempts):
            if self._lock.try_acquire():
                break
            time.sleep(pause)
        else:
            raise ClaimTaken(lock_holder(self.home))
        data = attrs.asdict(self.record)
        handle = self._lock.fileno()
        text = f"{self.record.pid}\n{json.dumps(data, separators=(',', ':'))}\n".encode()
        try:
            os.ftruncate(handle, 0)
            os.pwrite(handle, text, 0)
            os.fsync(handle)
            write_json(self.home / PID_NAME, data, indent=None)
        except StoreError:
            self._lock.release()
            raise
        except OSError as error:
            self._lock.release()
            raise StoreError(f"The claim of this home cannot be written: {error.strerror}.") from error

    def release(self) -> None:
        """Remove the pid file if it is still ours, then let go of the lock."""
        if not self._lock.held:
            return
        try:
            record = PidRecord.parse(parse_json(read_bytes(self.home / PID_NAME), PID_NAME))
            if record is not None and record.pid == self.record.pid:
                remove(self.home / PID_NAME)
        except StoreError:
            pass  # what is left over is useless without the lock
        finally:
            self._lock.release()
