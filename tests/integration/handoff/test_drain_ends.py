"""Every way out of a drain: out of time, a store that fails, a renewal that is owed, rows and clocks that make no sense."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import attrs
import httpx
import pytest

from nedura.errors import StoreError
from nedura.http import Client, open_client
from nedura.product import NEDURA
from nedura.signin.handoff import DrainResult, drain, wire_status
from nedura.signin.handoff_record import HandoffStore, note_replacement
from nedura.signin.handoff_rules import Record, State
from nedura.testing.portal import Fault
from nedura.trust import Trust
from tests.integration.handoff.world import URL, World

CLAIMED = b'{"status": "claimed", "connectors": []}'
CARRIED = b'{"status": "claimed", "connectors": [], "cohort_carried": true}'


@attrs.define
class Slow(httpx.AsyncBaseTransport):
    """Answers the n-th claim after `delays[n]` seconds, the last delay for all that follow."""

    delays: list[float]
    body: bytes = CLAIMED
    sent: int = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        delay = self.delays[min(self.sent, len(self.delays) - 1)]
        self.sent += 1
        await asyncio.sleep(delay)
        return httpx.Response(200, stream=httpx.ByteStream(self.body))


async def drain_slowly(world: World, transport: Slow, **options: Any) -> tuple[DrainResult, ...]:
    @asynccontextmanager
    async def client(trust: Trust, **options: Any) -> AsyncIterator[Client]:
        options.pop("environ", None)
        async with open_client(trust, transport=transport, environ={}, **options) as opened:
            yield opened

    return await drain(
        world.home(), environ=world.environ, clock=world.clock, client_factory=client, **options
    )


def several(world: World, number: int) -> None:
    account = world.login()
    for _ in range(number):
        guest = world.portal.store.add_guest("gmail")
        old = {"auth_method": "anonymous", "anon_token": guest.token, "portal_base_url": URL}
        note_replacement(world.home(), old=old, new=account, now=world.clock.time())
    world.store().save_account(account, renewal=False, now=world.clock.time())


async def test_a_drain_that_is_cut_off_every_time_climbs_the_schedule(world: World) -> None:
    world.portal.knobs.access_ttl = 10**6
    several(world, 1)
    start, sent_at = world.clock.time(), []
    while (record := world.records()[0]).open:
        world.clock.advance(record.next_attempt_at - world.clock.time())
        transport = Slow([30.0])
        await drain_slowly(world, transport, budget_s=0.3)
        sent_at += [world.clock.time() - start] * transport.sent
    assert sent_at == [0, 60, 660, 4260, 25860]
    assert (record.state, record.last_code) == (State.FAILED, "no_answer")


async def test_a_cancelled_drain_settles_what_it_sent(world: World) -> None:
    several(world, 1)
    transport = Slow([30.0])
    run = asyncio.create_task(drain_slowly(world, transport))
    while not transport.sent:
        await asyncio.sleep(0.005)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    (record,) = world.records()
    assert (record.last_code, record.next_attempt_at - world.clock.time()) == ("no_answer", 60)


async def test_what_was_settled_before_the_time_was_up_is_told_and_renewed_later(world: World) -> None:
    several(world, 2)
    results = await drain_slowly(world, Slow([0.01, 30.0], CARRIED), budget_s=0.5)
    assert sorted(result.state for result in results) == ["claimed", "pending"]
    assert [record.renewal_owed for record in world.records()].count(True) == 1
    await world.drain()
    assert world.portal.log.count("token.refresh") == 1
    assert not any(record.renewal_owed for record in world.records())
    await world.drain()
    assert world.portal.log.count("token.refresh") == 1


async def test_a_renewal_that_failed_is_tried_again(world: World) -> None:
    world.portal.knobs.cohort_carried = True
    world.guest("gmail")
    world.sign_in()
    world.portal.plant(Fault(route="token.refresh", status=503, body="html"))
    assert [result.state for result in await world.drain()] == ["claimed"]
    assert world.records()[0].renewal_owed
    assert await world.drain() == ()
    assert world.portal.log.count("token.refresh") == 2
    assert not world.records()[0].renewal_owed


class FailsOnce(HandoffStore):
    """A store whose second write fails."""

    calls = 0

    def change(
        self, decide: Callable[[tuple[Record, ...]], tuple[Record, ...]], *, timeout: float = 10.0
    ) -> tuple[Record, ...]:
        self.calls += 1
        if self.calls == 2:
            raise StoreError("disk full once")
        return super().change(decide, timeout=timeout)


async def test_a_failed_write_leaves_no_worker_behind_and_loses_no_answer(world: World) -> None:
    several(world, 6)
    before = asyncio.all_tasks()
    transport = Slow([0.02, 0.1, 0.1, 0.1, 0.1, 0.02])
    results = await drain_slowly(world, transport, records=FailsOnce(world.home()))
    assert asyncio.all_tasks() == before
    assert [result.state for result in results] == ["claimed"] * transport.sent
    assert sum(not record.open for record in world.records()) == 5


@pytest.mark.parametrize(
    "spoil",
    [
        {"attempts": float("inf")}, {"state": "expired"}, {"attempts": None}, {"attempts": 10**400, "state": 1},
    ],
)  # fmt: skip
async def test_a_row_that_cannot_be_read_is_kept_and_stops_no_other(
    world: World, spoil: dict[str, Any]
) -> None:
    world.guest("gmail")
    world.sign_in()
    path = world.home() / "guest_handoff.json"
    document = json.loads(path.read_text())
    foreign = {**document["records"][0], "id": "x", "token": None, **spoil}
    document["records"] = [foreign, "text", *document["records"]]
    path.write_text(json.dumps(document))
    assert wire_status(world.home()) is not None
    assert [result.state for result in await world.drain()] == ["claimed"]
    assert json.loads(path.read_text())["records"][1:] == [foreign, "text"]
    assert not list(world.home().glob("*corrupt*"))


async def test_a_clock_that_was_set_back_makes_no_new_record_old(world: World) -> None:
    for _ in range(5):
        world.guest("gmail")
        world.sign_in()
        await world.drain()
        with world.store().transaction() as transaction:
            transaction.forget(world.clock.time())
    world.clock.advance(-7200)
    world.guest("slack")
    world.sign_in()
    (pending,) = [record for record in world.records() if record.open]
    status = wire_status(world.home())
    assert status is not None
    assert status["state"] == "pending"
    (result,) = await world.drain()
    status = wire_status(world.home())
    assert status is not None
    assert (result.id, status["moved"]) == (pending.id, ["Slack"])
    assert pending.id in [record.id for record in world.records()]


async def test_a_guest_of_the_portals_former_host_is_no_strangers(world: World) -> None:
    account = {**world.login(), "portal_base_url": NEDURA.portal_url}
    guest = world.portal.store.add_guest("gmail")
    old = {
        "auth_method": "anonymous",
        "anon_token": guest.token,
        "portal_base_url": "https://api.nousresearch.com",
    }
    note_replacement(world.home(), old=old, new=account, now=world.clock.time())
    world.store().save_account(account, renewal=False, now=world.clock.time())
    assert [result.state for result in await world.drain()] == ["claimed"]
