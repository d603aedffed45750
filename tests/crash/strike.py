"""Running one update and killing it."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import psutil

from tests.crash.plan import CALLS, Kill
from tests.kits.site import World

__all__ = ["count_calls", "has_strace", "strike"]

_FAMILIES = {
    "rename": "rename,renameat,renameat2",
    "symlink": "symlink,symlinkat",
    "unlink": "unlink,unlinkat",
}


def has_strace() -> bool:
    """Whether system calls can be counted and struck here."""
    program = shutil.which("strace")
    if program is None:
        return False
    return (
        subprocess.run(
            [program, "-qq", "-o", "/dev/null", "true"], check=False, capture_output=True
        ).returncode
        == 0
    )


def family(call: str) -> str:
    """Every name of a system call."""
    return _FAMILIES.get(call, call)


def count_calls(log: Path) -> dict[str, int]:
    """The largest number of calls of each kind that one process made: strace counts each process by itself."""
    names = {name: call for call in CALLS for name in family(call).split(",")}
    found: dict[str, Counter[str]] = {}
    for line in log.read_text(errors="replace").splitlines():
        match = re.match(r"^(\d+)\s+(\w+)\(", line)
        if match and match[2] in names:
            found.setdefault(names[match[2]], Counter())[match[1]] += 1
    return {call: max(pids.values()) for call, pids in found.items()}


def sessions_of(root: psutil.Process) -> dict[int, psutil.Process]:
    """The updater tree: the command and its descendants, without gateways and their relaunch watchers (own purpose)."""
    found = {root.pid: root}
    try:
        for process in root.children(recursive=True):
            words = process.cmdline()
            if "gateway" not in words and not any("relaunch" in word for word in words):
                found[process.pid] = process
    except psutil.Error:
        pass
    return found


def child_of(root: psutil.Process) -> psutil.Process | None:
    """The completion child, when it runs."""
    try:
        for process in root.children(recursive=True):
            if any(word.endswith("nedura/update/bootstrap.py") for word in process.cmdline()):
                return process
    except psutil.Error:
        pass
    return None


def _send(process: psutil.Process, number: signal.Signals) -> None:
    try:
        process.send_signal(number)
    except psutil.Error:
        pass


def kill_tree(root: psutil.Process) -> None:
    """Stop everything first, so that nobody reacts to another's death, then kill it."""
    members = sessions_of(root)
    for process in members.values():
        _send(process, signal.SIGSTOP)
    for process in {**members, **sessions_of(root)}.values():
        _send(process, signal.SIGKILL)
    psutil.wait_procs(members.values(), timeout=5)


def strike(
    world: World, kill: Kill | None, *arguments: str, traced: Path | None = None, limit: float = 300.0
) -> tuple[int | None, bool]:
    """Run `nedura update` and kill it as planned.

    Args:
        world: the world.
        kill: None lets it run.
        arguments: further words of the command line.
        traced: where a trace goes.
        limit: seconds after which it is killed anyway.

    Returns:
        Its exit code (None when it was killed) and whether the kill was reached.
    """
    command = [str(world.site.launcher), "update", "--json", *arguments]
    log = world.folder / "update.out"
    if traced is not None or (kill is not None and kill.how == "call"):
        calls = ",".join(family(call) for call in CALLS)
        traced = traced or world.folder / "trace"
        strace = ["strace", "-f", "-o", str(traced), "-e", f"trace={calls}"]
        if kill is not None and kill.how == "call":
            strace += ["-e", f"inject={family(kill.call)}:signal=SIGKILL:when={kill.number}"]
        command = [*strace, *command]
    with log.open("ab") as out:
        process = subprocess.Popen(
            command,
            env=world.environ,
            cwd=world.folder,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    root = psutil.Process(process.pid)
    try:
        return _watch(process, root, kill, limit, traced or world.folder / "trace")
    finally:
        kill_tree(root)
        process.wait()


def _watch(
    process: subprocess.Popen[bytes], root: psutil.Process, kill: Kill | None, limit: float, trace: Path
) -> tuple[int | None, bool]:
    start = time.monotonic()
    seen: set[int] = set()
    while True:
        code = process.poll()
        elapsed = time.monotonic() - start
        if kill is not None and kill.how == "call":
            now = set(sessions_of(root)) - {root.pid}
            gone = {pid for pid in seen if not psutil.pid_exists(pid)}
            seen |= now
            if (gone or code is not None) and _was_killed(process, trace):
                return None, True
        if code is not None:
            return (None, True) if code < 0 or code == 137 else (code, False)
        if kill is not None and kill.how != "call" and elapsed >= kill.after:
            return _kill_now(process, root, kill)
        if elapsed > limit:
            return None, False
        time.sleep(0.01)


def _was_killed(process: subprocess.Popen[bytes], trace: Path) -> bool:
    """Under strace the struck process is gone while strace may go on: then the rest of the tree goes too."""
    if process.poll() in (137, -9):
        return True
    try:
        return b"+++ killed by SIGKILL +++" in trace.read_bytes()[-4096:]
    except OSError:
        return False


def _kill_now(process: subprocess.Popen[bytes], root: psutil.Process, kill: Kill) -> tuple[int | None, bool]:
    if kill.how == "signal":
        _send(root, signal.SIGINT)
        return process.wait(40), True
    target = child_of(root) if kill.whom == "child" else root
    if target is None:
        return process.wait(60), False
    if kill.whom == "tree":
        kill_tree(root)
        return None, True
    orphans = sessions_of(root)
    _send(target, signal.SIGKILL)
    if kill.whom == "child":
        return process.wait(60), True
    psutil.wait_procs([one for pid, one in orphans.items() if pid != root.pid], timeout=60)
    return None, True
