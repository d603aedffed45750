"""The keepalive: ahead of the end, through suspends, never in the way of a start or a stop."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from nedura.signin.keepalive import Keepalive, next_tick, start_nous_auth_keepalive, stop_nous_auth_keepalive
from nedura.testing.clock import FakeClock
from nedura.testing.portal import Fault
from tests.integration.handoff.world import World


@pytest.mark.parametrize(
    ("lifetime", "base", "tick"),
    [
        (899, 900, 224.75),
        (3594, 900, 898.5),
        (100, 900, 60),
        (None, 900, 900),
        (True, 900, 900),
        (-5, 300, 300),
    ],
)
def test_ticks(lifetime: object, base: float, tick: float) -> None:
    assert next_tick({"expires_in": lifetime}, base) == tick


async def run_for(world: World, seconds: float, step: float = 15.0) -> None:
    """Let a keepalive run on the fake clock."""
    keepalive = Keepalive(
        home=world.home(), environ=world.environ, clock=world.clock, client_factory=world.client
    )
    task = asyncio.create_task(keepalive.run())
    await asyncio.sleep(0)
    for _ in range(int(seconds / step)):
        world.clock.advance(step)
        await settle(world)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def settle(world: World) -> None:
    """Wait until both workers sleep again."""
    for _ in range(400):
        await asyncio.sleep(0.0005)
        if world.clock.sleepers >= 2:
            return
    raise AssertionError("the workers did not come to rest")


async def test_a_login_is_refreshed_ahead_for_hours(world: World) -> None:
    world.sign_in()
    await run_for(world, 4 * 3600)
    count = world.portal.log.count("token.refresh")
    assert 16 <= count <= 30
    entry = world.store().read().entry
    assert entry is not None
    claims = world.portal.store.mint.claims(entry["access_token"])
    assert claims is not None
    assert claims["exp"] > world.clock.time() + 120
    assert world.portal.store.reuse == 0


async def test_nothing_leaves_in_the_first_minute(world: World) -> None:
    world.sign_in()
    world.clock.advance(3600)
    await run_for(world, 45)
    assert len(world.portal.log) == 0


async def test_a_retrying_move_is_finished_by_the_worker(world: World) -> None:
    guest = world.guest("gmail")
    world.sign_in()
    world.portal.plant(Fault(route="anon.claim", status=503, body="html"))
    await world.drain()
    await run_for(world, 180)
    assert guest.status == "claimed"


async def test_a_suspended_machine_refreshes_soon_after_it_wakes(world: World) -> None:
    world.sign_in()
    keepalive = Keepalive(
        home=world.home(), environ=world.environ, clock=world.clock, client_factory=world.client
    )
    task = asyncio.create_task(keepalive.run())
    await asyncio.sleep(0)
    for _ in range(5):
        world.clock.advance(15)
        await settle(world)
    world.clock.suspend(8 * 3600)  # the monotonic clock stood still
    world.clock.advance(15)
    await settle(world)
    assert world.portal.log.count("token.refresh") == 1
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("jump", [-86400.0 * 400, -7200.0, 86400.0 * 400])
async def test_a_clock_jump_breaks_nothing(world: World, jump: float) -> None:
    world.guest("gmail")
    world.sign_in()
    world.portal.plant(Fault(route="anon.claim", status=503, body="html"))
    await world.drain()
    world.clock.set_wall(world.clock.time() + jump)
    await run_for(world, 1800)
    assert world.records()[0].state.value == "claimed"
    assert world.portal.store.reuse == 0
    assert world.portal.log.count("token.refresh") < 20


async def test_a_free_tier_and_nobody_have_nothing_to_refresh(world: World) -> None:
    await run_for(world, 1800)
    world.guest("gmail")
    await run_for(world, 1800)
    assert len(world.portal.log) == 0


async def test_an_interval_of_zero_stops_the_refresh_and_not_the_worker(world: World) -> None:
    guest = world.guest("gmail")
    world.sign_in()
    world.home().joinpath("config.yaml").write_text("nous:\n  keepalive_interval_seconds: 0\n")
    world.portal.plant(Fault(route="anon.claim", status=503, body="html"))
    await world.drain()
    await run_for(world, 400)
    assert guest.status == "claimed"
    assert world.portal.log.count("token.refresh") == 0


async def test_an_ended_login_is_not_asked_for_again(world: World) -> None:
    world.sign_in()
    world.portal.plant(Fault(route="token.refresh", error="invalid_grant", times=-1))
    await run_for(world, 2 * 3600)
    assert world.portal.log.count("token.refresh") == 1


def test_start_and_stop_are_quick_and_happen_once(world: World) -> None:
    world.sign_in()
    before = threading.active_count()
    start = time.monotonic()
    assert start_nous_auth_keepalive(world.home(), environ=world.environ)
    assert not start_nous_auth_keepalive(world.home(), environ=world.environ)
    time.sleep(0.2)
    assert threading.active_count() == before + 1
    stop_nous_auth_keepalive()
    stop_nous_auth_keepalive()
    assert time.monotonic() - start < 1
    assert threading.active_count() == before


def test_a_stop_does_not_wait_for_a_slow_portal(world: World) -> None:
    world.sign_in()
    world.portal.plant(Fault(route="token.refresh", delay=3600))
    clock = FakeClock(now=world.clock.time() + 850, autojump=False)
    assert start_nous_auth_keepalive(
        world.home(), environ=world.environ, clock=clock, client_factory=world.client
    )
    while not world.clock.slept:  # the portal is now holding the request
        clock.advance(15)
        time.sleep(0.005)
    start = time.monotonic()
    stop_nous_auth_keepalive(world.home())
    assert time.monotonic() - start < 1
    world.clock.advance(3600)


async def test_the_near_end_of_a_sign_in_is_logged_once_a_day(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    def told() -> int:
        return sum("ends by itself" in record.message for record in caplog.records)

    world.sign_in()
    await run_for(world, 3600)
    assert told() == 0
    world.clock.advance(26 * 86400)
    await run_for(world, 2 * 3600)
    assert told() == 1
    world.sign_in()
    world.clock.advance(86400)
    await run_for(world, 3600)
    assert told() == 1
