"""Members under a real systemd user manager: the bench runs itself again inside one."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from nedura.fleet import RestartParts, Runtime, look
from nedura.fleet.restart_parts import default_supervisors
from tests.integration.restart.daemon import identity
from tests.system.restart.host import Host, new_host, systemctl
from tests.system.restart.runner import HARNESS, missing

__all__ = ["host_of", "inside", "members_of", "parts", "wait_for"]

ROOT = Path(__file__).resolve().parents[1]


def inside(module: str, argv: Sequence[str]) -> bool:
    """Whether this process is inside the manager's namespaces; if not, run it there and exit with its code."""
    if os.environ.get("NEDURA_BENCH_INSIDE") == "1":
        return True
    reason = missing()
    if reason:
        raise SystemExit(f"{module}: {reason}")
    environment = {**os.environ, "NEDURA_BENCH_INSIDE": "1", "PYTHONPATH": str(ROOT)}
    command = [str(HARNESS), "user", "-n", "--", sys.executable, "-m", module, *argv]
    raise SystemExit(subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode)


def host_of(count: int, **settings: str) -> tuple[Host, list[str]]:
    """A host with `count` started units, one profile each."""
    host = new_host()
    host.release("1", **settings)
    names = [f"p{index:02}" for index in range(count)]
    folder = Path(os.environ["HOME"]) / ".config/systemd/user"
    folder.mkdir(parents=True, exist_ok=True)
    host.unit(names[0], start=False)
    template = (folder / f"nedura-gateway-{names[0]}.service").read_text()
    for name in names[1:]:
        home = host.home(name)
        (folder / f"nedura-gateway-{name}.service").write_text(
            template.replace(str(host.home(names[0])), str(home))
        )
    systemctl("daemon-reload")
    systemctl("start", *[f"nedura-gateway-{name}.service" for name in names])
    return host, names


async def members_of(host: Host, names: Sequence[str]) -> list[Runtime]:
    """Every member as it serves now."""
    return list(await asyncio.gather(*(host.member(name) for name in names)))


async def wait_for(host: Host, names: Sequence[str], version: str) -> float:
    """Seconds until every member answers with a version."""
    start = time.monotonic()
    wanted = identity(version)
    for name in names:
        while (
            (found := await look(host.home(name))) is None or found.code != wanted or found.state != "running"
        ):
            await asyncio.sleep(0.01)
    return time.monotonic() - start


def parts() -> RestartParts:
    """The real parts, with a quiet clock for progress lines."""
    return RestartParts(supervisors=default_supervisors(), look=look, tick=5.0)
