"""A sign-in that is cancelled, left or closed, at every moment of it."""

from __future__ import annotations

import asyncio
from typing import Any

import attrs
import pytest

from nedura.http import open_client
from nedura.signin import (
    Cancelled,
    Code,
    sign_in,
)
from nedura.testing.http import ScriptedTransport, reply
from tests.integration.signin.world import URL, Calls, World, auth_lock_held


@attrs.define
class Stop:
    """A cancel that can be set, and counts how often it was asked."""

    at: int = 10**9
    now: bool = False
    asked: int = 0

    def __call__(self) -> bool:
        self.asked += 1
        return self.now or self.asked >= self.at


async def test_a_cancel_before_the_first_step_asks_nobody(world: World) -> None:
    assert await world.states(cancelled=lambda: True) == [Cancelled()]
    assert world.routes() == []


async def test_a_cancel_between_code_and_waiting_asks_for_no_token(world: World) -> None:
    stop = Stop()

    def on(state: Any) -> None:
        stop.now = isinstance(state, Code)

    assert (await world.states(on, cancelled=stop))[-1] == Cancelled()
    assert world.routes() == ["device_code"]


@pytest.mark.parametrize("at", range(1, 12))
async def test_a_cancel_at_any_look_saves_nothing(world: World, at: int) -> None:
    """Whatever the moment: the state is Cancelled, nothing is on disk, and a grant that was made is given back."""
    world.portal.knobs.interval = 1
    calls = Calls()
    states = await world.states(cancelled=Stop(at=at), parts=calls.parts())
    assert states[-1] == Cancelled()
    assert world.files() == {}
    assert calls.order == []
    assert all(family.revoked for family in world.portal.store.families)


async def test_a_cancel_after_the_token_and_before_the_save_wins(world: World) -> None:
    stop = Stop()
    world.portal.log.listener = lambda entry: setattr(stop, "now", entry.route == "token.device" or stop.now)
    assert await world.last(cancelled=stop) == Cancelled()
    assert world.files() == {}
    assert world.routes()[-1] == "revoke"


@pytest.mark.parametrize("path", ["/api/oauth/device/code", "/api/oauth/token"])
async def test_a_held_request_is_closed_by_a_cancel_at_once(world: World, path: str) -> None:
    held = asyncio.Event()

    async def hold() -> None:
        held.set()
        await asyncio.Event().wait()

    device = {
        "device_code": "d",
        "user_code": "ABCD-EFGH",
        "verification_uri": f"{URL}/device",
        "expires_in": 60,
        "interval": 1,
    }
    answers = {"/api/oauth/device/code": [reply(device)], "/api/oauth/token": [reply({})]}
    answers[path] = [attrs.evolve(answers[path][0], hold=hold)]
    transport = ScriptedTransport(answers)
    stop = Stop()
    loop = asyncio.get_running_loop()
    started = 0.0

    async def cancel_when_held() -> None:
        nonlocal started
        await held.wait()
        stop.now, started = True, loop.time()

    task = asyncio.create_task(cancel_when_held())
    states = await world.states(
        cancelled=stop, client_factory=lambda trust, **given: open_client(trust, transport=transport, **given)
    )
    assert states[-1] == Cancelled()
    assert loop.time() - started < 0.3
    await task
    assert len(asyncio.all_tasks()) == 1


async def test_a_cancel_while_another_process_holds_the_lock_is_seen_at_once(world: World) -> None:
    loop = asyncio.get_running_loop()
    stop = Stop()

    def listen(entry: Any) -> None:
        if entry.route == "token.device":
            loop.call_later(0.2, setattr, stop, "now", True)

    world.portal.log.listener = listen
    start = loop.time()
    with auth_lock_held(world.home):
        assert await world.last(cancelled=stop) == Cancelled()
        assert loop.time() - start < 2
    await asyncio.sleep(0.2)
    assert world.files() == {}


@pytest.mark.parametrize("way", ["close", "throw", "cancel"])
@pytest.mark.parametrize("stop_at", [0, 1])
async def test_the_generator_can_be_left_at_every_yield(world: World, way: str, stop_at: int) -> None:
    states = world.flow()
    for _ in range(stop_at + 1):
        await anext(states)
    match way:
        case "close":
            await states.aclose()
        case "throw":
            with pytest.raises(ValueError, match="mine"):
                await states.athrow(ValueError("mine"))
        case _:
            with pytest.raises(asyncio.CancelledError):
                await states.athrow(asyncio.CancelledError())
    assert world.files() == {}
    assert world.opened == world.closed
    assert len(asyncio.all_tasks()) == 1


@pytest.mark.parametrize("after", [0.0, 0.01, 0.03, 0.06])
async def test_cancelling_the_task_passes_through(world: World, after: float) -> None:
    async def hold() -> None:
        await asyncio.Event().wait()

    held = attrs.evolve(reply({}), hold=hold)
    transport = ScriptedTransport({"": [held]})

    async def run() -> None:
        await world.states(
            client_factory=lambda trust, **given: open_client(trust, transport=transport, **given)
        )

    task = asyncio.create_task(run())
    await asyncio.sleep(after)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert world.files() == {}
    assert len(asyncio.all_tasks()) == 1


async def test_cancelling_the_task_while_it_waits_for_a_lock_saves_nothing(world: World) -> None:
    with auth_lock_held(world.home):
        task = asyncio.create_task(world.states())
        while "token.device" not in world.routes():
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    await asyncio.sleep(0.2)
    assert world.files() == {}


async def test_the_owner_closes_for_the_user(world: World) -> None:
    async with sign_in(
        home=world.home, environ=world.environ, clock=world.clock, client_factory=world.client
    ) as states:
        async for state in states:
            assert isinstance(state, Code)
            break
    with pytest.raises(StopAsyncIteration):
        await anext(states)
    assert world.files() == {}
