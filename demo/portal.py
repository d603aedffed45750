"""The development portal as a process of its own."""

from __future__ import annotations

import asyncio
import sys

from demo.errors import DemoError
from demo.world import World
from nedura.records import read_json
from nedura.testing.portal import PortalControl

__all__ = ["start_portal"]


async def start_portal(world: World) -> PortalControl:
    """Start it on a free loopback port and wait until it answers.

    Raises:
        DemoError: it ended, or did not answer in time.
    """
    ready = world.folder / "portal.ready"
    with world.log("portal-output").open("wb") as file:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "nedura.testing.portal",
            "--interval",
            "1",
            "--ready-file",
            str(ready),
            "--log-file",
            str(world.log("portal-requests")),
            env=world.environ(),
            cwd=world.checkout,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=file,
            stderr=file,
        )
    world.processes.append(process)
    for _ in range(1200):
        if ready.exists():
            world.portal_url = str(read_json(ready)["url"])
            return PortalControl(world.portal_url)
        if process.returncode is not None:
            break
        await asyncio.sleep(0.05)
    lines = world.log("portal-output").read_text("utf-8", "replace").strip().splitlines() or [
        "it said nothing"
    ]
    raise DemoError(f"The development portal did not start: {lines[-1]}")
