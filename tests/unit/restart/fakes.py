"""A fleet that exists only as data: who serves a home, who ends when, which supervisor does what."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import attrs

from nedura.fleet.model import Runtime
from nedura.fleet.restart import RestartParts
from nedura.fleet.restart_events import RestartEvent
from nedura.fleet.signals import Sent
from nedura.fleet.supervisors.base import RestartError, Say
from nedura.installs import CodeIdentity

OLD = CodeIdentity(install_id="a" * 12, generation="000001", code_sha="1" * 40)
NEW = CodeIdentity(install_id="a" * 12, generation="000002", code_sha="2" * 40)


def gateway(profile: str = "default", pid: int = 100, **more: Any) -> Runtime:
    values = {
        "kind": "gateway",
        "profile": profile,
        "pid": pid,
        "start_time": pid * 10,
        "home": Path(f"/homes/{profile}"),
        "supervisor": "fake",
        "code": OLD,
        "state": "running",
        **more,
    }
    return Runtime(**values)


class FakeFleet:
    """Homes, who serves them, and a supervisor that starts successors with pid + 1000."""

    def __init__(self, *runtimes: Runtime, starts: CodeIdentity = NEW) -> None:
        self.serving: dict[Path, Runtime] = {one.home: one for one in runtimes}
        self.starts = starts
        self.log: list[str] = []
        self.on_arm: Callable[[Runtime], Awaitable[None]] | None = None
        self.on_revive: Callable[[Runtime], Awaitable[None]] | None = None
        self.on_force: Callable[[Runtime], Awaitable[None]] | None = None
        self.on_signal: Callable[[Runtime], None] | None = None
        self.able_to = True
        self.drain_seconds: dict[str, float] = {}
        self.refuse_signal = ""
        self.hopeless = ""
        self.deaf = False
        self.down_now = 0
        self.most_down = 0

    # incarnations
    def _runtime(self, pid: int) -> Runtime | None:
        return next((one for one in self.serving.values() if one.pid == pid), None)

    def alive(self, pid: int, start_time: int | None) -> bool:
        return self._runtime(pid) is not None

    def send(self, pid: int, start_time: int | None, number: signal.Signals) -> Sent:
        runtime = self._runtime(pid)
        self.log.append(f"{number.name} {pid}")
        if self.refuse_signal:
            return Sent("refused", self.refuse_signal)
        if runtime is None:
            return Sent("gone")
        seconds = self.drain_seconds.get(runtime.profile, 0.0)
        if number == signal.SIGKILL or (number == signal.SIGTERM and not self.deaf):
            seconds = 0.0
        if seconds < 60:
            asyncio.get_running_loop().call_later(seconds, self._end, runtime)
        return Sent("sent")

    def _end(self, runtime: Runtime) -> None:
        if self.serving.get(runtime.home) is runtime:
            del self.serving[runtime.home]
            self.down_now += 1
            self.most_down = max(self.most_down, self.down_now)

    def halted(self, pid: int) -> bool:
        return False

    async def gone(self, pid: int, start_time: int | None, timeout: float) -> bool:
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout
        while self.alive(pid, start_time):
            if loop.time() >= end:
                return False
            await asyncio.sleep(0.001)
        return True

    # the supervisor
    async def able(self, runtime: Runtime) -> bool:
        return self.able_to

    async def arm(self, runtime: Runtime) -> None:
        self.log.append(f"arm {runtime.pid}")
        if self.on_arm is not None:
            await self.on_arm(runtime)

    async def revive(self, runtime: Runtime, say: Say) -> None:
        self.log.append(f"revive {runtime.pid}")
        if self.on_revive is not None:
            await self.on_revive(runtime)
        self.start(runtime)

    async def force(self, runtime: Runtime, say: Say) -> None:
        self.log.append(f"force {runtime.pid}")
        if self.on_force is not None:
            await self.on_force(runtime)
        self._end(runtime)
        self.start(runtime)

    def start(self, runtime: Runtime) -> None:
        self.down_now -= 1
        self.serving[runtime.home] = attrs.evolve(
            runtime, pid=runtime.pid + 1000, start_time=runtime.pid * 10 + 1, code=self.starts
        )

    async def gave_up(self, runtime: Runtime) -> str:
        return self.hopeless

    def command(self, runtime: Runtime) -> str:
        return f"start {runtime.profile}"

    async def look(self, home: Path) -> Runtime | None:
        return self.serving.get(home)

    def parts(self, **more: Any) -> RestartParts:
        values = {
            "supervisors": {"fake": self},
            "look": self.look,
            "holder": lambda runtime: (runtime.pid, runtime.start_time),
            "processes": self,
            "serving_timeout": 0.3,
            "tick": 0.01,
            "wedged_wait": 0.02,
            **more,
        }
        return RestartParts(**values)


def failing(check: str, **more: Any) -> Callable[[Runtime], Awaitable[None]]:
    async def fail(runtime: Runtime) -> None:
        raise RestartError("no", check=check, **more)

    return fail


def of_kind(events: list[RestartEvent], kind: str) -> list[Any]:
    return [event for event in events if event.kind == kind]
