"""A launchd that behaves as recorded (facts/platform.md), in this process; `launchctl` on PATH is a small client of it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import plistlib
import shlex
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import attrs
import psutil

_CLIENT = """#!/bin/sh
'''exec' {python} -IS "$0" "$@"
' '''
import json, socket, sys
link = socket.socket(socket.AF_UNIX)
link.connect({socket!r})
link.sendall(json.dumps(sys.argv[1:]).encode() + b"\\n")
data = b""
while chunk := link.recv(65536):
    data += chunk
status, out, err = json.loads(data)
sys.stdout.write(out)
sys.stderr.write(err)
sys.exit(status)
"""


_SIGNAL_WORDS = {1: "Hangup", 9: "Killed", 15: "Terminated"}


@attrs.define
class FakeJob:
    """One loaded label."""

    label: str
    path: str
    definition: dict[str, Any]
    process: asyncio.subprocess.Process | None = None
    keeper: asyncio.Task[None] | None = None
    wake: asyncio.Event = attrs.field(factory=asyncio.Event)
    leaving: bool = False
    submitted: bool = False
    runs: int = 0
    status: int | None = None
    """How the last process ended, as `wait` tells it; None before the first end."""

    @property
    def last_exit(self) -> str:
        """Text behind `last exit code`, or the name of the signal."""
        if self.status is None:
            return "(never exited)"
        if self.status < 0:
            return _SIGNAL_WORDS.get(-self.status, f"Signal {-self.status}") + f": {-self.status}"
        return "78: EX_CONFIG" if self.status == 78 else str(self.status)

    @property
    def exit_line(self) -> str:
        """The line of `print`: a signal has another name and takes the place of the code."""
        if self.status is not None and self.status < 0:
            return f"last terminating signal = {self.last_exit}"
        return f"last exit code = {self.last_exit}"

    @property
    def pid(self) -> int:
        return self.process.pid if self.process and self.process.returncode is None else 0

    @property
    def state(self) -> str:
        return (
            "running"
            if self.pid
            else "spawn scheduled"
            if self.keeper and not self.keeper.done()
            else "not running"
        )


@attrs.define
class FakeLaunchd:
    """Jobs of one user.

    Attributes:
        domain: the one domain that is there.
        minimum: seconds a process has to run (10 in truth): KeepAlive answers an earlier end only when they are over.
        log: every call.
        linger: seconds that a label stays taken after its process has gone (3 to 5 in truth).
        exit_timeout: seconds from SIGTERM to SIGKILL; None is the plist's, else 5.
        hang: labels whose calls never return.
        no_submit: it takes no transient job.
        refuses: texts of a plist that it does not load.
    """

    domain: str
    minimum: float = 0.2
    linger: float = 0.0
    exit_timeout: float | None = None
    jobs: dict[str, FakeJob] = attrs.field(factory=dict)
    log: list[str] = attrs.field(factory=list)
    hang: set[str] = attrs.field(factory=set)
    no_submit: bool = False
    refuses: bytes = b""
    environment: dict[str, str] = attrs.field(factory=dict)

    async def _keep(self, job: FakeJob) -> None:
        loop = asyncio.get_running_loop()
        while not job.leaving:
            job.runs += 1
            job.wake.clear()
            begun = loop.time()
            job.process = await asyncio.create_subprocess_exec(
                *job.definition["ProgramArguments"],
                env={**self.environment, **job.definition["EnvironmentVariables"], "XPC_SERVICE_NAME": job.label},
                cwd=job.definition["WorkingDirectory"], start_new_session=True, stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
            )  # fmt: skip
            job.status = await job.process.wait()
            if job.status == 0 and not job.wake.is_set() and not job.submitted:
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(job.wake.wait(), max(0.0, begun + self.minimum - loop.time()))

    def _spawn(self, job: FakeJob) -> None:
        job.keeper = asyncio.ensure_future(self._keep(job))

    def _patience(self, job: FakeJob) -> float:
        return self.exit_timeout or min(float(job.definition.get("ExitTimeOut", 5)), 60.0)

    async def _end(self, job: FakeJob) -> None:
        """SIGTERM, and SIGKILL when the exit timeout is over."""
        if job.process is None or not job.pid:
            return
        job.process.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(job.process.wait(), self._patience(job))
        except TimeoutError:
            job.process.kill()
            await job.process.wait()

    async def _leave(self, job: FakeJob) -> None:
        job.leaving = True
        await self._end(job)
        self._end_coalition(job)
        await asyncio.sleep(self.linger)
        if job.keeper is not None:
            job.keeper.cancel()
            await asyncio.gather(job.keeper, return_exceptions=True)
        self.jobs.pop(job.label, None)

    def _end_coalition(self, job: FakeJob) -> None:
        """A booted-out job takes along every process that it ever started, in whatever session (#69098)."""
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                environ = process.environ()
                if environ.get("XPC_SERVICE_NAME") == job.label and self._same_home(environ, job):
                    process.kill()

    def _same_home(self, environ: dict[str, str], job: FakeJob) -> bool:
        """Whether it is this test's: labels are the same in every test."""
        mine = job.definition["EnvironmentVariables"]
        return bool(environ.get("NEDURA_HOME") == mine.get("NEDURA_HOME"))

    async def call(self, argv: list[str]) -> tuple[int, str, str]:
        self.log.append(" ".join(argv))
        verb, *rest = argv
        target = rest[-1] if rest else ""
        if any(label in target for label in self.hang):
            await asyncio.sleep(3600)
        if verb == "list":
            return self._list(target)
        if verb == "bootstrap":
            return await self._bootstrap(rest[0], target)
        if verb == "submit":
            return self._submit(rest)
        if verb == "remove":
            return self._remove(target)
        kind, uid, label = (*target.split("/", 2), "", "")[:3]
        if kind not in ("gui", "user", "system") or not uid.isdigit():
            return 64, "", "Unrecognized target specifier.\n"
        if f"{kind}/{uid}" != self.domain:
            return 112, "", f"Could not find domain for user {kind}: {uid}\n"
        if not label:
            return (
                (0, self._print_domain(), "")
                if verb == "print"
                else (64, "", "Unrecognized target specifier.\n")
            )
        job = self.jobs.get(label)
        if job is None or job.leaving:
            if verb == "bootout":
                return 3, "", "Boot-out failed: 3: No such process\n"
            return (
                113,
                "",
                f'Bad request.\nCould not find service "{label}" in domain for user {kind}: {uid}\n',
            )
        match verb:
            case "print":
                return 0, self._print(job), ""
            case "bootout":
                self._leaving = asyncio.ensure_future(self._leave(job))
                await asyncio.sleep(0)
                return 0, "", ""
            case "kickstart":
                return await self._kickstart(job, "-k" in rest)
            case "kill":
                return self._kill(job, rest[0])
            case _:
                return 64, "", "Unrecognized subcommand\n"

    _leaving: asyncio.Future[None] | None = None

    async def _bootstrap(self, domain: str, path: str) -> tuple[int, str, str]:
        if domain != self.domain:
            return 125, "", "Bootstrap failed: 125: Domain does not support specified action\n"
        if self.refuses and self.refuses in Path(path).read_bytes():
            return 125, "", "Bootstrap failed: 125: Domain does not support specified action\n"
        definition = plistlib.loads(Path(path).read_bytes())
        old = self.jobs.get(definition["Label"])
        if old is not None and old.leaving:
            return (
                5,
                "",
                "Bootstrap failed: 5: Input/output error\nTry re-running the command as root for richer errors.\n",
            )
        if old is not None:
            return 37, "", "Bootstrap failed: 37: Operation already in progress\n"
        job = FakeJob(definition["Label"], path, definition)
        self.jobs[job.label] = job
        if definition.get("RunAtLoad"):
            self._spawn(job)
        return 0, "", ""

    def _submit(self, words: list[str]) -> tuple[int, str, str]:
        """`-l LABEL -- COMMAND...`: a job without a plist, which is kept alive until it is removed."""
        if self.no_submit:
            return 1, "", "launch_msg(): Operation not permitted\n"
        label, command = words[1], words[words.index("--") + 1 :]
        definition = {"ProgramArguments": command, "EnvironmentVariables": {}, "WorkingDirectory": "/"}
        self.jobs[label] = job = FakeJob(label, "(submitted by launchctl)", definition, submitted=True)
        self._spawn(job)
        return 0, "", ""

    def _remove(self, label: str) -> tuple[int, str, str]:
        job = self.jobs.get(label)
        if job is None:
            return 3, "", ""
        self._removing = asyncio.ensure_future(self._leave(job))
        return 0, "", ""

    _removing: asyncio.Future[None] | None = None

    async def _kickstart(self, job: FakeJob, kill: bool) -> tuple[int, str, str]:
        if kill and job.pid:
            job.wake.set()
            self._ending = asyncio.ensure_future(self._end(job))
        elif job.keeper is None or job.keeper.done():
            self._spawn(job)
        elif not job.pid:
            job.wake.set()
        return 0, "", ""

    _ending: asyncio.Future[None] | None = None

    def _kill(self, job: FakeJob, name: str) -> tuple[int, str, str]:
        if job.process is None or not job.pid:
            return 3, "", "No process to signal.\n"
        job.process.send_signal(signal.Signals[name])
        return 0, "", ""

    def _list(self, label: str) -> tuple[int, str, str]:
        """The raw wait status of the run before in the form for one label, exit code or minus signal in the table."""
        if not label:
            rows = "".join(
                f"{job.pid or '-'}\t{job.status or 0}\t{job.label}\n" for job in self.jobs.values()
            )
            return 0, f"PID\tStatus\tLabel\n{rows}", ""
        job = self.jobs.get(label)
        if job is None:
            return 113, "", f'Could not find service "{label}" in domain for port\n'
        raw = -job.status if (job.status or 0) < 0 else (job.status or 0) * 256  # type: ignore[operator]
        pid = f'\t"PID" = {job.pid};\n' if job.pid else ""
        return (
            0,
            f'{{\n\t"LimitLoadToSessionType" = "Aqua";\n\t"Label" = "{label}";\n\t"OnDemand" = false;\n'
            f'\t"LastExitStatus" = {raw};\n{pid}\t"Program" = "/bin/sh";\n}};\n',
            "",
        )

    def _print_domain(self) -> str:
        rows = "".join(
            f"\t\t{job.pid or 0:8} {job.status if job.status is not None else '-':>6} \t{job.label}\n"
            for job in self.jobs.values()
        )
        disabled = '\tdisabled services = {\n\t\t"x.y" => disabled\n\t}\n'
        return f"{self.domain} = {{\n\ttype = user\n\tservices = {{\n{rows}\t}}\n\n{disabled}}}\n"

    def _print(self, job: FakeJob) -> str:
        pid = f"\tpid = {job.pid}\n" if job.pid else ""
        environment = "".join(
            f"\t\t{key} => {value}\n" for key, value in job.definition["EnvironmentVariables"].items()
        )
        arguments = "".join(
            f"\t\t{word}\n" for word in job.definition["ProgramArguments"]
        )  # raw, line breaks and all
        return (
            f"{self.domain}/{job.label} = {{\n\tactive count = 1\n\tpath = {job.path}\n\ttype = LaunchAgent\n"
            f"\tstate = {job.state}\n\n\tprogram = {job.definition['ProgramArguments'][0]}\n\targuments = {{\n{arguments}\t}}\n\n"
            f"\tworking directory = {job.definition['WorkingDirectory']}\n"
            "\tinherited environment = {\n\t\tSSH_AUTH_SOCK => /var/run/com.apple.launchd.X/Listeners\n"
            "\t\tNEDURA_HOME => /inherited/is/not/it\n\t}\n\n"
            "\tdefault environment = {\n\t\tPATH => /usr/bin:/bin:/usr/sbin:/sbin\n\t}\n\n"
            f"\tenvironment = {{\n{environment}\t\tXPC_SERVICE_NAME => {job.label}\n\t}}\n\n"
            f"\tdomain = {self.domain} [100002]\n\tasid = 100002\n\tminimum runtime = 10\n"
            f"\texit timeout = {self._patience(job):.0f}\n\truns = {job.runs}\n{pid}"
            f"\timmediate reason = non-ipc demand\n\tforks = 12\n\texecs = 1\n\t{job.exit_line}\n\n"
            "\tresource coalition = {\n\t\tID = 1114\n\t\ttype = resource\n\t\tstate = active\n\t\tactive count = 9\n"
            f"\t\tname = {job.label}\n\t}}\n\tspawn type = daemon (3)\n\tproperties = keepalive | runatload | inferred program\n}}\n"
        )

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            answer = await self.call(json.loads(await reader.readline()))
            writer.write(json.dumps(answer).encode())
            await writer.drain()
        finally:
            writer.close()


@contextlib.asynccontextmanager
async def fake_launchd(
    folder: Path, domain: str = "", **more: Any
) -> AsyncIterator[tuple[FakeLaunchd, dict[str, str]]]:
    """A launchd, and the environment in which `launchctl` means it."""
    folder.mkdir(exist_ok=True)
    path, client = folder / "launchd.sock", folder / "launchctl"
    client.write_text(_CLIENT.format(python=shlex.quote(sys.executable), socket=str(path)))
    client.chmod(0o755)
    launchd = FakeLaunchd(domain or f"gui/{os.getuid()}", environment=dict(os.environ), **more)
    server = await asyncio.start_unix_server(launchd.serve, str(path))
    try:
        yield launchd, {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
    finally:
        launchd.hang.clear()
        for job in list(launchd.jobs.values()):
            job.leaving = True
            if job.pid:
                with contextlib.suppress(ProcessLookupError):  # it may have ended by itself a moment ago
                    os.killpg(
                        job.pid, signal.SIGKILL
                    )  # the job's shell and what it waits for, as launchd does
            await launchd._leave(job)
        server.close()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            if "serve" in repr(task.get_coro()):
                task.cancel()
        await asyncio.sleep(0)
