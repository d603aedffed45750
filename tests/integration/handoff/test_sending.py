"""What is leased ahead of its request: on disk before it leaves, given back when it never left, renewed when it waited."""

from __future__ import annotations

import asyncio
import json

import attrs
import httpx
import pytest

from nedura.signin.handoff_rules import LEASE, Record, Reply, is_due, lease, prolonged, returned
from nedura.signin.handoff_sending import AHEAD, AT_ONCE, FRESH
from tests.integration.handoff.test_drain_ends import Slow, drain_slowly, several
from tests.integration.handoff.world import World


@attrs.define
class Watching(Slow):
    """Notes how many requests are under way, and how the record on disk stands when its request arrives."""

    world: World | None = None
    under_way: int = 0
    most: int = 0
    seen: list[tuple[int, float]] = attrs.field(factory=list)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        assert self.world is not None
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        token = json.loads(request.content)["token"]
        (record,) = [one for one in self.world.records() if one.token and one.token.reveal() == token]
        self.seen.append((record.attempts, record.next_attempt_at - self.world.clock.time()))
        try:
            return await super().handle_async_request(request)
        finally:
            self.under_way -= 1


async def test_every_attempt_is_counted_and_leased_on_disk_before_it_leaves(world: World) -> None:
    several(world, 17)
    transport = Watching([0.02], world=world)
    results = await drain_slowly(world, transport)
    assert [result.state for result in results] == ["claimed"] * 17
    assert transport.seen == [(1, LEASE)] * 17
    assert transport.most == AT_ONCE


async def test_what_never_left_is_given_back_and_not_counted(world: World) -> None:
    several(world, AT_ONCE + AHEAD + 3)
    now = world.clock.time()
    transport = Slow([30.0])
    results = await drain_slowly(world, transport, budget_s=0.3)
    records = world.records()
    assert len(results) == transport.sent == AT_ONCE
    assert sorted(record.attempts for record in records) == [0] * (AHEAD + 3) + [1] * AT_ONCE
    assert all(is_due(record, now) for record in records if not record.attempts)
    again = Slow([0.0])
    assert len(await drain_slowly(world, again)) == again.sent == AHEAD + 3


async def test_a_lease_that_waited_is_renewed_before_its_request(world: World) -> None:
    several(world, AT_ONCE + 2)
    transport = Watching([0.2], world=world)
    run = asyncio.create_task(drain_slowly(world, transport))
    while transport.sent < AT_ONCE:
        await asyncio.sleep(0.002)
    world.clock.advance(FRESH + 1)
    results = await run
    assert [result.state for result in results] == ["claimed"] * (AT_ONCE + 2)
    assert transport.seen[AT_ONCE:] == [(1, LEASE)] * 2


@pytest.mark.parametrize("attempts", [3, 0])
def test_a_record_that_somebody_else_changed_is_neither_prolonged_nor_given_back(attempts: int) -> None:
    before = Record(id="a", updated_at=1.0)
    leased = lease(before, 10.0)
    current = attrs.evolve(leased, attempts=attempts)
    assert prolonged((current,), leased, 20.0) == current
    assert returned((current,), leased, before, 20.0) == current


def test_a_lease_that_is_given_back_is_as_it_was() -> None:
    before = Record(id="a", attempts=2, next_attempt_at=5.0, scheduled_at=4.0, updated_at=4.0)
    back = returned((lease(before, 10.0),), lease(before, 10.0), before, 20.0)
    assert attrs.evolve(back, updated_at=4.0) == before
    assert back.updated_at > lease(before, 10.0).updated_at


async def test_a_bug_in_a_request_ends_the_run_and_is_not_hidden(world: World) -> None:
    several(world, 2)

    class Broken(Slow):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            raise ZeroDivisionError("planted")

    with pytest.raises(ZeroDivisionError, match="planted"):
        await drain_slowly(world, Broken([0.0]))
    assert {record.attempts for record in world.records()} == {1}
    assert {record.last_code for record in world.records()} == {Reply(code="no_answer").code}
