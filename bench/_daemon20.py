"""The daemon of fleet_20: `/version` and `/work` over HTTP, 0.3 s of boot, a drain that loses no job. `python _daemon20.py NAME PORT`

It reads what it is from `current/` (resolved once, at its start). With NEDURA_HOME it belongs to a fleet, else SIGTERM drains it.
Every job is written to `jobs/NAME` when it starts, so that a job that started and got no answer can be told from one that never began.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

BASE = Path(os.environ["FLEET20"])
JOB_SECONDS = float(os.environ.get("FLEET20_JOB", "0.5"))


def read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


class Server:
    def __init__(self, name: str, port: int) -> None:
        self.name, self.port = name, port
        tree = (BASE / "current").resolve()
        self.version = read(tree / "VERSION")
        self.fault = read(tree / "FAULT") or read(BASE / f"fault-{name}") if self.version != "1" else ""
        self.draining = False
        self.jobs = 0
        self.idle = asyncio.Event()
        self.idle.set()

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            line = (await reader.readline()).decode("latin-1").split()
            while (await reader.readline()).strip():
                pass
            status, body = await self.answer(line[1] if len(line) > 1 else "/")
            writer.write(
                f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}".encode()
            )
            await writer.drain()
        except (ConnectionError, IndexError):
            pass
        finally:
            writer.close()

    async def answer(self, path: str) -> tuple[str, str]:
        if not path.startswith(("/version", "/work")):
            return "404 Not Found", ""
        if path == "/version":
            return "200 OK", "9" if self.fault == "version" else self.version
        if self.draining:
            return "503 Draining", ""
        self.jobs += 1
        self.idle.clear()
        with open(BASE / "jobs" / self.name, "a") as log:
            log.write(path + "\n")
        await asyncio.sleep(JOB_SECONDS)
        self.jobs -= 1
        if not self.jobs:
            self.idle.set()
        return "200 OK", "nonsense" if self.fault == "answers" else "done"


async def serve(server: Server) -> asyncio.Server:
    if server.fault == "boot":
        sys.exit(1)
    await asyncio.sleep(0.3)
    return await asyncio.start_server(server.handle, "127.0.0.1", server.port, backlog=256)


async def as_member(server: Server) -> int:
    from nedura.fleet import DrainSettings, FleetMember, MemberOptions
    from nedura.installs import CodeIdentity

    settings = DrainSettings(after_turn_s=30, drain_s=10, cron_s=0, grace_s=1)
    member = FleetMember(Path(os.environ["NEDURA_HOME"]), MemberOptions(auto_ready=False, settings=settings))
    shown = "9" if server.fault == "version" else server.version
    member.code = CodeIdentity(
        install_id="f" * 12, generation=shown.zfill(6), code_sha=shown * 40, code_version=shown
    )
    answer = server.answer

    async def as_turn(path: str) -> tuple[str, str]:
        if not path.startswith("/work"):
            return await answer(path)
        if member.draining:
            return "503 Draining", ""
        async with member.turn(path):
            return await answer(path)

    server.answer = as_turn  # type: ignore[method-assign]
    async with member:
        listener = await serve(server)
        if server.fault == "hang":
            await asyncio.sleep(3600)
        member.ready()
        if server.fault == "dies":
            asyncio.get_running_loop().call_later(10, os._exit, 3)
        await member.wait_stopped()
        await asyncio.sleep(0)
        listener.close()
    return member.exit_code


async def alone(server: Server) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    loop.add_signal_handler(signal.SIGINT, stop.set)
    listener = await serve(server)
    if server.fault == "hang":
        await asyncio.sleep(3600)
    if server.fault == "dies":
        loop.call_later(10, os._exit, 3)
    await stop.wait()
    server.draining = True
    await server.idle.wait()
    await asyncio.sleep(0.01)
    listener.close()
    return 0


def main() -> int:
    server = Server(sys.argv[1], int(sys.argv[2]))
    return asyncio.run(as_member(server) if os.environ.get("NEDURA_HOME") else alone(server))


if __name__ == "__main__":
    begin = time.monotonic()
    sys.exit(main())
