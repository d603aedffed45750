"""Restart through launchd (facts/update.md 7.4, platform.md). Tested against a stub with the recorded answers; there is no launchd here."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import attrs

from nedura.fleet.incarnation import SystemIncarnations
from nedura.fleet.model import Runtime
from nedura.fleet.processes import system_processes
from nedura.fleet.supervisors.base import RestartError, Say
from nedura.fleet.supervisors.launchctl import (
    ALREADY_LOADED,
    BUSY,
    NOT_LOADED,
    Job,
    Launchctl,
    domains_of,
    why_job_down,
)
from nedura.text import clean

__all__ = ["LaunchdPace", "LaunchdSupervisor"]

_STEP: Final = 0.1

# $0 this job, $1 launchctl, $2 domain, $3 label, $4 plist. 5: the old job is still going; 37: it is loaded.
_RELOAD: Final = (
    '"$1" bootout "$2/$3"; left=600; '
    'while [ "$left" -gt 0 ]; do "$1" bootstrap "$2" "$4"; code=$?; '
    '[ "$code" = 0 ] && break; [ "$code" = 37 ] && break; left=$((left - 1)); sleep 1; done; '
    '"$1" kickstart "$2/$3"; "$1" remove "$0"'
)


@attrs.frozen(kw_only=True)
class LaunchdPace:
    """Seconds that launchd gets.

    Attributes:
        respawn: for KeepAlive to bring a successor by itself after a drain.
        fresh_pid: for a successor after a kickstart.
        bootstrap: how long a refused bootstrap is tried again, while the old job is still going: 60 s of exit timeout and up to 5
            in which the label stays taken.
    """

    respawn: float = 10.0
    fresh_pid: float = 15.0
    bootstrap: float = 75.0


@attrs.frozen
class _Armed:
    domain: str
    before: Job


class LaunchdSupervisor:
    """Restarts members that launchd owns, by label, in the domain where the label is.

    Args:
        environ: where PATH comes from; default this process's.
        uid: whose agents; default ours.
        pace: time limits.
    """

    def __init__(
        self,
        *,
        environ: Mapping[str, str] | None = None,
        uid: int | None = None,
        pace: LaunchdPace | None = None,
    ) -> None:
        self._environ = os.environ if environ is None else environ
        self._launchctl = Launchctl(environ)
        self._table = system_processes()
        self._processes = SystemIncarnations()
        self._uid = os.getuid() if uid is None else uid
        self._pace = pace or LaunchdPace()
        self._armed: dict[str, _Armed] = {}

    async def able(self, runtime: Runtime) -> bool:
        """As `Supervisor.able`: a domain of ours has the label."""
        try:
            return await self._launchctl.locate(runtime.unit, self._uid) is not None
        except RestartError:
            return False

    async def arm(self, runtime: Runtime) -> None:
        """Find the label's domain once; everything afterwards uses that one.

        Raises:
            RestartError: no domain has it, or launchctl does not answer; nothing was stopped.
        """
        found = await self._launchctl.locate(runtime.unit, self._uid)
        if found is None:
            raise RestartError(
                f"{clean(runtime.unit)} is loaded in no domain of this user.", check="missing", final=True
            )
        self._armed[runtime.unit] = _Armed(*found)

    async def revive(self, runtime: Runtime, say: Say) -> None:
        """As `Supervisor.revive`: KeepAlive answers exit 75; a kickstart only when it does not.

        A `kickstart -k` right after an exit that KeepAlive answers would kill the successor and bring the throttle.

        Raises:
            RestartError: no fresh process came.
        """
        armed = self._armed[runtime.unit]
        say("launchd to start it again")
        if await self._fresh(armed, runtime, self._pace.respawn):
            return
        await self._kickstart(armed, runtime, say, kill=False)

    async def force(self, runtime: Runtime, say: Say) -> None:
        """As `Supervisor.force`: `kickstart -k`; a label that is not loaded (any more) is bootstrapped.

        Raises:
            RestartError: no fresh process came.
        """
        armed = self._armed[runtime.unit]
        await self._kickstart(armed, runtime, say, kill=True)

    async def _kickstart(self, armed: _Armed, runtime: Runtime, say: Say, *, kill: bool) -> None:
        target = f"{armed.domain}/{runtime.unit}"
        say(f"launchctl kickstart{' -k' if kill else ''}")
        limit = armed.before.exit_timeout + self._pace.fresh_pid
        ran = await self._launchctl.call("kickstart", *(("-k",) if kill else ()), target, timeout=limit)
        if ran.status in NOT_LOADED:
            await self.bootstrap(armed.domain, Path(armed.before.path), say)
        elif ran.status != 0:
            raise RestartError(f"launchctl kickstart failed: {ran.err or ran.status}.", check="start")
        if not await self._fresh(armed, runtime, self._pace.fresh_pid):
            job = await self._launchctl.job(armed.domain, runtime.unit)
            check, reason = why_job_down(job or Job())
            raise RestartError(f"{clean(runtime.unit)}: {reason}.", check=check)

    async def bootstrap(self, domain: str, plist: Path, say: Say) -> None:
        """Load a plist; while the old job of the label is still going (exit 5), try again. Already loaded is well.

        Raises:
            RestartError: it is refused for another reason, or for too long.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + self._pace.bootstrap
        while True:
            ran = await self._launchctl.call("bootstrap", domain, str(plist), timeout=30.0)
            if ran.status == 0 or ran.status in ALREADY_LOADED:
                return
            if ran.status not in BUSY or loop.time() >= end:
                raise RestartError(f"launchctl bootstrap failed: {ran.err or ran.status}.", check="start")
            say("launchd to let go of the old job")
            await asyncio.sleep(_STEP * 5)

    def inside(self, label: str) -> bool:
        """Whether we run in that job: a booted-out one takes every process of its coalition along, us included (#69098)."""
        return self._environ.get("XPC_SERVICE_NAME") == label

    async def reload_from_outside(self, domain: str, label: str, plist: Path) -> None:
        """Have launchd itself run the reload of the job that we are in: a transient job, so no part of what bootout ends.

        It tries the bootstrap for ten minutes, so that the label is not left unloaded while the old process drains, then removes itself
        (a submitted job is kept alive otherwise).

        Raises:
            RestartError: launchd takes no such job; nothing was unloaded.
        """
        transient = f"{label}.reload-{os.getpid()}"
        words = (
            "/bin/sh",
            "-c",
            _RELOAD,
            transient,
            self._launchctl.program or "",
            domain,
            label,
            str(plist),
        )
        ran = await self._launchctl.call("submit", "-l", transient, "--", *words)
        if ran.status != 0:
            raise RestartError(
                f"This command runs inside {clean(label)}, and launchd did not take the reload: {ran.err or ran.status}.",
                check="start",
                final=True,
            )

    async def bootout(self, domain: str, label: str, limit: float) -> None:
        """Unload a label and wait for the end of its process: bootout returns when it is accepted, and `print` forgets the label then.

        Raises:
            RestartError: it is still loaded or still runs after its exit timeout and `limit` seconds, or it would take us along.
        """
        if self.inside(label):
            raise RestartError(
                f"This command runs inside {clean(label)} and would end with it; run it in a terminal.",
                check="stop",
                final=True,
            )
        before = await self._launchctl.job(domain, label) or Job()
        stat = self._table.stat(before.pid) if before.running else None
        loop = asyncio.get_running_loop()
        ran = await self._launchctl.call("bootout", f"{domain}/{label}", timeout=max(limit, 15.0))
        if ran.status in NOT_LOADED and stat is None:
            return
        end = loop.time() + before.exit_timeout + limit
        while await self._launchctl.job(domain, label) is not None:
            if loop.time() >= end:
                raise RestartError(f"{clean(label)} is still loaded.", check="stop", incomplete=True)
            await asyncio.sleep(_STEP)
        if stat is not None and not await self._processes.gone(
            before.pid, stat.start_time, end - loop.time()
        ):
            raise RestartError(
                f"{clean(label)}: process {before.pid} still runs.", check="stop", incomplete=True
            )

    async def _fresh(self, armed: _Armed, runtime: Runtime, limit: float) -> bool:
        """Whether the label gets a process that is not the old one."""
        loop = asyncio.get_running_loop()
        end = loop.time() + limit
        while True:
            job = await self._launchctl.job(armed.domain, runtime.unit)
            if job is not None and job.running and job.pid not in (runtime.pid, armed.before.pid):
                return True
            if loop.time() >= end:
                return False
            await asyncio.sleep(_STEP)

    async def gave_up(self, runtime: Runtime) -> str:
        """As `Supervisor.gave_up`: it is throttled, or it ended for good."""
        armed = self._armed.get(runtime.unit)
        if armed is None:
            return ""
        try:
            job = await self._launchctl.job(armed.domain, runtime.unit)
        except RestartError:
            return ""
        if job is None or job.state in ("not running", "spawn scheduled"):
            return why_job_down(job or Job())[1]
        return ""

    def command(self, runtime: Runtime) -> str:
        """As `Supervisor.command`."""
        armed = self._armed.get(runtime.unit)
        domain = armed.domain if armed else domains_of(self._uid)[0]
        return f"launchctl kickstart -k {domain}/{runtime.unit}"
