"""Homes with a launcher that starts the toy daemon, as a person would by hand."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import attrs

from nedura.fleet.inventory import look
from nedura.fleet.model import Runtime

ROOT = Path(__file__).resolve().parents[3]
DAEMON = Path(__file__).with_name("daemon.py")
TOY: Final = f"{shlex.quote(sys.executable)} {shlex.quote(str(DAEMON))}"
"""The toy as words of a shell or a unit: the checkout may lie in a folder with blanks."""


def make_root(folder: Path) -> Path:
    """A root home whose launcher starts the toy."""
    root = folder / "root"
    (root / "bin").mkdir(parents=True)
    launcher = root / "bin" / "nedura"
    launcher.write_text(f'#!/bin/sh\nPYTHONPATH={shlex.quote(str(ROOT))} exec {TOY} "$@"\n')
    launcher.chmod(0o755)
    root.chmod(0o700)
    return root


def add_profile(root: Path, name: str) -> Path:
    home = root / "profiles" / name
    home.mkdir(parents=True, mode=0o700)
    return home


async def serving(home: Path, *, not_pid: int = 0, timeout: float = 15) -> Runtime:
    async with asyncio.timeout(timeout):
        while True:
            found = await look(home)
            if found is not None and found.pid != not_pid and found.state == "running":
                return attrs.evolve(found, supervisor="manual")
            await asyncio.sleep(0.02)


async def start(root: Path, home: Path) -> Runtime:
    process = await asyncio.create_subprocess_exec(
        str(root / "bin" / "nedura"), "gateway", "run",
        env={**os.environ, "NEDURA_HOME": str(home)}, start_new_session=True,
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    reaper = asyncio.ensure_future(process.wait())
    _reapers.add(reaper)
    reaper.add_done_callback(_reapers.discard)
    return await serving(home)


_reapers: set[asyncio.Future[int]] = set()


@contextlib.asynccontextmanager
async def running(root: Path, *homes: Path) -> AsyncIterator[list[Runtime]]:
    """Start a member on each home; whoever serves them at the end is ended."""
    try:
        yield list(await asyncio.gather(*(start(root, home) for home in homes)))
    finally:
        for home in homes:
            found = await look(home)
            if found is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(found.pid, signal.SIGKILL)
        await asyncio.gather(*_reapers, return_exceptions=True)
