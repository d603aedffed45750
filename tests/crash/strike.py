"""Running one update and striking it."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

import attrs
import psutil

from tests.crash.host import Host
from tests.crash.plan import CALLS, Kill

__all__ = ["Blow", "count_calls", "has_strace", "strike"]

_FAMILIES: Final = {
    "rename": "rename,renameat,renameat2",
    "symlink": "symlink,symlinkat",
    "unlink": "unlink,unlinkat",
}
_STAGE: Final = re.compile(rb'"kind":"stage_started".*?"stage":"(\w+)"')
_TICK: Final = 0.01


@attrs.frozen(kw_only=True)
class Blow:
    """How a run under a strike ended.

    Attributes:
        code: exit code, None when it was killed.
        reached: whether the strike happened.
        stage: the last stage that was announced before it.
    """

    code: int | None
    reached: bool
    stage: str


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


def _updates(process: psutil.Process) -> bool:
    """Whether it is part of the updater: neither a gateway nor a relaunch watcher (own purpose)."""
    try:
        words = process.cmdline()
    except psutil.Error:
        return False
    return "gateway" not in words and not any("relaunch" in word for word in words)


def sessions_of(root: psutil.Process) -> dict[int, psutil.Process]:
    """The updater tree: the command and its descendants."""
    found = {root.pid: root}
    try:
        found |= {one.pid: one for one in root.children(recursive=True) if _updates(one)}
    except psutil.Error:
        pass
    return found


def traced_by(tracer: int) -> dict[int, psutil.Process]:
    """The updater tree of a traced run, whether its head lives or not; nobody when it was gone before its tracer was seen."""
    if tracer <= 0:  # that is what everybody who is not traced says, the harness included
        return {}
    found = [one for one in psutil.process_iter() if _tracer_of(one.pid) == tracer]
    return {one.pid: one for one in found if _updates(one)}


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


def kill_tree(tree: Callable[[], dict[int, psutil.Process]]) -> None:
    """Stop everything first, so that nobody reacts to another's death, then kill it."""
    members = tree()
    for process in members.values():
        _send(process, signal.SIGSTOP)
    members |= tree()
    for process in members.values():
        _send(process, signal.SIGKILL)
    psutil.wait_procs(members.values(), timeout=5)


def _tracer_of(pid: int) -> int:
    """Pid of the process that traces one, 0 for none."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return int(text.split("TracerPid:", 1)[1].split(None, 1)[0])


@attrs.define
class _Run:
    """One update under observation.

    The tracer is a grandchild (`strace -D`), so that the process we started is the update itself; at the end it is told to let go, and
    the gateways that the update restarted go on untraced.
    """

    host: Host
    kill: Kill | None
    trace: Path | None
    limit: float
    process: subprocess.Popen[bytes]
    out: Path
    offset: int
    tracer: int = 0
    stage: str = "start"
    stage_at: float = 0.0

    def watch(self) -> Blow:
        start = self.stage_at = time.monotonic()
        while True:
            code = self.process.poll()
            self._read()
            if self.trace is not None and not self.tracer and code is None:
                self.tracer = _tracer_of(self.process.pid)
            if self._due(start):
                return self._strike()
            if code is not None:
                return self._ended(code)
            if time.monotonic() - start > self.limit:
                raise AssertionError(f"the update did not end within {self.limit:.0f} s, stage {self.stage}")
            time.sleep(_TICK)

    def _read(self) -> None:
        """Note the last stage that was announced; the file is not read past a half line."""
        with self.out.open("rb") as file:
            file.seek(self.offset)
            data = file.read()
        end = data.rfind(b"\n") + 1
        names = _STAGE.findall(data[:end])
        self.offset += end
        if names:
            self.stage, self.stage_at = names[-1].decode(), time.monotonic()

    def _due(self, start: float) -> bool:
        kill, now = self.kill, time.monotonic()
        if kill is None:
            return False
        if kill.how == "call":
            return kill.what != "eio" and self._someone_was_struck()
        if kill.how == "stage":
            return self.stage == kill.stage and now - self.stage_at >= kill.after
        return now - start >= kill.after

    def _someone_was_struck(self) -> bool:
        """The struck process is gone; the rest of the tree goes too."""
        if self.process.poll() in (137, -9):
            return True
        try:
            return b"+++ killed by SIGKILL +++" in self._trace_text()
        except OSError:
            return False

    def _trace_text(self) -> bytes:
        assert self.trace is not None
        with self.trace.open("rb") as file:
            file.seek(max(0, self.trace.stat().st_size - 8192))
            return file.read()

    def _ended(self, code: int) -> Blow:
        kill = self.kill
        if kill is not None and kill.what == "eio" and self.trace is not None:
            return Blow(code=code, reached=b"(INJECTED)" in self.trace.read_bytes(), stage=self.stage)
        killed = code < 0 or code == 137
        return Blow(code=None if killed else code, reached=killed, stage=self.stage)

    def _strike(self) -> Blow:
        kill = self.kill
        assert kill is not None
        if kill.what == "power":
            self.host.cut_power()
            return Blow(code=None, reached=True, stage=self.stage)
        if kill.what in ("full", "readonly"):
            with self.host.full() if kill.what == "full" else self.host.readonly():
                return Blow(code=self._wait(), reached=True, stage=self.stage)
        if kill.how == "call":
            kill_tree(lambda: traced_by(self.tracer))
            return Blow(code=None, reached=True, stage=self.stage)
        root = psutil.Process(self.process.pid)
        if kill.what == "sigint":
            _send(root, signal.SIGINT)
            return Blow(code=self._wait(), reached=True, stage=self.stage)
        return self._kill(kill, root)

    def _wait(self) -> int:
        code = self.process.wait(self.limit)
        self.process.returncode = code
        return code

    def _kill(self, kill: Kill, root: psutil.Process) -> Blow:
        stage = self.stage
        target = child_of(root) if kill.whom == "child" else root
        if target is None:  # it does not run at this moment
            return Blow(code=self._wait(), reached=False, stage=stage)
        if kill.whom == "tree":
            kill_tree(lambda: sessions_of(root))
            return Blow(code=None, reached=True, stage=stage)
        orphans = sessions_of(root)
        _send(target, signal.SIGKILL)
        if kill.whom == "child":
            return Blow(code=self._wait(), reached=True, stage=stage)
        psutil.wait_procs([one for pid, one in orphans.items() if pid != root.pid], timeout=self.limit)
        return Blow(code=None, reached=True, stage=stage)

    def end(self) -> None:
        """Nothing of it goes on; whoever it restarted goes on by itself."""
        try:
            root = psutil.Process(self.process.pid)
            kill_tree(lambda: sessions_of(root))
        except psutil.NoSuchProcess:
            pass
        self.process.wait()
        if self.tracer:
            try:
                tracer = psutil.Process(self.tracer)
                tracer.terminate()
                tracer.wait(5)
            except psutil.NoSuchProcess:
                pass


def _command(host: Host, kill: Kill | None, trace: Path | None, arguments: tuple[str, ...]) -> list[str]:
    command = [str(host.world.site.launcher), "update", "--json", *arguments]
    if trace is None:
        return command
    names = ",".join(family(call) for call in CALLS)
    strace = ["strace", "-D", "-I2", "-f", "-qq", "-o", str(trace), "-e", f"trace={names}"]
    if kill is not None and kill.how == "call":
        effect = "error=EIO" if kill.what == "eio" else "signal=SIGKILL"
        strace += ["-e", f"inject={family(kill.call)}:{effect}:when={kill.number}"]
    return [*strace, *command]


def strike(
    host: Host, kill: Kill | None, *arguments: str, traced: Path | None = None, limit: float = 120.0
) -> Blow:
    """Run `nedura update` and strike it as planned.

    Args:
        host: where.
        kill: None lets it run.
        arguments: further words of the command line.
        traced: where a trace goes.
        limit: seconds after which it hangs.

    Raises:
        AssertionError: it hangs.
    """
    if traced is None and kill is not None and kill.how == "call":
        traced = host.outside / "trace"
    if traced is not None:
        traced.write_bytes(b"")
    out = host.outside / "update.out"
    with out.open("ab") as log:
        process = subprocess.Popen(
            _command(host, kill, traced, arguments),
            env=host.world.environ,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        offset = log.tell()
    run = _Run(host, kill, traced, limit, process, out, offset)
    try:
        return run.watch()
    finally:
        run.end()
