"""Running one process of the soak under the tracer: kill it at a given call, or make calls do nothing."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.soak.plan import Kill

CALLS = "fsync,fdatasync,rename,renameat,renameat2"


async def tracer_works() -> bool:
    """Whether strace is here and may trace."""
    if shutil.which("strace") is None:
        return False
    process = await asyncio.create_subprocess_exec(
        "strace",
        "-qq",
        "-o",
        "/dev/null",
        "-e",
        "trace=fsync",
        "true",
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    return await process.wait() == 0


def _injections(kill: Kill | None, bug: str) -> list[str]:
    found = []
    if bug == "skip_fsync":
        found += ["-e", "inject=fsync,fdatasync:retval=0"]
    if kill is not None and not (bug == "skip_fsync" and kill.call == "fsync"):
        calls = "fsync,fdatasync" if kill.call == "fsync" else "rename,renameat,renameat2"
        found += ["-e", f"inject={calls}:signal=SIGKILL:when={kill.number}"]
    return found


@asynccontextmanager
async def traced(pid: int, log: Path, kill: Kill | None, bug: str) -> AsyncIterator[None]:
    """Trace a process from here to its end; the calls are in `log` afterwards."""
    process = await asyncio.create_subprocess_exec(
        "strace", "-f", "-y", "-e", f"trace={CALLS}", "-e", "signal=none", *_injections(kill, bug), "-o", str(log), "-p", str(pid),
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stderr is not None
    async for line in process.stderr:
        if b"attached" in line:
            break
    try:
        yield
    finally:
        await asyncio.wait_for(process.wait(), 60)
