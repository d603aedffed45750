"""Hammers the daemons of fleet_20 while something restarts them, and tells what their users noticed."""

from __future__ import annotations

import asyncio
import itertools
import time
from pathlib import Path

import attrs


async def get(port: int, path: str) -> tuple[int, str]:
    """Status and body; 0 when the connection was refused or broken."""
    try:
        async with asyncio.timeout(10):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
                head, _, body = (await reader.read(4096)).decode("latin-1").partition("\r\n\r\n")
            finally:
                writer.close()
        return int(head.split()[1]), body
    except (OSError, TimeoutError, IndexError, ValueError):
        return 0, ""


@attrs.define
class Probe:
    """One probe of all daemons.

    Attributes:
        ports: name -> port.
        base: folder of the job logs.
    """

    ports: dict[str, int]
    base: Path
    versions: dict[str, str] = attrs.field(factory=dict)
    down: set[str] = attrs.field(factory=set)
    most_down: int = 0
    last_up: dict[str, float] = attrs.field(factory=dict)
    gap: dict[str, float] = attrs.field(factory=dict)
    answered: set[str] = attrs.field(factory=set)
    wrong: int = 0
    refused: int = 0
    stopping: bool = False
    ignored: set[str] = attrs.field(factory=set)
    watchers: list[asyncio.Task[None]] = attrs.field(factory=list)
    workers: list[asyncio.Task[None]] = attrs.field(factory=list)

    async def _watch(self, name: str) -> None:
        while True:
            status, body = await get(self.ports[name], "/version")
            now = time.monotonic()
            if status == 200:
                self.gap[name] = max(self.gap.get(name, 0.0), now - self.last_up.get(name, now))
                self.last_up[name] = now
                self.versions[name] = body
                self.down.discard(name)
            else:
                self.down.add(name)
                self.most_down = max(self.most_down, len(self.down))
            await asyncio.sleep(0.01 if name in self.down else 0.03)  # who is back is to be seen at once

    async def _work(self, name: str) -> None:
        for number in itertools.count():
            if self.stopping:
                return
            path = f"/work?{name}-{number}"
            status, body = await get(self.ports[name], path)
            if status == 200:
                self.answered.add(path)
                self.wrong += body != "done"
            else:
                self.refused += 1
                await asyncio.sleep(0.02)

    def start(self) -> None:
        for name in self.ports:
            self.watchers.append(asyncio.ensure_future(self._watch(name)))
            self.workers.append(asyncio.ensure_future(self._work(name)))

    async def stop(self) -> None:
        """Let running jobs finish, then end."""
        self.stopping = True
        await asyncio.gather(*self.workers)
        for task in self.watchers:
            task.cancel()
        await asyncio.gather(*self.watchers, return_exceptions=True)

    def reset(self) -> None:
        """Forget what was seen; the daemons go on."""
        self.most_down, self.wrong, self.refused = len(self.down), 0, 0
        self.gap.clear()
        self.last_up.clear()
        self.ignored = self._begun()

    def lost(self) -> list[str]:
        """Jobs that began after the last `reset` and got no answer; to be asked after `stop`."""
        return sorted(self._begun() - self.ignored - self.answered)

    def _begun(self) -> set[str]:
        begun: set[str] = set()
        for path in (self.base / "jobs").iterdir():
            begun |= set(path.read_text().split())
        return {path for path in begun if not path.endswith("?health")}

    async def until(self, version: str, limit: float) -> float | None:
        """Seconds until every daemon answers with a version; None after `limit`."""
        start = time.monotonic()
        while time.monotonic() - start < limit:
            if (
                not self.down
                and len(self.versions) == len(self.ports)
                and set(self.versions.values()) == {version}
            ):
                return time.monotonic() - start
            await asyncio.sleep(0.01)
        return None
