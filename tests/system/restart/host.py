"""Inside a real systemd user manager: homes, units of the toy daemon, and the parts that restart them."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import attrs

from nedura.fleet.inventory import look
from nedura.fleet.model import Runtime
from nedura.fleet.restart import RestartParts
from nedura.fleet.restart_events import MemberFailed, MemberRestarted, RestartEvent
from nedura.fleet.restart_parts import default_supervisors
from nedura.fleet.rolling import restart_rest
from nedura.installs import CodeIdentity
from tests.integration.restart.daemon import identity
from tests.integration.restart.manual import ROOT, TOY

SERVICE = {
    "Type": "notify",
    "NotifyAccess": "all",
    "Restart": "always",
    "RestartSec": "5",
    "RestartForceExitStatus": "75",
    "SuccessExitStatus": "75",
    "RestartPreventExitStatus": "78",
    "KillMode": "mixed",
    "TimeoutStopSec": "30",
    "TimeoutStartSec": "20",
}


def systemctl(*args: str, check: bool = True) -> str:
    return subprocess.run(
        ["systemctl", "--user", *args], check=check, capture_output=True, text=True, timeout=60
    ).stdout


@attrs.define
class Host:
    """Units and homes of one scene."""

    folder: Path
    units: list[str] = attrs.field(factory=list)

    @property
    def root(self) -> Path:
        return self.folder / "root"

    def home(self, profile: str = "default") -> Path:
        home = self.root if profile == "default" else self.root / "profiles" / profile
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        return home

    def unit(
        self,
        profile: str = "default",
        *,
        name: str = "",
        home: Path | None = None,
        command: str = "",
        start: bool = True,
        **service: str,
    ) -> str:
        """Write (and start) a unit that runs the toy on a profile's home."""
        home = self.home(profile) if home is None else home
        suffix = "" if profile == "default" else f"-{profile}"
        unit = name or f"nedura-gateway{suffix}.service"
        command = command or f"{TOY} gateway run"
        lines = {**SERVICE, **service, "ExecStart": command}
        text = "[Unit]\nStartLimitIntervalSec=0\n[Service]\n" + "".join(
            f"{key}={value}\n" for key, value in lines.items() if value
        )
        text += f'Environment=NEDURA_HOME={home}\nEnvironment="PYTHONPATH={ROOT}"\n'
        folder = Path(os.environ["HOME"]) / ".config/systemd/user"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / unit).write_text(text)
        self.units.append(unit)
        systemctl("daemon-reload")
        if start:
            systemctl("start", unit)
        return unit

    def release(self, version: str, **settings: str) -> None:
        """What the next start runs: a file at the root home, as a new generation is."""
        self.home()
        for name, value in {"version": version, **settings}.items():
            (self.root / name).write_text(value)

    async def member(self, profile: str = "default", *, home: Path | None = None) -> Runtime:
        """The runtime that serves a home, when it does."""
        home = self.home(profile) if home is None else home
        async with asyncio.timeout(20):
            while True:
                found = await look(home)
                if found is not None and found.state == "running":
                    return found
                await asyncio.sleep(0.02)


def parts(**more: object) -> RestartParts:
    values = {
        "supervisors": default_supervisors(),
        "look": look,
        "tick": 0.2,
        "serving_timeout": 15.0,
        **more,
    }
    return RestartParts(**values)  # type: ignore[arg-type]


async def restart(
    members: Sequence[Runtime], expected: CodeIdentity | None = None, *, width: int = 8, **more: object
) -> list[RestartEvent]:
    """Restart members and return the events."""
    expected = identity("2") if expected is None else expected
    events = []
    async for event in restart_rest(members, expected, parts=parts(**more), width=width):
        sys.stdout.write(event.copy_terminal + "\n")
        sys.stdout.flush()
        events.append(event)
    return events


def restarted(events: Sequence[RestartEvent]) -> dict[str, MemberRestarted]:
    return {event.profile: event for event in events if isinstance(event, MemberRestarted)}


def failed(events: Sequence[RestartEvent]) -> dict[str, MemberFailed]:
    return {event.profile: event for event in events if isinstance(event, MemberFailed)}


def new_host() -> Host:
    return Host(Path(tempfile.mkdtemp(prefix="host-", dir=os.environ["XDG_RUNTIME_DIR"])))
