"""One systemd manager, user or system, through `systemctl`: bounded, never asking for a password."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

import attrs

from nedura.fleet.supervisors.base import RestartError
from nedura.fleet.supervisors.unit_state import PROPERTIES, UnitState, parse_show
from nedura.programs import child_environment, find_program
from nedura.text import clean

__all__ = ["ClientTimeout", "ManagerAbsent", "Ran", "Scope", "Systemctl", "runtime_folder"]

Scope = Literal["user", "system"]
SHOW_SECONDS: Final = 5.0
QUICK_SECONDS: Final = 10.0


class ManagerAbsent(RestartError):
    """Raised when there is no manager of that scope on this machine or for this account."""


class ClientTimeout(RestartError):
    """Raised when the client was ended after its time; the manager's own job lives on."""


@attrs.frozen(kw_only=True)
class Ran:
    """What a `systemctl` call left.

    Attributes:
        status: exit code.
        out: its output.
        err: its messages, cleaned.
    """

    status: int
    out: str
    err: str


def runtime_folder(environ: Mapping[str, str], uid: int) -> str:
    """The user's runtime folder: the variable's if it is this user's, else the usual place (#86558)."""
    named = environ.get("XDG_RUNTIME_DIR", "")
    try:
        if named and os.stat(named).st_uid == uid:
            return named
    except OSError:
        pass
    return f"/run/user/{uid}"


class Systemctl:
    """Calls one manager.

    Args:
        scope: which manager.
        environ: where PATH and the user's runtime folder come from; default this process's.
        prefix: what stands before `systemctl` (`sudo -n`).
        program: path of systemctl; default searched.
    """

    def __init__(
        self,
        scope: Scope,
        *,
        environ: Mapping[str, str] | None = None,
        prefix: Sequence[str] = (),
        program: str | None = None,
    ) -> None:
        self.scope: Scope = scope
        self._environ = os.environ if environ is None else environ
        self._prefix = tuple(prefix)
        self.program = program or find_program("systemctl", self._environ)

    def elevated(self, prefix: Sequence[str]) -> Systemctl:
        """The same manager, called through `prefix`."""
        return Systemctl(self.scope, environ=self._environ, prefix=prefix, program=self.program)

    def environment(self) -> dict[str, str]:
        """Environment of the calls."""
        extra = {"LC_ALL": "C", "SYSTEMD_COLORS": "0", "SYSTEMD_PAGER": ""}
        if self.scope == "user":
            extra["XDG_RUNTIME_DIR"] = runtime_folder(self._environ, os.geteuid())
        return child_environment(self._environ, keep=("DBUS_SESSION_BUS_ADDRESS",), **extra)

    async def call(self, *args: str, timeout: float) -> Ran:
        """Run one command.

        Args:
            args: verb and arguments.
            timeout: seconds after which the client is ended.

        Raises:
            ClientTimeout: it took longer.
            RestartError: systemctl is not there.
        """
        if self.program is None:
            raise ManagerAbsent("There is no systemctl here.", check="manager")
        scope = ("--user",) if self.scope == "user" else ()
        argv = (*self._prefix, self.program, *scope, "--no-ask-password", "--no-pager", *args)
        return await run_bounded(argv, self.environment(), timeout)

    async def show(self, *units: str) -> tuple[UnitState, ...]:
        """State of units (names or patterns); one answer for all.

        Raises:
            RestartError: the manager does not answer.
        """
        ran = await self.call("show", *units, f"--property={','.join(PROPERTIES)}", timeout=SHOW_SECONDS)
        if ran.status != 0:
            raise _refusal(self.scope, ran)
        return tuple(parse_show(ran.out))

    async def state(self, unit: str) -> UnitState:
        """State of one unit.

        Raises:
            RestartError: the manager does not answer.
        """
        found = await self.show(unit)
        if not found:
            raise RestartError(f"The {self.scope} manager says nothing about {clean(unit)}.", check="manager")
        return found[0]

    async def job(self, unit: str) -> str:
        """The manager's job for a unit in words (`restart running`), empty when it has none.

        Raises:
            RestartError: the manager does not answer.
        """
        ran = await self.call("list-jobs", "--no-legend", "--plain", unit, timeout=SHOW_SECONDS)
        for line in ran.out.splitlines():
            words = line.split()
            if len(words) >= 4 and words[1] == unit:
                return f"{words[2]} {words[3]}"
        return ""


def _refusal(scope: Scope, ran: Ran) -> RestartError:
    """Why a manager gave no state; the usual reason is that there is none."""
    absent = ("Failed to connect to bus", "has not been booted with systemd", "Connection refused")
    if any(text in ran.err for text in absent):
        return ManagerAbsent(f"There is no systemd {scope} manager here.", check="manager")
    reason = f"The systemd {scope} manager refuses: {ran.err or f'exit code {ran.status}'}."
    return RestartError(reason, check="manager")


async def run_bounded(argv: Sequence[str], environment: Mapping[str, str], timeout: float) -> Ran:
    """Run a program with a time limit; its end, or ours, ends it.

    Raises:
        ClientTimeout: it took longer than `timeout` seconds.
        RestartError: it cannot be started.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *argv, env=dict(environment), stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        raise RestartError(
            f"{Path(argv[0]).name} cannot be started: {error.strerror}.", check="manager"
        ) from error
    try:
        out, err = await asyncio.wait_for(process.communicate(), timeout)
    except TimeoutError:
        raise ClientTimeout(
            f"{Path(argv[0]).name} gave no answer in {timeout:.0f} s.", check="manager", incomplete=True
        ) from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return Ran(
        status=process.returncode or 0,
        out=out.decode("utf-8", "replace"),
        err=clean(err.decode("utf-8", "replace"), 300),
    )
