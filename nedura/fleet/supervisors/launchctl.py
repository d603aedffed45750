"""`launchctl` as it really answers: exit codes, the print format, and an asynchronous bootout (facts/platform.md). Parsing is pure."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Final

import attrs

from nedura.fleet.supervisors.base import RestartError
from nedura.fleet.supervisors.systemctl import Ran, run_bounded
from nedura.programs import child_environment, find_program

__all__ = [
    "ALREADY_LOADED",
    "BUSY",
    "NOT_LOADED",
    "NO_DOMAIN",
    "Job",
    "Launchctl",
    "domains_of",
    "parse_list",
    "parse_print",
    "why_job_down",
]

NOT_LOADED: Final = frozenset({3, 113})
"""The label is not in this domain (113 of print and kickstart, 3 of bootout)."""
NO_DOMAIN: Final = frozenset({112, 125})
"""The domain itself is not there or cannot be managed."""
BUSY: Final = frozenset({5})
"""bootstrap while the old job of that label is still going: try again."""
ALREADY_LOADED: Final = frozenset({37})

_CALL_SECONDS: Final = 15.0


@attrs.frozen(kw_only=True)
class Job:
    """A job as `launchctl print` tells it.

    Attributes:
        state: `running`, `not running`, `spawn scheduled`, `xpcproxy`; empty when unknown.
        pid: its process, 0 without one.
        path: its plist.
        environment: of the definition.
        runs: starts so far.
        last_exit: text of the last exit code or terminating signal.
        exit_timeout: seconds from SIGTERM to SIGKILL; current releases show 5 without ExitTimeOut.
    """

    state: str = ""
    pid: int = 0
    path: str = ""
    environment: Mapping[str, str] = attrs.field(factory=dict)
    runs: int = 0
    last_exit: str = ""
    exit_timeout: float = 5.0

    @property
    def running(self) -> bool:
        """Only a pid proves that it runs."""
        return self.pid > 0


_TOP: Final = re.compile(r"^\t([a-z][a-z ]*[a-z]) = (.*?)\s*$")
_BLOCK_ENTRY: Final = re.compile(r"^\t\t([^\s=][^=]*?) => (.*)$")


def parse_print(text: str) -> Job:
    """Read `launchctl print <domain>/<label>`: keys one tab deep; a nested block repeats `state =` two tabs deep."""
    top: dict[str, str] = {}
    environment: dict[str, str] = {}
    block = ""
    for line in text.splitlines():
        if line == "\t}":
            block = ""
        elif match := _TOP.match(line):
            name, value = match.groups()
            if value == "{":
                block = name
            elif not block:
                top.setdefault(name, value)
        elif block == "environment" and (entry := _BLOCK_ENTRY.match(line)):
            environment[entry[1]] = entry[2]
    signal = top.get("last terminating signal", "")
    return Job(
        state=top.get("state", ""),
        pid=_number(top.get("pid")),
        path=top.get("path", ""),
        environment=environment,
        runs=_number(top.get("runs")),
        last_exit=f"signal {signal}" if signal else top.get("last exit code", ""),
        exit_timeout=float(_number(top.get("exit timeout")) or 5),
    )


def _number(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 12 else 0


def parse_list(text: str) -> dict[str, tuple[int, str]]:
    """`launchctl list`: label -> pid (0 without one) and status. Exit code 0 of `list LABEL` proves nothing."""
    found = {}
    for line in text.splitlines()[1:]:
        parts = line.split("\t")
        if len(parts) == 3:
            found[parts[2]] = (_number(parts[0]), parts[1])
    return found


def domains_of(uid: int) -> tuple[str, str]:
    """Domains where a user's agent can be, the graphical one first; over ssh only the other one is there."""
    return f"gui/{uid}", f"user/{uid}"


def why_job_down(job: Job) -> tuple[str, str]:
    """Why a job does not run: a closed token, and words."""
    if job.last_exit.startswith("78"):
        return "config", "it refuses its configuration (exit code 78)"
    if job.state == "spawn scheduled":
        return "boot", f"it ended too soon and is throttled (last: {job.last_exit or 'unknown'})"
    if job.last_exit and job.last_exit not in ("0", "(never exited)"):
        return "boot", f"it ended: {job.last_exit}"
    return "start", f"it is {job.state or 'not loaded'}"


class Launchctl:
    """Calls launchctl, bounded.

    Args:
        environ: where PATH comes from; default this process's.
    """

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        self._environ = os.environ if environ is None else environ
        self.program = find_program("launchctl", self._environ)

    async def call(self, *args: str, timeout: float = _CALL_SECONDS) -> Ran:
        """Run one command.

        Raises:
            ClientTimeout: it took longer.
            RestartError: there is no launchctl.
        """
        if self.program is None:
            raise RestartError("There is no launchctl here.", check="manager")
        return await run_bounded((self.program, *args), child_environment(self._environ), timeout)

    async def job(self, domain: str, label: str) -> Job | None:
        """A job in a domain; None when it is not loaded there.

        Raises:
            RestartError: launchctl refuses for another reason.
        """
        ran = await self.call("print", f"{domain}/{label}")
        if ran.status == 0:
            return parse_print(ran.out)
        if ran.status in NOT_LOADED | NO_DOMAIN:
            return None
        raise RestartError(f"launchctl print failed: {ran.err or ran.status}.", check="manager")

    async def locate(self, label: str, uid: int) -> tuple[str, Job] | None:
        """The domain that has a label, and its job there, in one go; None when neither has it.

        Raises:
            RestartError: as `job`.
        """
        for domain in domains_of(uid):
            job = await self.job(domain, label)
            if job is not None:
                return domain, job
        return None
