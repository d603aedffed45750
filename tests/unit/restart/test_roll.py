from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path

import attrs
import pytest

from nedura.fleet.model import Foreign, Runtime
from nedura.fleet.restart import progress_step, restart_member, triage, waiting_words
from nedura.fleet.restart_events import RESTART_EVENTS, RestartEvent
from nedura.fleet.rolling import in_roll_order, left_alone, pick_first, restart_first, restart_rest, roll
from nedura.fleet.supervisors.base import RestartError
from nedura.wire import from_wire, to_wire
from tests.unit.restart.fakes import NEW, OLD, FakeFleet, failing, gateway, of_kind


async def restart(fleet: FakeFleet, runtime: object, **more: object) -> list[RestartEvent]:
    events: list[RestartEvent] = []
    await restart_member(runtime, NEW, fleet.parts(**more), events.append)  # type: ignore[arg-type]
    return events


async def test_a_member_is_armed_drained_revived_and_verified() -> None:
    member = gateway(unit="nedura-gateway.service")
    fleet = FakeFleet(member)
    fleet.drain_seconds["default"] = 0.4
    events = await restart(fleet, member)
    assert fleet.log == ["arm 100", "SIGUSR1 100", "revive 100"]
    assert next(event.kind for event in events) == "restart_started"
    assert of_kind(events, "drain_waiting")
    (done,) = of_kind(events, "member_restarted")
    assert (done.pid, done.verdict) == (1100, "current")
    assert done.downtime_ms >= 390


async def test_what_it_still_does_is_named_while_it_drains() -> None:
    member = gateway(active_turns=2, detail={"active_work": [{"kind": "cron"}, {"kind": "chat"}]})
    fleet = FakeFleet(member)
    fleet.drain_seconds["default"] = 0.4
    events = await restart(fleet, member)
    waiting = of_kind(events, "drain_waiting")[0]
    assert waiting.waiting_for == "2 running turns (chat, cron)"
    assert "2 running turns" in waiting.copy
    assert waiting.limit > 45


async def test_serve_and_dashboard_never_get_sigusr1() -> None:
    for kind in ("serve", "dashboard"):
        member = gateway(kind=kind)
        fleet = FakeFleet(member)
        events = await restart(fleet, member)
        assert fleet.log == ["arm 100", "force 100"]
        assert of_kind(events, "member_restarted")[0].verdict == "unknown"


@pytest.mark.parametrize("deaf", [False, True])
async def test_a_wedged_loop_is_ended_and_not_waited_for(deaf: bool) -> None:
    member = gateway(loop_age_s=91.0)
    assert triage(member) == "end"
    assert triage(attrs.evolve(member, loop_age_s=89.0)) == "drain"
    assert triage(attrs.evolve(member, ancestor=True)) == "signal"
    fleet = FakeFleet(member)
    fleet.deaf = deaf
    fleet.drain_seconds["default"] = 1e9
    events = await restart(fleet, member)
    assert fleet.log == ["arm 100", "SIGTERM 100", *(["SIGKILL 100"] if deaf else []), "revive 100"]
    assert of_kind(events, "member_restarted")


async def test_a_loop_that_wedges_during_the_drain_ends_the_wait() -> None:
    member = gateway()
    fleet = FakeFleet(member)
    fleet.drain_seconds["default"] = 1e9

    async def look(home: Path) -> object:
        found = fleet.serving.get(home)
        return attrs.evolve(found, loop_age_s=120.0) if found and found.pid == 100 else found

    events = await restart(fleet, member, look=look)
    assert "SIGTERM 100" in fleet.log
    assert of_kind(events, "member_restarted")


async def test_c078_an_ancestor_is_told_and_never_waited_for() -> None:
    member = gateway(ancestor=True)
    fleet = FakeFleet(member)
    fleet.drain_seconds["default"] = 1e9
    events = await asyncio.wait_for(restart(fleet, member), 1)
    assert fleet.log == ["arm 100", "SIGUSR1 100"]
    assert [event.kind for event in events] == ["restart_started", "restart_pending"]


async def test_a_refused_signal_leads_to_the_blunt_restart() -> None:
    member = gateway()
    fleet = FakeFleet(member)
    fleet.refuse_signal = "it belongs to another user"
    await restart(fleet, member)
    assert fleet.log == ["arm 100", "SIGUSR1 100", "force 100"]


async def test_a_process_that_has_gone_already_counts_as_drained() -> None:
    member = gateway()
    fleet = FakeFleet()
    events = await restart(fleet, member)
    assert fleet.log == ["arm 100", "SIGUSR1 100", "revive 100"]
    assert of_kind(events, "member_restarted")


async def test_a_start_that_fails_is_followed_by_the_blunt_restart() -> None:
    member = gateway()
    fleet = FakeFleet(member)
    fleet.on_revive = failing("boot")
    events = await restart(fleet, member)
    assert fleet.log[-2:] == ["revive 100", "force 100"]
    assert of_kind(events, "member_restarted")


@pytest.mark.parametrize("more", [{"incomplete": True}, {"final": True}])
async def test_a_start_that_is_still_under_way_or_final_is_not_pushed(more: dict[str, bool]) -> None:
    member = gateway()
    fleet = FakeFleet(member)
    fleet.on_revive = failing("manager", **more)
    events = await restart(fleet, member)
    assert "force 100" not in fleet.log
    (failed,) = of_kind(events, "member_failed")
    assert failed.check == "manager"
    assert failed.incomplete is more.get("incomplete", False)
    assert failed.command == "start default"


async def test_the_wrong_version_is_a_failure_at_once() -> None:
    member = gateway()
    fleet = FakeFleet(member, starts=OLD)
    events = await restart(fleet, member, serving_timeout=30.0)
    (failed,) = of_kind(events, "member_failed")
    assert failed.check == "version"
    assert "000001" in failed.reason


async def test_a_member_that_never_answers_fails_after_its_own_time() -> None:
    member = gateway()
    fleet = FakeFleet(member)
    fleet.start = lambda runtime: None  # type: ignore[method-assign]
    events = await restart(fleet, member, serving_timeout=0.05)
    (failed,) = of_kind(events, "member_failed")
    assert failed.check == "ready"
    assert of_kind(events, "restart_waiting")


async def test_a_member_that_dies_soon_after_it_served_fails() -> None:
    member = gateway()
    fleet = FakeFleet(member)
    events: list[RestartEvent] = []
    asyncio.get_running_loop().call_later(0.2, lambda: fleet.serving.clear())
    ok = await restart_member(member, NEW, fleet.parts(), events.append, settle=5.0)
    assert not ok
    assert of_kind(events, "member_failed")[0].check == "settle"


async def test_the_host_check_of_a_watched_member_adds_no_time_to_the_watch() -> None:
    checks: list[float] = []
    loop = asyncio.get_running_loop()

    async def health(runtime: object) -> str:
        checks.append(loop.time())
        await asyncio.sleep(0.04)
        return ""

    member = gateway()
    fleet = FakeFleet(member)
    start = loop.time()
    assert await restart_member(member, NEW, fleet.parts(health=health), lambda event: None, settle=0.5)
    assert len(checks) == 2
    assert checks[0] - start < 0.4, "the first check does not wait for the end of the watch"
    assert checks[1] - checks[0] >= 0.44, "the last check is at the end of the watch"
    assert loop.time() - checks[0] < 0.5 + 0.04, "checks come on top of the watch"


async def test_a_watched_member_that_answers_wrongly_at_the_end_fails() -> None:
    answers = iter(["", "it answers /work with nonsense"])

    async def health(runtime: object) -> str:
        return next(answers)

    member = gateway()
    events: list[RestartEvent] = []
    assert not await restart_member(
        member, NEW, FakeFleet(member).parts(health=health), events.append, settle=0.1
    )
    assert of_kind(events, "member_failed")[0].check == "health"


async def test_a_check_that_hangs_does_not_hide_the_death_of_a_watched_member() -> None:
    async def health(runtime: object) -> str:
        await asyncio.sleep(3600)
        return ""

    member = gateway()
    fleet = FakeFleet(member)
    events: list[RestartEvent] = []
    asyncio.get_running_loop().call_later(0.1, lambda: fleet.serving.clear())
    async with asyncio.timeout(5):
        assert not await restart_member(member, NEW, fleet.parts(health=health), events.append, settle=1.0)
    assert of_kind(events, "member_failed")[0].check == "settle"


async def test_a_host_check_can_refuse_a_member() -> None:
    async def health(runtime: object) -> str:
        return "it answers /work with nonsense"

    member = gateway()
    events = await restart(FakeFleet(member), member, health=health)
    assert of_kind(events, "member_failed")[0].check == "health"


async def test_a_surprise_stays_with_its_member() -> None:
    async def bang(runtime: object) -> None:
        raise ZeroDivisionError("\x1b[31mboom")

    first, second = gateway("a", 1), gateway("b", 2)
    fleet = FakeFleet(first, second)
    fleet.on_revive = fleet.on_force = lambda runtime: bang(runtime) if runtime.pid == 1 else asyncio.sleep(0)
    events = [event async for event in restart_rest([first, second], NEW, parts=fleet.parts())]
    (failed,) = of_kind(events, "member_failed")
    assert (failed.profile, failed.check) == ("a", "internal")
    assert "\x1b" not in failed.copy_terminal
    assert of_kind(events, "member_restarted")[0].profile == "b"


async def test_the_first_member_is_idle_supervised_and_not_above_us() -> None:
    fleet = FakeFleet()
    above = gateway("up", 1, ancestor=True, unit="x.service")
    busy = gateway("busy", 2, active_turns=1, unit="y.service")
    plain = gateway("plain", 3)
    unit = gateway("unit", 4, unit="z.service")
    serve = gateway("serve", 5, kind="serve", unit="s.service")
    alien = gateway("alien", 6, supervisor="desktop")
    everyone = [above, busy, plain, unit, serve, alien]
    assert await pick_first(everyone, fleet.parts()) is unit
    assert await pick_first([above, busy, plain], fleet.parts()) is plain
    assert await pick_first([above, serve, alien], fleet.parts()) is None
    fleet.able_to = False
    assert await pick_first(everyone, fleet.parts()) is None


async def test_a_sealed_roll_ends_with_its_first_member() -> None:
    members = [gateway(name, pid) for pid, name in enumerate("abcdef", 1)]
    fleet = FakeFleet(*members, starts=OLD)
    events = [event async for event in roll(members, NEW, parts=fleet.parts(), sealed=True, settle=0)]
    assert len(of_kind(events, "restart_started")) == len(of_kind(events, "member_failed")) == 1
    assert sum("SIGUSR1" in line for line in fleet.log) == 1


async def test_a_checkout_roll_isolates_every_failure() -> None:
    members = [gateway(name, pid) for pid, name in enumerate("abcdef", 1)]
    fleet = FakeFleet(*members)
    fleet.on_revive = fleet.on_force = lambda runtime: (
        failing("boot")(runtime) if runtime.pid == 3 else asyncio.sleep(0)
    )
    events = [event async for event in roll(members, NEW, parts=fleet.parts(), sealed=False, settle=0)]
    assert {event.profile for event in of_kind(events, "member_restarted")} == set("abdef")
    assert [event.profile for event in of_kind(events, "member_failed")] == ["c"]


async def test_no_more_members_are_down_than_the_width() -> None:
    members = [gateway(f"p{pid}", pid) for pid in range(1, 21)]
    fleet = FakeFleet(*members)
    fleet.on_revive = lambda runtime: asyncio.sleep(0.01)
    events = [
        event async for event in roll(members, NEW, parts=fleet.parts(), sealed=True, width=4, settle=0)
    ]
    assert len(of_kind(events, "member_restarted")) == 20
    assert fleet.most_down <= 4


async def test_members_that_failed_and_stay_down_count_among_those_that_are_down() -> None:
    members = [gateway(f"p{pid}", pid) for pid in range(1, 21)]
    fleet = FakeFleet(*members)

    async def start(runtime: Runtime) -> None:
        await asyncio.sleep(0.01)
        if runtime.pid in (3, 7):
            raise RestartError("no", check="boot", final=True)

    fleet.on_revive = start
    events = [event async for event in restart_rest(members, NEW, parts=fleet.parts(), width=4)]
    assert len(of_kind(events, "member_restarted")) == 18
    assert {event.profile for event in of_kind(events, "member_failed")} == {"p3", "p7"}
    assert fleet.most_down == 4


async def test_a_roll_in_which_everybody_fails_comes_to_its_end() -> None:
    members = [gateway(f"p{pid}", pid) for pid in range(1, 11)]
    fleet = FakeFleet(*members)
    fleet.on_revive = failing("boot", final=True)
    async with asyncio.timeout(10):
        events = [event async for event in restart_rest(members, NEW, parts=fleet.parts(), width=4)]
    assert len(of_kind(events, "member_failed")) == 10


async def test_members_that_failed_and_still_serve_hold_nobody_up() -> None:
    members = [gateway(f"p{pid}", pid) for pid in range(1, 9)]
    fleet = FakeFleet(*members)
    both = asyncio.Barrier(2)

    async def start(runtime: Runtime) -> None:
        if runtime.pid > 6:
            async with asyncio.timeout(5):
                await both.wait()

    async def arm(runtime: Runtime) -> None:
        if runtime.pid <= 6:
            raise RestartError("it was left running", check="masked", final=True)

    fleet.on_arm, fleet.on_revive = arm, start
    events = [event async for event in restart_rest(members, NEW, parts=fleet.parts(), width=2)]
    assert {event.profile for event in of_kind(events, "member_restarted")} == {"p7", "p8"}


async def test_a_member_that_serves_holds_no_place_while_its_host_checks_it() -> None:
    members = [gateway("a", 1), gateway("b", 2)]
    both = asyncio.Barrier(2)

    async def health(member: object) -> str:
        async with asyncio.timeout(5):
            await both.wait()
        return ""

    fleet = FakeFleet(*members)
    events = [event async for event in restart_rest(members, NEW, parts=fleet.parts(health=health), width=1)]
    assert {event.profile for event in of_kind(events, "member_restarted")} == {"a", "b"}
    assert fleet.most_down == 1


async def test_what_we_run_under_is_signalled_last() -> None:
    members = [gateway("up", 1, ancestor=True), *[gateway(f"p{pid}", pid) for pid in range(2, 6)]]
    fleet = FakeFleet(*members)
    [event async for event in restart_rest(members, NEW, parts=fleet.parts())]
    assert fleet.log[-1] == "SIGUSR1 1"
    assert in_roll_order(members)[-1].profile == "up"


async def test_one_process_under_several_units_restarts_once() -> None:
    member = gateway(unit="nedura-gateway.service")
    twin = attrs.evolve(member, unit="hermes-gateway.service")
    fleet = FakeFleet(member)
    events = [event async for event in restart_rest([member, twin], NEW, parts=fleet.parts())]
    assert len(of_kind(events, "restart_started")) == 1


async def test_no_eligible_first_member_yields_nothing() -> None:
    fleet = FakeFleet()
    assert [event async for event in restart_first([gateway(ancestor=True)], NEW, parts=fleet.parts())] == []


async def test_members_that_are_done_are_skipped() -> None:
    members = [gateway("a", 1), gateway("b", 2)]
    fleet = FakeFleet(*members)
    events = [event async for event in restart_rest(members, NEW, parts=fleet.parts(), skip={1})]
    assert [event.profile for event in of_kind(events, "restart_started")] == ["b"]


@pytest.mark.parametrize("take", range(5))
async def test_closing_a_roll_at_any_event_leaves_no_task(take: int) -> None:
    before = asyncio.all_tasks()
    members = [gateway(f"p{pid}", pid) for pid in range(1, 4)]
    fleet = FakeFleet(*members)
    fleet.drain_seconds = {"p1": 0.02, "p2": 0.03}
    async with aclosing(roll(members, NEW, parts=fleet.parts(), sealed=False, settle=0)) as events:
        for _ in range(take):
            await anext(events)
    assert asyncio.all_tasks() == before


async def test_every_event_survives_the_wire() -> None:
    member = gateway(unit="u.service", active_turns=1)
    fleet = FakeFleet(member, gateway("b", 2, supervisor="desktop"))
    fleet.drain_seconds["default"] = 0.4
    events = [
        event
        async for event in restart_rest(
            [member, gateway("b", 2, supervisor="desktop")], NEW, parts=fleet.parts()
        )
    ]
    assert {event.kind for event in events} >= {
        "restart_started",
        "drain_waiting",
        "member_restarted",
        "left_alone",
    }
    for event in events:
        assert from_wire(to_wire(event), RESTART_EVENTS) == event
        assert "nedura " not in event.copy


def test_progress_lines_become_rare() -> None:
    assert [progress_step(elapsed, 1.0) for elapsed in (0, 9, 10, 119, 120, 4000)] == [1, 1, 5, 5, 30, 30]


def test_what_is_waited_for_is_said_in_words() -> None:
    assert waiting_words(None) == "its process to end"
    assert waiting_words(gateway(active_turns=0)) == "its clean-up"
    assert waiting_words(gateway(active_turns=1)) == "1 running turn"


def test_what_is_left_alone_is_named_with_its_home() -> None:
    events = left_alone(
        [Foreign(what="systemd unit", name="hermes-gateway.service", reason="another home", home=Path("/h"))]
    )
    assert (
        events[0].copy_terminal
        == "↷ hermes-gateway.service: systemd unit belongs to another home (/h), left alone"
    )
