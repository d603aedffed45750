"""The one place that signals another process: never by pid alone.

A handle on the process is taken first (pidfd); then its start time, owner and whatever the caller wants proven are checked while
the handle pins the pid; then the signal goes through the handle. Where there is no pidfd the checks run right before the signal.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Literal

import attrs

from nedura.fleet.processes import Processes, liveness, system_processes

__all__ = ["Sent", "send_signal", "wait_gone"]

Outcome = Literal["sent", "gone", "refused"]
_HAS_PIDFD: Final = sys.platform.startswith("linux") and hasattr(os, "pidfd_open")


@attrs.frozen
class Sent:
    """What became of a signal.

    Attributes:
        outcome: `sent`, `gone` (the process does not live any more) or `refused` (it is not proven to be the one that was meant).
        reason: why it was refused.
    """

    outcome: Outcome
    reason: str = ""

    def __bool__(self) -> bool:
        return self.outcome == "sent"


@contextmanager
def _handle(pid: int) -> Iterator[int | None]:
    handle = os.pidfd_open(pid) if _HAS_PIDFD else None
    try:
        yield handle
    finally:
        if handle is not None:
            os.close(handle)


def send_signal(
    pid: int,
    number: signal.Signals,
    *,
    start_time: int | None,
    proof: Callable[[int], str] | None = None,
    processes: Processes | None = None,
    uid: int | None = None,
) -> Sent:
    """Signal exactly the process that a record or a scan meant, or nobody.

    Args:
        pid: its pid.
        number: the signal.
        start_time: the kernel's start time that belongs to the pid; unknown is refused.
        proof: called under the handle; returns why the process is not the one that is meant, or an empty text.
        processes: the process table.
        uid: owner that the process must have; default ours.
    """
    processes = system_processes() if processes is None else processes
    if pid <= 1:
        return Sent("refused", "no runtime of ours has that pid")
    if pid == os.getpid():
        return Sent("refused", "it is this process")
    try:
        with _handle(pid) as handle:
            reason = _doubt(pid, start_time, processes, os.geteuid() if uid is None else uid, proof)
            if reason == "gone":
                return Sent("gone")
            if reason:
                return Sent("refused", reason)
            if handle is not None:
                signal.pidfd_send_signal(handle, number)
            else:
                os.kill(pid, number)
            return Sent("sent")
    except ProcessLookupError:
        return Sent("gone")
    except OSError as error:
        return Sent("refused", f"the system refused: {error.strerror}")


def _doubt(
    pid: int, start_time: int | None, processes: Processes, uid: int, proof: Callable[[int], str] | None
) -> str:
    match liveness(processes, pid, start_time):
        case "gone":
            return "gone"
        case "another":
            return "the pid now belongs to another process"
        case "unknown":
            return "its start time cannot be compared"
        case _:
            pass
    if processes.uid(pid) != uid:
        return "it belongs to another user"
    return proof(pid) if proof is not None else ""


def wait_gone(pid: int, start_time: int | None, timeout: float) -> bool:
    """Wait until a process is dead, in this thread; a zombie is dead. Returns whether it is."""
    import select
    import time

    processes = system_processes()
    deadline = time.monotonic() + timeout
    while liveness(processes, pid, start_time) in ("alive", "unknown"):
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        try:
            with _handle(pid) as handle:
                if handle is None:
                    time.sleep(min(0.05, left))
                else:
                    select.select([handle], [], [], min(1.0, left))
        except ProcessLookupError:
            return True
        except OSError:
            time.sleep(min(0.05, left))
    return True
