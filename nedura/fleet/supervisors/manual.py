"""Members that a person started by hand: a detached watcher starts the successor when the old process has gone (facts/update.md 7.6)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from nedura.errors import StoreError
from nedura.fleet import relaunch
from nedura.fleet.budget import drain_limit
from nedura.fleet.gateway_flags import kept_flags
from nedura.fleet.incarnation import Incarnations, SystemIncarnations
from nedura.fleet.model import Runtime
from nedura.fleet.processes import Processes, liveness, system_processes
from nedura.fleet.successor import launcher_of, successor_argv, successor_environment
from nedura.fleet.supervisors.base import RestartError, Say
from nedura.product import NEDURA, Product
from nedura.records import make_folder

__all__ = ["ManualSupervisor"]

_WATCHER: Final = Path(relaunch.__file__)
_ARM_SECONDS: Final = 20.0
_TERM_SECONDS: Final = 5.0
_KILL_SECONDS: Final = 5.0
_WATCH_SLACK: Final = 120.0


class ManualSupervisor:
    """Relaunches members that no service manager owns.

    Args:
        processes: the process table.
        environ: environment that successors are made of; default this process's.
        interpreter: Python for watchers, and for members of a checkout layout; default this one.
        product: names.
        table: where the flags of a running member are read; default the system's.
    """

    def __init__(
        self,
        *,
        processes: Incarnations | None = None,
        environ: Mapping[str, str] | None = None,
        interpreter: str = "",
        product: Product = NEDURA,
        table: Processes | None = None,
    ) -> None:
        self._processes = processes or SystemIncarnations()
        self._table = table or system_processes()
        self._flags: dict[tuple[int, int | None], tuple[str, ...]] = {}
        self._environ = environ
        self._interpreter = interpreter or sys.executable
        self._product = product
        self._watchers: dict[tuple[int, int | None], tuple[int, int | None]] = {}

    def argv(self, runtime: Runtime) -> tuple[str, ...]:
        """Command line of a member's successor."""
        launcher = launcher_of(runtime.home, self._product)
        return successor_argv(
            runtime,
            launcher=launcher if os.access(launcher, os.X_OK) else None,
            interpreter=self._interpreter,
            flags=self._kept(runtime),
            product=self._product,
        )

    def _kept(self, runtime: Runtime) -> tuple[str, ...]:
        """Flags the member was started with, read while this incarnation lives, of a process of our own only."""
        key = (runtime.pid, runtime.start_time)
        if key not in self._flags:
            argv = self._table.argv(runtime.pid) if runtime.kind == "gateway" else None
            ours = self._table.uid(runtime.pid) == os.geteuid()
            if not argv or not ours or liveness(self._table, *key) != "alive":  # judged after the read
                return ()
            self._flags[key] = kept_flags(argv, self._product)
        return self._flags[key]

    async def able(self, runtime: Runtime) -> bool:
        """As `Supervisor.able`: the program that starts it is there."""
        return os.access(self.argv(runtime)[0], os.X_OK)

    async def arm(self, runtime: Runtime) -> None:
        """Start the watcher, once for each incarnation.

        Raises:
            RestartError: it cannot be started.
        """
        key = (runtime.pid, runtime.start_time)
        watcher = self._watchers.get(key)
        if watcher is not None and self._processes.alive(*watcher):
            return
        self._watchers[key] = await self._start_watcher(json.dumps(self._request(runtime)).encode())

    def _request(self, runtime: Runtime) -> dict[str, object]:
        environ = os.environ if self._environ is None else self._environ
        try:
            logs = make_folder(runtime.home / "logs")
        except StoreError as error:
            raise RestartError(error.message, check="relaunch") from error
        return {
            "pid": runtime.pid,
            "start_time": runtime.start_time,
            "timeout": drain_limit(runtime.drain_budget_s) + _WATCH_SLACK,
            "argv": self.argv(runtime),
            "env": successor_environment(environ, runtime.home, self._product),
            "cwd": str(runtime.home),
            "log": str(logs / f"{runtime.kind}.log"),
        }

    async def _start_watcher(self, request: bytes) -> tuple[int, int | None]:
        try:
            process = await asyncio.create_subprocess_exec(
                self._interpreter, "-I", "-S", "-B", "-X", "utf8", str(_WATCHER),
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise RestartError(f"No relaunch watcher could be started: {error}.", check="relaunch") from error
        try:
            out, err = await asyncio.wait_for(process.communicate(request), _ARM_SECONDS)
        except TimeoutError:
            process.kill()
            await process.wait()
            raise RestartError("The relaunch watcher did not answer.", check="relaunch") from None
        words = out.split()
        if process.returncode != 0 or len(words) != 2:
            detail = err.decode("utf-8", "replace").strip().rpartition("\n")[2]
            raise RestartError(f"The relaunch watcher ended: {detail}.", check="relaunch")
        return int(words[0]), int(words[1]) or None

    async def revive(self, runtime: Runtime, say: Say) -> None:
        """As `Supervisor.revive`: the watcher is already at it.

        Raises:
            RestartError: no watcher could be started.
        """
        say("the relaunch watcher")
        if (runtime.pid, runtime.start_time) not in self._watchers:
            await self.arm(runtime)

    async def force(self, runtime: Runtime, say: Say) -> None:
        """SIGTERM, then SIGKILL, to this incarnation only; its watcher starts the successor.

        Raises:
            RestartError: it survives, or no watcher could be started.
        """
        await self.arm(runtime)
        pid, start_time = runtime.pid, runtime.start_time
        for signum, wait in ((signal.SIGTERM, _TERM_SECONDS), (signal.SIGKILL, _KILL_SECONDS)):
            say(f"process {pid} to end after {signum.name}")
            self._processes.send(pid, start_time, signum)
            if await self._processes.gone(pid, start_time, wait):
                return
        raise RestartError(f"Process {pid} does not end.", check="stop", final=True)

    async def gave_up(self, runtime: Runtime) -> str:
        """As `Supervisor.gave_up`: the watcher becomes the successor, so its end is the successor's end."""
        watcher = self._watchers.get((runtime.pid, runtime.start_time))
        if watcher is None or self._processes.alive(*watcher):
            return ""
        return (
            f"its successor (process {watcher[0]}) ended; see {runtime.home / 'logs' / f'{runtime.kind}.log'}"
        )

    def command(self, runtime: Runtime) -> str:
        """As `Supervisor.command`."""
        return " ".join(self.argv(runtime))
