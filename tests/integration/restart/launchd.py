"""A launchd that behaves as recorded (facts/platform.md), in this process; `launchctl` on PATH is a small client of it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import plistlib
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import attrs

_CLIENT = """#!{python} -IS
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
    runs: int = 0
    last_exit: str = "(never exited)"

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
        throttle: seconds before KeepAlive's restart.
        log: every call.
        linger: seconds that a label stays after its process has gone.
        hang: labels whose calls never return.
    """

    domain: str
    throttle: float = 0.2
    linger: float = 0.0
    jobs: dict[str, FakeJob] = attrs.field(factory=dict)
    log: list[str] = attrs.field(factory=list)
    hang: set[str] = attrs.field(factory=set)
    environment: dict[str, str] = attrs.field(factory=dict)

    async def _keep(self, job: FakeJob) -> None:
        while not job.leaving:
            job.runs += 1
            job.wake.clear()
            job.process = await asyncio.create_subprocess_exec(
                *job.definition["ProgramArguments"],
                env={**self.environment, **job.definition["EnvironmentVariables"]},
                cwd=job.definition["WorkingDirectory"], start_new_session=True, stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
            )  # fmt: skip
            code = await job.process.wait()
            job.last_exit = str(code)
            if code == 0 and not job.wake.is_set():
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(job.wake.wait(), self.throttle)

    def _spawn(self, job: FakeJob) -> None:
        job.keeper = asyncio.ensure_future(self._keep(job))

    async def _leave(self, job: FakeJob) -> None:
        job.leaving = True
        if job.process is not None and job.pid:
            job.process.send_signal(signal.SIGTERM)
            await job.process.wait()
        await asyncio.sleep(self.linger)
        if job.keeper is not None:
            job.keeper.cancel()
            await asyncio.gather(job.keeper, return_exceptions=True)
        self.jobs.pop(job.label, None)

    async def call(self, argv: list[str]) -> tuple[int, str, str]:
        self.log.append(" ".join(argv))
        verb, *rest = argv
        target = rest[-1]
        if any(label in target for label in self.hang):
            await asyncio.sleep(3600)
        domain, _, label = target.rpartition("/")
        if verb == "bootstrap":
            return await self._bootstrap(rest[0], target)
        if verb == "print" and target.count("/") == 1:
            domain, label = target, ""
        if domain != self.domain:
            return 112, "", f"Could not find domain for {domain}\n"
        if verb == "print" and not label:
            return 0, "services = {\n}\n", ""
        job = self.jobs.get(label)
        if job is None:
            code = 3 if verb == "bootout" else 113
            return code, "", f'Could not find service "{label}" in domain\n'
        match verb:
            case "print":
                return 0, self._print(job), ""
            case "bootout":
                self._leaving = asyncio.ensure_future(self._leave(job))
                return 0, "", ""
            case "kickstart":
                return await self._kickstart(job, "-k" in rest)
            case _:
                return 64, "", "Unrecognized subcommand\n"

    _leaving: asyncio.Future[None] | None = None

    async def _bootstrap(self, domain: str, path: str) -> tuple[int, str, str]:
        if domain != self.domain:
            return 125, "", "Bootstrap failed: 125: Domain does not support specified action\n"
        definition = plistlib.loads(Path(path).read_bytes())
        old = self.jobs.get(definition["Label"])
        if old is not None:
            return (
                (5, "", "Bootstrap failed: 5: Input/output error\n")
                if old.leaving
                else (37, "", "already loaded\n")
            )
        job = FakeJob(definition["Label"], path, definition)
        self.jobs[job.label] = job
        if definition.get("RunAtLoad"):
            self._spawn(job)
        return 0, "", ""

    async def _kickstart(self, job: FakeJob, kill: bool) -> tuple[int, str, str]:
        if kill and job.process is not None and job.pid:
            job.wake.set()
            job.process.send_signal(signal.SIGTERM)
        elif job.keeper is None or job.keeper.done():
            self._spawn(job)
        elif not job.pid:
            job.wake.set()
        return 0, "", ""

    def _print(self, job: FakeJob) -> str:
        pid = f"\tpid = {job.pid}\n" if job.pid else ""
        environment = "".join(
            f"\t\t{key} => {value}\n" for key, value in job.definition["EnvironmentVariables"].items()
        )
        arguments = "".join(f"\t\t{word}\n" for word in job.definition["ProgramArguments"])
        return (
            f"{self.domain}/{job.label} = {{\n\tactive count = 1\n\tpath = {job.path}\n\ttype = LaunchAgent\n"
            f"\tstate = {job.state}\n\n\targuments = {{\n{arguments}\t}}\n\n\tenvironment = {{\n{environment}\t}}\n\n"
            f"\tdomain = {self.domain} [100002]\n\texit timeout = 5\n\truns = {job.runs}\n{pid}"
            f"\tlast exit code = {job.last_exit}\n\n\tresource coalition = {{\n\t\tstate = active\n\t\tactive count = 9\n\t}}\n}}\n"
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
    client.write_text(_CLIENT.format(python=sys.executable, socket=str(path)))
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
                os.killpg(job.pid, signal.SIGKILL)  # the job's shell and what it waits for, as launchd does
            await launchd._leave(job)
        server.close()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            if "serve" in repr(task.get_coro()):
                task.cancel()
        await asyncio.sleep(0)
