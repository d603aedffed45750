"""The long-poll: at once when changed, soon after a write by another process, and without a thread."""

from __future__ import annotations

import asyncio
import sys
import threading
import time

from nedura.signin.handoff import wire_status
from nedura.signin.longpoll import wait_for_handoff
from nedura.testing.clock import FakeClock
from tests.integration.handoff.world import World

WRITER = """
import sys, time
from pathlib import Path
from nedura.signin.handoff_record import HandoffStore
from nedura.signin.handoff_rules import abandon
sys.stdin.readline()
HandoffStore(Path(sys.argv[1])).change(lambda rows: tuple(abandon(row, "x", time.time()) for row in rows))
print(time.monotonic(), flush=True)
"""


def updated(world: World) -> str:
    status = wire_status(world.home())
    assert status is not None
    return str(status["updated_at"])


async def test_it_answers_at_once_without_a_record_or_when_it_differs(world: World) -> None:
    assert await wait_for_handoff(world.home(), since="x", wait=20) is None
    world.guest("gmail")
    world.sign_in()
    for since in (None, "", "another"):
        status = await asyncio.wait_for(wait_for_handoff(world.home(), since=since, wait=20), 1)
        assert status is not None


async def test_it_ends_with_the_unchanged_record(world: World) -> None:
    world.guest("gmail")
    world.sign_in()
    clock = FakeClock()
    status = await wait_for_handoff(world.home(), since=updated(world), wait=999, clock=clock)
    assert status is not None
    assert status["updated_at"] == updated(world)
    assert 25 <= sum(clock.slept) < 25.1


async def test_a_record_that_cannot_be_read_for_a_moment_is_not_none(world: World) -> None:
    world.guest("gmail")
    world.sign_in()
    path = world.home() / "guest_handoff.json"
    since, sound = updated(world), path.read_bytes()
    clock = FakeClock()
    waiting = asyncio.create_task(wait_for_handoff(world.home(), since=since, wait=25, clock=clock))
    while not clock.slept:
        await asyncio.sleep(0)
    path.write_bytes(b"{")
    damaged = len(clock.slept)
    while len(clock.slept) < damaged + 5:
        await asyncio.sleep(0)
    assert not waiting.done()
    path.write_bytes(sound)
    status = await waiting
    assert status is not None
    assert status["updated_at"] == since


async def test_many_waiters_wake_within_100_ms_and_hold_no_thread(world: World) -> None:
    world.guest("gmail")
    world.sign_in()
    writer = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        WRITER,
        str(world.home()),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert writer.stdin is not None
    assert writer.stdout is not None
    since, threads = updated(world), threading.active_count()
    woken: list[float] = []

    async def wait() -> None:
        status = await wait_for_handoff(world.home(), since=since, wait=25)
        woken.append(time.monotonic())
        assert status is not None
        assert status["state"] == "failed"

    lag = [0.0]

    async def probe() -> None:
        """How late this loop is run at all: a busy machine is not the long-poll's delay."""
        while True:
            asked = time.monotonic()
            await asyncio.sleep(0.005)
            lag.append(time.monotonic() - asked - 0.005)

    waiters = [asyncio.create_task(wait()) for _ in range(50)]
    probing = asyncio.create_task(probe())
    await asyncio.sleep(1)
    assert not woken
    assert threading.active_count() <= threads
    writer.stdin.write(b"\n")
    written = float(await writer.stdout.readline())
    await asyncio.gather(*waiters)
    await writer.wait()
    probing.cancel()
    assert max(woken) - written < 0.1 + max(lag)
