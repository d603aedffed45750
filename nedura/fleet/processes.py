"""The process table: /proc directly on Linux, psutil elsewhere.

Other users' processes, vanished pids and unreadable files are normal here: every answer may be None, which means "unknown" and
never "no". A zombie is dead. A pid is only worth something together with its start time.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal, Protocol

import attrs

__all__ = [
    "Liveness",
    "ProcFs",
    "Processes",
    "PsutilProcesses",
    "Stat",
    "ancestors",
    "liveness",
    "parse_stat",
    "same_start",
    "split_cmdline",
    "system_processes",
]

Liveness = Literal["alive", "gone", "another", "unknown"]
_CHUNK: Final = 65536
_START_FIELD: Final = 19
"""Index of field 22 (start time) of `/proc/<pid>/stat` after the command name."""


@attrs.frozen(kw_only=True)
class Stat:
    """What the kernel says about a pid.

    Attributes:
        ppid: parent.
        state: one letter; Z and X are dead, T and t stopped.
        start_time: Linux: ticks since boot; elsewhere creation time in hundredths of a second. Never mixed on one platform.
    """

    ppid: int
    state: str
    start_time: int | None

    @property
    def dead(self) -> bool:
        """Whether only its exit status is left."""
        return self.state in ("Z", "X")

    @property
    def halted(self) -> bool:
        """Whether a signal or a debugger holds it: it lives, keeps its locks and does nothing."""
        return self.state in ("T", "t")


class Processes(Protocol):
    """What nedura asks of the process table."""

    def pids(self) -> list[int]:
        """Every pid that can be seen now."""
        ...

    def argv(self, pid: int) -> tuple[str, ...] | None:
        """Full argument list; None when it cannot be read, empty for a zombie or kernel thread."""
        ...

    def environ(self, pid: int) -> dict[str, str] | None:
        """Environment it was started with; None when it cannot be read."""
        ...

    def stat(self, pid: int) -> Stat | None:
        """Parent, state and start time; None when there is no such pid."""
        ...

    def uid(self, pid: int) -> int | None:
        """Its real owner; None when it cannot be told."""
        ...

    def cgroup(self, pid: int) -> str:
        """Text of its cgroup file; empty where there are none."""
        ...

    def matching(self, needle: re.Pattern[bytes]) -> Iterator[tuple[int, tuple[str, ...]]]:
        """Processes whose raw command line contains the needle. A pre-filter for speed, never an identity."""
        ...


def parse_stat(text: str) -> Stat | None:
    """Read `/proc/<pid>/stat`. The command name may hold blanks and parentheses: the fields begin after the last one."""
    _, mark, rest = text.rpartition(")")
    fields = rest.split()
    if not mark or len(fields) <= _START_FIELD:
        return None
    try:
        return Stat(ppid=int(fields[1]), state=fields[0], start_time=int(fields[_START_FIELD]))
    except ValueError:
        return None


def split_cmdline(raw: bytes) -> tuple[str, ...]:
    """NUL-separated arguments to a tuple. Padding that a process left when it renamed itself is dropped."""
    stripped = raw.rstrip(b"\0")
    return tuple(os.fsdecode(token) for token in stripped.split(b"\0")) if stripped else ()


class ProcFs:
    """The Linux process table.

    Args:
        root: where procfs is mounted; a folder of files in tests.
    """

    def __init__(self, root: Path = Path("/proc")) -> None:
        self.root = str(root)

    def _read(self, pid: int, name: str) -> bytes | None:
        try:
            handle = os.open(f"{self.root}/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            data = os.read(handle, _CHUNK)
            while len(data) % _CHUNK == 0 and (more := os.read(handle, _CHUNK)):
                data += more
            return data
        except OSError:
            return None
        finally:
            os.close(handle)

    def pids(self) -> list[int]:
        """Every pid that procfs lists."""
        try:
            return [int(name) for name in os.listdir(self.root) if name.isdigit()]
        except OSError:
            return []

    def argv(self, pid: int) -> tuple[str, ...] | None:
        """Full argument list of a pid."""
        raw = self._read(pid, "cmdline")
        return None if raw is None else split_cmdline(raw)

    def environ(self, pid: int) -> dict[str, str] | None:
        """Environment of a pid; an empty file of a live process means that it was not shown to us."""
        raw = self._read(pid, "environ")
        if not raw:
            return None
        pairs = (os.fsdecode(item).partition("=") for item in raw.split(b"\0") if b"=" in item)
        return {name: value for name, _, value in pairs}

    def stat(self, pid: int) -> Stat | None:
        """Parent, state and start time of a pid."""
        raw = self._read(pid, "stat")
        return None if raw is None else parse_stat(raw.decode("utf-8", "replace"))

    def uid(self, pid: int) -> int | None:
        """Real uid of a pid."""
        raw = self._read(pid, "status")
        found = re.search(rb"^Uid:\s+(\d+)", raw or b"", re.MULTILINE)
        return int(found[1]) if found else None

    def cgroup(self, pid: int) -> str:
        """Its cgroup file."""
        return (self._read(pid, "cgroup") or b"").decode("utf-8", "replace")

    def matching(self, needle: re.Pattern[bytes]) -> Iterator[tuple[int, tuple[str, ...]]]:
        """Processes whose raw command line contains the needle."""
        root, search = self.root, needle.search
        for pid in self.pids():
            try:
                handle = os.open(f"{root}/{pid}/cmdline", os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                continue
            try:
                raw = os.read(handle, _CHUNK)
            except OSError:
                continue
            finally:
                os.close(handle)
            if raw and (search(raw) or len(raw) == _CHUNK):
                argv = self.argv(pid)
                if argv:
                    yield pid, argv


class PsutilProcesses:
    """The process table of other systems, through psutil."""

    def pids(self) -> list[int]:
        """Every pid psutil lists."""
        import psutil

        return list(psutil.pids())

    def argv(self, pid: int) -> tuple[str, ...] | None:
        """Full argument list of a pid."""
        import psutil

        try:
            return tuple(psutil.Process(pid).cmdline())
        except psutil.ZombieProcess:
            return ()
        except psutil.Error:
            return None

    def environ(self, pid: int) -> dict[str, str] | None:
        """Environment of a pid."""
        import psutil

        try:
            return dict(psutil.Process(pid).environ())
        except psutil.Error:
            return None

    def stat(self, pid: int) -> Stat | None:
        """Parent, state and creation time of a pid."""
        import psutil

        try:
            process = psutil.Process(pid)
            with process.oneshot():
                dead = process.status() == psutil.STATUS_ZOMBIE
                return Stat(
                    ppid=process.ppid(),
                    state="Z" if dead else "R",
                    start_time=round(process.create_time() * 100),
                )
        except psutil.ZombieProcess:
            return Stat(ppid=0, state="Z", start_time=None)
        except psutil.AccessDenied:
            return Stat(ppid=0, state="?", start_time=None)
        except psutil.Error:
            return None

    def uid(self, pid: int) -> int | None:
        """Real uid of a pid."""
        import psutil

        try:
            return int(psutil.Process(pid).uids().real)
        except (psutil.Error, AttributeError):
            return None

    def cgroup(self, pid: int) -> str:
        """There are none."""
        return ""

    def matching(self, needle: re.Pattern[bytes]) -> Iterator[tuple[int, tuple[str, ...]]]:
        """Processes whose command line contains the needle."""
        for pid in self.pids():
            argv = self.argv(pid)
            if argv and needle.search(b"\0".join(os.fsencode(token) for token in argv)):
                yield pid, argv


def system_processes() -> Processes:
    """The process table of this system."""
    return ProcFs() if sys.platform.startswith("linux") else PsutilProcesses()


def same_start(first: int | None, second: int | None, tolerance: int = 0) -> bool | None:
    """Whether two start times are of one process: True, False, or None when one of them is unknown.

    Args:
        first: a start time.
        second: another one of the same platform.
        tolerance: units that may differ; 200 where the boot time drifts (psutil platforms), 0 on Linux.
    """
    if first is None or second is None:
        return None
    return abs(first - second) <= tolerance


def liveness(
    processes: Processes, pid: int, start_time: int | None, *, tolerance: int | None = None
) -> Liveness:
    """What became of a recorded process. Unknown neither kills nor frees a lock."""
    stat = processes.stat(pid)
    if stat is None or stat.dead:
        return "gone"
    if tolerance is None:
        tolerance = 0 if sys.platform.startswith("linux") else 200
    match same_start(stat.start_time, start_time, tolerance):
        case None:
            return "unknown"
        case True:
            return "alive"
        case False:
            return "another"


def ancestors(processes: Processes, pid: int) -> tuple[int, ...]:
    """The chain of parents of a process, nearest first, itself left out."""
    chain: list[int] = []
    current = processes.stat(pid)
    while current is not None and current.ppid > 0 and current.ppid not in chain:
        chain.append(current.ppid)
        current = processes.stat(current.ppid)
    return tuple(chain)
