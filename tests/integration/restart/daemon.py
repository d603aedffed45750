"""A small daemon that belongs to a fleet: `python daemon.py gateway run`, home from NEDURA_HOME.

What it is comes from files in its home, read once at its start, as code is: `version` (commit and generation), `turn` (seconds of one turn
that runs from the start), `command` (what that turn runs), `fault` (what a bad build does).
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
import time
from pathlib import Path

from nedura.fleet import FleetMember, MemberOptions
from nedura.fleet.drain import DrainSettings
from nedura.fleet.statefile import read_state
from nedura.installs import CodeIdentity


def setting(home: Path, name: str, default: str = "") -> str:
    for folder in (home, *home.parents[1:2]):
        try:
            return (folder / name).read_text().strip()
        except OSError:
            continue
    return default


def identity(version: str) -> CodeIdentity:
    return CodeIdentity(
        install_id="d" * 12, generation=version.zfill(6), code_sha=version[-1] * 40, code_version=version
    )


async def one_turn(member: FleetMember, seconds: float, command: str) -> None:
    async with member.turn("toy"):
        if command:
            child = await asyncio.create_subprocess_exec("/bin/sh", "-c", command)
            await child.wait()
        await asyncio.sleep(seconds)


async def main() -> int:
    home = Path(os.environ["NEDURA_HOME"])
    version, fault = setting(home, "version", "1"), setting(home, "fault")
    if fault == "boot":
        return 1
    if fault == "config":
        return 78
    drain = float(setting(home, "drain", "20"))
    options = MemberOptions(
        settings=DrainSettings(after_turn_s=drain, cron_s=0, grace_s=0.2), auto_ready=False
    )
    member = FleetMember(home, options)
    if version != "real":
        member.code = identity("9" if fault == "version" else version)
    async with member:
        while fault == "gate" and not (home / "gate").exists():
            await asyncio.sleep(0.05)
        if fault == "hang":
            await member.wait_stopped()
            return member.exit_code
        await asyncio.sleep(float(setting(home, "boot", "0")))
        member.ready()
        if fault == "dies":
            await asyncio.sleep(0.5)
            os._exit(3)
        if fault == "frozen":
            while (seen := read_state(home, 0.0)) is None or seen.state != "running":
                await asyncio.sleep(0.02)
            ctypes.PyDLL(None).sleep(3600)  # a library that keeps the interpreter: no thread of it runs
        if fault == "wedge":
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
            time.sleep(3600)
        turn = asyncio.ensure_future(
            one_turn(member, float(setting(home, "turn", "0")), setting(home, "command"))
        )
        await member.wait_stopped()
        turn.cancel()
        await asyncio.gather(turn, return_exceptions=True)
    return member.exit_code


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
