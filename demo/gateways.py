"""The three gateways of the demo and the turns that run in them."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from demo.errors import DemoError, hold
from demo.world import World
from nedura.fleet import find_socket
from nedura.records import read_json

__all__ = ["PROFILES", "Turn", "open_turn", "read_state", "start_gateway"]

PROFILES: Final = ("default", "alpha", "beta")
HANDLER: Final = "nedura.testing.handlers:slow_words"


def read_state(world: World, profile: str) -> Mapping[str, Any]:
    """What a gateway last wrote about itself.

    Raises:
        StoreError: it wrote nothing readable.
    """
    state: Mapping[str, Any] = read_json(world.profile_home(profile) / "gateway_state.json")
    return state


async def start_gateway(world: World, profile: str) -> None:
    """Start a gateway through the installed launcher and wait until it serves.

    Raises:
        DemoError: it ended, or did not serve in time.
    """
    flag = () if profile == "default" else ("-p", profile)
    log = world.log(f"gateway-{profile}")
    with log.open("wb") as file:
        process = await asyncio.create_subprocess_exec(
            str(world.launcher),
            *flag,
            "gateway",
            "run",
            "--handler",
            HANDLER,
            env=world.environ(),
            cwd=world.folder,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
    world.processes.append(process)
    async with _deadline(90, f"the gateway of {profile} serves within 90 s"):
        while not _serving(world, profile, process.pid):
            if process.returncode is not None:
                lines = log.read_text("utf-8", "replace").strip().splitlines() or ["it said nothing"]
                raise DemoError(f"The gateway of {profile} ended with {process.returncode}: {lines[-1]}")
            await asyncio.sleep(0.05)


def _serving(world: World, profile: str, pid: int) -> bool:
    if (
        _chat_socket(world, profile) is None
        or not (world.profile_home(profile) / "gateway_state.json").exists()
    ):
        return False
    state = read_state(world, profile)
    return state.get("pid") == pid and state.get("gateway_state") == "running"


def _chat_socket(world: World, profile: str) -> Path | None:
    """The local chat of a gateway; below a long folder its socket is in the user's runtime folder instead."""
    return find_socket(world.profile_home(profile), "chat", world.environ())


@contextlib.asynccontextmanager
async def _deadline(seconds: float, what: str) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise DemoError(f"This did not hold: {what}.") from None


@attrs.define
class Turn:
    """One message on its way through a gateway.

    Attributes:
        profile: whose gateway.
        finish: the handler ends its answer once this file exists.
        words: pieces that came so far.
        done: the gateway said that the answer is complete.
    """

    profile: str
    finish: Path
    words: list[str] = attrs.field(factory=list)
    done: bool = False
    begun: asyncio.Event = attrs.field(factory=asyncio.Event)
    task: asyncio.Task[None] | None = None

    def end(self) -> None:
        """Let the handler come to its end."""
        self.finish.touch()

    @property
    def text(self) -> str:
        """The answer so far."""
        return "".join(self.words)

    async def read(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Read the answer to its end."""
        try:
            async for line in reader:
                record = json.loads(line)
                if "delta" in record:
                    self.words.append(str(record["delta"]))
                    self.begun.set()
                if record.get("done"):
                    self.done = True
                    return
        finally:
            self.begun.set()
            writer.close()


async def open_turn(world: World, profile: str) -> Turn:
    """Send a message to a gateway and come back when its answer has begun.

    Raises:
        DemoError: no answer began.
    """
    turn = Turn(profile=profile, finish=world.folder / f"finish-{profile}")
    socket = _chat_socket(world, profile)
    hold(socket is not None, f"the gateway of {profile} has a local chat")
    reader, writer = await asyncio.open_unix_connection(str(socket))
    writer.write(json.dumps({"text": f"until {turn.finish}", "chat": "demo"}).encode() + b"\n")
    await writer.drain()
    turn.task = asyncio.create_task(turn.read(reader, writer))
    async with _deadline(60, f"the gateway of {profile} began to answer"):
        await turn.begun.wait()
    hold(turn.words, f"the gateway of {profile} began to answer")
    return turn
