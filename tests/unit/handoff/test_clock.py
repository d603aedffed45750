"""The fake clock that tests move, and the names the testing package offers."""

from __future__ import annotations

import asyncio
import time

import nedura.testing
from nedura.testing import FakeClock


async def test_sleeps_jump_and_wake_in_order() -> None:
    clock, order = FakeClock(), []

    async def one(seconds: float) -> None:
        await clock.sleep(seconds)
        order.append((seconds, clock.monotonic()))

    start, real = clock.monotonic(), time.monotonic()
    await asyncio.gather(one(900), one(5), one(60))
    assert order == [(5, start + 5), (60, start + 60), (900, start + 900)]
    assert time.monotonic() - real < 5


async def test_without_autojump_nothing_wakes_until_time_passes() -> None:
    clock = FakeClock(autojump=False)
    task = asyncio.create_task(clock.sleep(10))
    await asyncio.sleep(0.01)
    clock.advance(9.9)
    await asyncio.sleep(0.01)
    assert not task.done()
    assert clock.sleepers == 1
    clock.advance(0.2)
    await asyncio.wait_for(task, 5)


def test_a_suspend_moves_the_wall_clock_alone() -> None:
    clock = FakeClock()
    wall, monotonic = clock.time(), clock.monotonic()
    clock.suspend(3600)
    assert (clock.time() - wall, clock.monotonic() - monotonic) == (3600, 0)


def test_every_public_name_is_there() -> None:
    assert list(nedura.testing.__all__) == sorted(nedura.testing.__all__)
    for name in nedura.testing.__all__:
        assert getattr(nedura.testing, name) is not None
