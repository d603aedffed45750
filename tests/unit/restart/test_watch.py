"""The watch over every member that was restarted: one that dies soon after it served is a failure, and nobody else's (decision 34)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import attrs
import pytest

from nedura.fleet.matrix import complete, reconcile, unsettled, with_failed
from nedura.fleet.model import Fleet, MatrixRow, Runtime
from nedura.fleet.restart_events import RESTART_EVENTS, RestartEvent, SettleWaiting
from nedura.fleet.rolling import restart_rest
from nedura.fleet.statefile import StateRecord
from nedura.wire import from_wire, to_wire
from tests.unit.restart.fakes import NEW, FakeFleet, gateway, of_kind


async def rolled(
    fleet: FakeFleet, members: list[Runtime], *, settle: float, **more: Any
) -> tuple[list[RestartEvent], float]:
    start = asyncio.get_running_loop().time()
    events = [event async for event in restart_rest(members, NEW, parts=fleet.parts(**more), settle=settle)]
    return events, asyncio.get_running_loop().time() - start


def later(seconds: float, act: Callable[[], object]) -> None:
    asyncio.get_running_loop().call_later(seconds, act)


def another_incarnation(fleet: FakeFleet, home: Path) -> None:
    """Its manager started it again."""
    fleet.serving[home] = attrs.evolve(fleet.serving[home], pid=7777, start_time=7)


@pytest.mark.parametrize("comes_back", [False, True])
async def test_a_later_member_that_dies_after_it_served_fails_alone(comes_back: bool) -> None:
    members = [gateway(f"p{pid}", pid) for pid in range(1, 21)]
    victim = members[6]
    fleet = FakeFleet(*members)

    def die() -> None:
        if comes_back:
            another_incarnation(fleet, victim.home)
        else:
            del fleet.serving[victim.home]

    later(0.3, die)
    events, _ = await rolled(fleet, members, settle=0.6)
    (failed,) = of_kind(events, "member_failed")
    assert (failed.profile, failed.pid, failed.check, failed.incomplete) == ("p7", 7, "settle", False)
    assert "ended soon after its start" in failed.reason
    assert len(of_kind(events, "member_restarted")) == 19
    assert not [line for line in fleet.log if line.startswith("force")]
    assert sum(line.startswith("SIGUSR1") for line in fleet.log) == 20, "nobody is touched twice"


async def test_the_watches_run_side_by_side_beside_the_roll() -> None:
    members = [gateway(f"p{pid}", pid) for pid in range(1, 21)]
    fleet = FakeFleet(*members)
    events = []
    start = asyncio.get_running_loop().time()
    served_last = 0.0
    async for event in restart_rest(members, NEW, parts=fleet.parts(), width=2, settle=0.5):
        if event.kind == "restart_started":
            served_last = asyncio.get_running_loop().time()
        events.append(event)
    took = asyncio.get_running_loop().time() - start
    assert len(of_kind(events, "member_restarted")) == 20
    assert served_last - start < took - 0.4, "nobody's place is kept by a watch"
    assert took - (served_last - start) < 1.0, "they end about together"
    assert all(event.downtime_ms < 500 for event in of_kind(events, "member_restarted"))


async def test_a_death_is_told_at_once_and_not_at_the_end_of_the_watch() -> None:
    member = gateway()
    fleet = FakeFleet(member)
    later(0.15, fleet.serving.clear)
    events, took = await rolled(fleet, [member], settle=30.0)
    assert of_kind(events, "member_failed")[0].check == "settle"
    assert took < 5


async def test_what_is_still_watched_is_told_once_nothing_else_is_waited_for() -> None:
    slow, quick = gateway("slow", 1), gateway("quick", 2)
    fleet = FakeFleet(slow, quick)
    fleet.drain_seconds["slow"] = 0.2
    events, _ = await rolled(fleet, [slow, quick], settle=0.3)
    told = [event for event in events if isinstance(event, SettleWaiting)]
    assert told[0].waiting_for == ("quick", "slow"), "not while one of them is still down"
    assert told[-1].waiting_for == ("slow",)
    assert told[0].seconds_left <= 0.3
    assert "2 restarted members stay up" in told[0].copy
    assert "1 restarted member stays up" in told[-1].copy_terminal
    assert from_wire(to_wire(told[0]), RESTART_EVENTS) == told[0]
    assert not [one for one in of_kind(events, "restart_waiting") if "stays up" in one.waiting_for]


async def test_without_a_watch_and_without_members_nobody_waits() -> None:
    member = gateway()
    _, took = await rolled(FakeFleet(member), [member], settle=0)
    assert took < 0.5
    events, took = await rolled(FakeFleet(), [], settle=30)
    assert (events, took < 0.5) == ([], True)


async def test_a_cancelled_watch_leaves_no_task() -> None:
    before = asyncio.all_tasks()
    members = [gateway(f"p{pid}", pid) for pid in range(1, 4)]
    fleet = FakeFleet(*members)
    async with aclosing(restart_rest(members, NEW, parts=fleet.parts(), settle=30.0)) as events:
        async for event in events:
            if event.kind == "settle_waiting":
                break
    assert asyncio.all_tasks() == before


@pytest.mark.parametrize("planned", [True, False])
@pytest.mark.parametrize("comes_back", [True, False])
async def test_an_end_that_somebody_asked_for_is_no_failure(planned: bool, comes_back: bool) -> None:
    member = gateway()
    fleet = FakeFleet(member)

    def end() -> None:
        if comes_back:
            another_incarnation(fleet, member.home)
        else:
            fleet.serving.clear()

    def record(home: Path) -> StateRecord:
        return StateRecord(pid=1100, start_time=1001, state="stopped", planned=planned)

    later(0.15, end)
    events, _ = await rolled(fleet, [member], settle=0.5, record=record)
    assert len(of_kind(events, "member_restarted")) == planned
    assert len(of_kind(events, "member_failed")) == (not planned)


async def test_the_last_word_of_another_incarnation_excuses_nobody() -> None:
    member = gateway()
    fleet = FakeFleet(member)
    later(0.15, fleet.serving.clear)
    record = StateRecord(pid=100, start_time=1000, state="stopped", planned=True)
    events, _ = await rolled(fleet, [member], settle=0.5, record=lambda home: record)
    assert of_kind(events, "member_failed")[0].check == "settle"


async def test_one_whose_pid_cannot_be_seen_from_here_is_judged_by_its_answers() -> None:
    """A member of another process number space: the table says it is gone while it answers."""
    member = gateway()
    fleet = FakeFleet(member)

    class Blind(FakeFleet):
        def alive(self, pid: int, start_time: int | None) -> bool:
            return False

    blind = Blind(member)
    blind.serving = fleet.serving
    events, _ = await rolled(fleet, [member], settle=0.3, processes=blind)
    assert of_kind(events, "member_restarted")


async def test_a_member_without_a_socket_is_watched_by_its_managers_word() -> None:
    member = gateway(kind="serve")
    fleet = FakeFleet(member)

    def fail() -> None:
        fleet.hopeless = "it ended (exit code 3)"

    later(0.1, fail)
    events, _ = await rolled(fleet, [member], settle=0.8)
    assert [(event.check, event.reason) for event in of_kind(events, "member_failed")] == [
        ("settle", "It ended (exit code 3).")
    ]


def test_the_row_of_a_member_that_did_not_stay_up_fails_whatever_serves_now() -> None:
    old, other = gateway("a", 1), gateway("b", 2)
    rows = [
        MatrixRow(profile=one.profile, pid=one.pid + 5, state="current", home=one.home)
        for one in (old, other)
    ]
    marked = with_failed(rows, [old], {("gateway", old.home)})
    assert [(row.profile, row.state, row.failing) for row in marked] == [
        ("a", "current", True),
        ("b", "current", False),
    ]
    assert marked[0].copy_terminal.startswith("✗ a")
    assert not complete(marked, expected_rows=True)
    assert unsettled(marked) == (), "nothing is waited for: its verdict stands"


def test_a_failed_member_without_any_word_of_it_has_a_row() -> None:
    """A start that failed leaves `startup_failed`, which no row is made of: it stays owed all the same."""
    (row,) = with_failed([], [gateway("a", 1)], ())
    assert (row.profile, row.state, row.failing, row.unsteady) == ("a", "down", True, False)
    served = MatrixRow(profile="b", pid=3, state="current", home=Path("/b"), served_profiles=("a",))
    assert with_failed([served], [gateway("a", 1)], ()) == (served,)


def test_the_outcome_of_a_member_that_did_not_stay_up_is_failed() -> None:
    old = gateway("a", 1)
    now = Fleet(runtimes=(attrs.evolve(old, pid=9, start_time=9),))
    (came_back,) = reconcile([old], now, failed={1: "it did not answer in time"})
    assert came_back.outcome == "restarted"
    (unsteady,) = reconcile([old], now, failed={1: "process 8 ended"}, unsteady=[1])
    assert (unsteady.outcome, unsteady.reason, unsteady.owed) == ("failed", "process 8 ended", True)
