"""Running one update and striking it."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import attrs
import psutil

from tests.crash.follow import Follower
from tests.crash.host import Host
from tests.crash.plan import Kill
from tests.crash.trace import CALLS, START, family

__all__ = ["UPDATE", "Blow", "has_strace", "heed_ctrl_c", "strike"]

UPDATE: Final = ("update", "--json")
_STAGE: Final = re.compile(rb'"kind":"stage_started".*?"stage":"(\w+)"')
_TICK: Final = 0.004
_BEFORE: Final = frozenset({START, "plan", "snapshot", "prepare", "validate", "commit"})
"""Stages in which an update has started nothing that lives on."""


@attrs.frozen(kw_only=True)
class Blow:
    """How a run under a strike ended.

    Attributes:
        code: exit code, None when it was killed.
        reached: whether the strike happened.
        stage: the last stage that was announced before it.
        at: unix seconds of the strike.
        by_call: whether it was the planned system call.
        bystander: whether that hit a gateway instead of the updater.
        seconds: how long the run took.
        lengths: seconds of each stage.
    """

    code: int | None
    reached: bool
    stage: str
    at: float = 0.0
    by_call: bool = False
    bystander: bool = False
    seconds: float = 0.0
    lengths: dict[str, float] = attrs.field(factory=dict)


def heed_ctrl_c() -> None:
    """A job that a shell put into the background ignores SIGINT, and so would all that it starts: an update struck by it would go on."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


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

    The tracer of a run that is traced from its beginning is a grandchild (`strace -D`), so that the process we started is the update
    itself; at the end it is told to let go, and the gateways that the update restarted go on untraced.
    """

    host: Host
    kill: Kill | None
    trace: Path | None
    limit: float
    process: subprocess.Popen[bytes]
    out: Path
    offset: int
    tracer: int = 0
    filtered: bool = False
    attached: subprocess.Popen[bytes] | None = None
    start: float = attrs.field(factory=time.monotonic)
    seen: dict[str, float] = attrs.field(factory=dict)
    follower: Follower | None = None
    let_go: bool = False

    @property
    def stage(self) -> str:
        """The last one that was announced."""
        return next(reversed(self.seen))

    def watch(self) -> Blow:
        """Until it is struck or has ended."""
        self.seen[START] = self.start
        while True:
            code = self.process.poll()
            self._read()
            if self.trace is not None and code is None:
                self._find_tracer()
            if self._due():
                return self._timed(self._strike())
            if code is not None:
                return self._timed(self._ended(code))
            if time.monotonic() - self.start > self.limit:
                raise AssertionError(f"the update did not end within {self.limit:.0f} s, stage {self.stage}")
            time.sleep(_TICK)

    def _timed(self, blow: Blow) -> Blow:
        end = time.monotonic()
        begins = [*self.seen.values(), end]
        lengths = {name: begins[at + 1] - begins[at] for at, name in enumerate(self.seen)}
        return attrs.evolve(blow, seconds=end - self.start, lengths=lengths)

    def _read(self) -> None:
        """Note the stages that were announced; the file is not read past a half line."""
        with self.out.open("rb") as file:
            file.seek(self.offset)
            data = file.read()
        end = data.rfind(b"\n") + 1
        self.offset += end
        for name in _STAGE.findall(data[:end]):
            self.seen.setdefault(name.decode(), time.monotonic())

    def _find_tracer(self) -> None:
        """The one that was started along, or a new one as soon as the calls count."""
        kill = self.kill
        if self.tracer:
            return
        if kill is None or kill.since == START:
            self.tracer = _tracer_of(self.process.pid)
        elif kill.since in self.seen:
            assert self.trace is not None
            pids = [
                word for pid in sessions_of(psutil.Process(self.process.pid)) for word in ("-p", str(pid))
            ]
            self.attached = subprocess.Popen(
                [*_strace(self.trace, kill), *pids], stderr=subprocess.DEVNULL, start_new_session=True
            )
            self.tracer = self.attached.pid

    def _due(self) -> bool:
        kill, now = self.kill, time.monotonic()
        if kill is None:
            return False
        if kill.what == "eio":
            if self.tracer and not self.let_go and self._follow().failed:
                self._let_go()  # one call is enough, and without a tracer it goes on faster
            return False
        if kill.how == "call":
            if (
                self.filtered and self.stage not in _BEFORE
            ):  # the call never came, and what is started now would live on
                return True
            return self._follow().struck
        if kill.how == "stage":  # a stage may be over before we look: then it strikes the next one
            return kill.stage in self.seen and now - self.seen[kill.stage] >= kill.after
        return now - self.start >= kill.after

    def _follow(self) -> Follower:
        """What the trace says so far."""
        assert self.follower is not None
        self.follower.look()
        return self.follower

    def _ended(self, code: int) -> Blow:
        kill = self.kill
        if kill is not None and kill.what == "eio":
            trace = self._follow()
            return Blow(
                code=code,
                reached=trace.failed,
                stage=kill.stage,
                by_call=trace.failed,
                bystander=trace.bystander,
            )
        killed = code in (-9, 137)
        return Blow(code=None if killed else code, reached=killed, stage=self.stage)

    def _strike(self) -> Blow:
        self._read()  # what it announced until this moment
        kill, stage, at = self.kill, self.stage, time.time()
        assert kill is not None
        if kill.what == "power":
            self.host.cut_power()
            by_call = self.follower is not None and self.follower.struck
            return Blow(code=None, reached=True, stage=stage, at=at, by_call=by_call)
        if kill.how == "call":
            kill_tree(lambda: traced_by(self.tracer) | self._tree())
            trace = self._follow()
            return Blow(
                code=None,
                reached=True,
                stage=stage,
                at=at,
                by_call=trace.struck,
                bystander=trace.bystander,
            )
        if self.process.poll() is not None:  # it has just ended
            return Blow(code=self.process.returncode, reached=False, stage=stage)
        if kill.what in ("full", "readonly"):
            with self.host.full() if kill.what == "full" else self.host.readonly():
                return Blow(code=self._wait(), reached=True, stage=stage, at=at)
        root = psutil.Process(self.process.pid)
        if kill.what == "sigint":
            _send(root, signal.SIGINT)
            return Blow(code=self._wait(), reached=True, stage=stage, at=at)
        return self._kill(kill, root, at)

    def _tree(self) -> dict[int, psutil.Process]:
        try:
            return sessions_of(psutil.Process(self.process.pid))
        except psutil.NoSuchProcess:
            return {}

    def _wait(self) -> int:
        code = self.process.wait(self.limit)
        self.process.returncode = code
        return code

    def _kill(self, kill: Kill, root: psutil.Process, at: float) -> Blow:
        stage = self.stage
        target = child_of(root) if kill.whom == "child" else root
        if target is None:  # it does not run at this moment
            return Blow(code=self._wait(), reached=False, stage=stage)
        if kill.whom == "tree":
            kill_tree(lambda: sessions_of(root))
            return Blow(code=None, reached=True, stage=stage, at=at)
        orphans = sessions_of(root)
        _send(target, signal.SIGKILL)
        if kill.whom == "child":
            return Blow(code=self._wait(), reached=True, stage=stage, at=at)
        psutil.wait_procs([one for pid, one in orphans.items() if pid != root.pid], timeout=self.limit)
        return Blow(code=None, reached=True, stage=stage, at=at)

    def end(self) -> None:
        """Nothing of it goes on; whoever it restarted goes on by itself."""
        kill_tree(self._tree)
        self.process.wait()
        if self.kill is not None:
            self._let_go()

    def _let_go(self) -> None:
        """End the tracer."""
        self.let_go = True
        if self.attached is not None:
            _let_go(self.attached.pid)
            self.attached.wait()
            self.attached = None
        elif self.tracer:
            _let_go(self.tracer)


def _let_go(tracer: int) -> None:
    """End a tracer; what it traced goes on. On a busy machine it may be too slow to let go by itself: the kernel does it then."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            process = psutil.Process(tracer)
            process.send_signal(number)
            process.wait(5)
        except psutil.NoSuchProcess:
            return
        except psutil.TimeoutExpired:
            continue
        return


def _strace(trace: Path, kill: Kill | None, *options: str) -> list[str]:
    """The tracer's own words: only what is struck is traced, or all that can be struck."""
    by_call = kill is not None and kill.how == "call"
    names = family(kill.call) if kill is not None and by_call else ",".join(family(call) for call in CALLS)
    seen = f"execve,{names}"
    command = ["strace", "-f", "-qq", "-s", "80", *options, "-o", str(trace), "-e", f"trace={seen}"]
    if kill is not None and by_call:
        effect = "error=EIO" if kill.what == "eio" else "signal=SIGKILL"
        command += ["-e", f"inject={names}:{effect}:when={kill.number}"]
    return command


def _is_filtered(kill: Kill | None, words: tuple[str, ...]) -> bool:
    """Whether the kernel may pick the calls for the tracer, which is twice as fast: once the tracer is gone these calls fail, so only
    where the strike ends everybody, or where the tracer stays until the gateways have been restarted once more."""
    if kill is None:
        return True
    if kill.how != "call" or kill.since != START or words != UPDATE:
        return False
    return kill.what in ("kill", "power") and kill.stage in _BEFORE


def strike(
    host: Host,
    kill: Kill | None,
    words: tuple[str, ...] = UPDATE,
    *,
    traced: Path | None = None,
    limit: float = 300.0,
) -> Blow:
    """Run `nedura update`, or another command, and strike it as planned.

    Args:
        host: where.
        kill: None lets it run.
        words: the command line.
        traced: where a trace goes.
        limit: seconds after which it hangs.

    Raises:
        AssertionError: it hangs.
    """
    if traced is None and kill is not None and kill.how == "call":
        traced = host.outside / "trace"
    command, filtered = [str(host.world.site.launcher), *words], _is_filtered(kill, words)
    if traced is not None:
        traced.write_bytes(b"")
        if kill is None or kill.since == START:
            filters = ["--seccomp-bpf"] if filtered else []
            command = [*_strace(traced, kill, "-D", "-I2", *filters), *command]
    out = host.outside / "update.out"
    with out.open("ab") as log:
        process = subprocess.Popen(
            command,
            env=host.world.environ,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        offset = log.tell()
    run = _Run(host, kill, traced, limit, process, out, offset, filtered=filtered)
    if traced is not None and kill is not None:
        run.follower = Follower(traced, kill.call, kill.number)
    try:
        return run.watch()
    finally:
        run.end()
