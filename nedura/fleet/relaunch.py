"""The relaunch watcher: waits for one process to end, then becomes its successor. Standard library only, started by path.

It runs in its own session, so that neither the updater's end nor a closed terminal takes it along, and it was forked away from its
starter, so that nobody has to reap it. Its request comes as one JSON object on stdin (nothing of it shows in a process list)::

    {"pid": 4242, "start_time": 123456, "timeout": 1935.0,
     "argv": ["/home/u/.nedura/bin/nedura", "gateway", "run"], "env": {"NEDURA_HOME": "..."}, "cwd": "...", "log": "..."}

It prints its own pid and start time when it stands, and starts nothing when the old process outlives `timeout`: never two of one.
"""

from __future__ import annotations

import json
import os
import select
import sys
import time

MAX_REQUEST = 256 * 1024
ABANDONED = 3
"""Exit code of a watcher whose process outlived it."""


def start_time_of(pid: int) -> int | None:
    """Kernel start time of a live process; None when it is dead or a zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            text = stat.read()
    except OSError:
        return None
    fields = text[text.rfind(b")") + 2 :].split()
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def alive(pid: int, start_time: int | None) -> bool:
    """Whether this very incarnation still runs."""
    if os.path.isdir("/proc/self"):
        found = start_time_of(pid)
        return found is not None and (start_time is None or found == start_time)
    try:
        os.getpgid(pid)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def wait_gone(pid: int, start_time: int | None, timeout: float) -> bool:
    """Wait for the end of a process, woken by its handle where the kernel has one; False when it outlived `timeout` seconds."""
    end = time.monotonic() + timeout
    try:
        handle = os.pidfd_open(pid)
    except (AttributeError, OSError):
        handle = -1
    try:
        while alive(pid, start_time):
            left = end - time.monotonic()
            if left <= 0:
                return False
            if handle >= 0:
                select.select([handle], [], [], min(left, 60.0))
            else:
                time.sleep(min(left, 0.1))
        return True
    finally:
        if handle >= 0:
            os.close(handle)


def detach(log: str) -> None:
    """Leave the starter's session and its files: stdin from nowhere, output to the log."""
    os.setsid()
    nowhere = os.open(os.devnull, os.O_RDWR)
    try:
        out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    except OSError:
        out = nowhere
    os.dup2(nowhere, 0)
    os.dup2(out, 1)
    os.dup2(out, 2)


def main() -> int:
    """Read the request, fork away, wait, become the successor."""
    request = json.loads(sys.stdin.buffer.read(MAX_REQUEST))
    pid, start_time = int(request["pid"]), request["start_time"]
    argv = [str(part) for part in request["argv"]]
    child = os.fork()
    if child:
        sys.stdout.write(f"{child} {start_time_of(child) or 0}\n")
        sys.stdout.flush()
        return 0
    detach(str(request["log"]))
    if not wait_gone(pid, start_time, float(request["timeout"])):
        sys.stderr.write(f"relaunch: process {pid} is still running, nothing was started\n")
        return ABANDONED
    try:
        os.chdir(request["cwd"])
        os.execve(argv[0], argv, {str(key): str(value) for key, value in request["env"].items()})
    except OSError as error:
        sys.stderr.write(f"relaunch: {argv[0]} cannot be started: {error.strerror}\n")
    return 127


if __name__ == "__main__":
    sys.exit(main())
