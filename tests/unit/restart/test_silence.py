"""A process whose socket is dead, too: wedged, or finishing its turns? Table and properties over its signs of life."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nedura.fleet.silence import SILENCE_SECONDS, Silence
from nedura.fleet.statefile import StateRecord
from tests.unit.restart.fakes import FakeFleet, gateway, of_kind
from tests.unit.restart.test_roll import restart

PID, START = 100, 1000
RUNNING = StateRecord(pid=PID, start_time=START, state="running", updated_at=0.0, drain_budget_s=1800.0)


def heard(
    *said: tuple[float, str, float], end: float, writable: bool = True, record: StateRecord = RUNNING
) -> str:
    """Feed (moment of the look, state, stamp in the file) and ask at the end."""
    silence = Silence(PID, START, 0.0)
    for now, state, stamp in ((0.0, "running", 0.0), *said):
        silence.read(attrs.evolve(record, state=state, updated_at=stamp), now)
    return silence.proof(end, writable=writable)


def minutes(state: str, until: float) -> Iterable[tuple[float, str, float]]:
    """A state thread that lives writes each minute; it is looked at every 5 s."""
    for now in range(5, int(until) + 1, 5):
        yield float(now), state, 60.0 * (now // 60)


@pytest.mark.parametrize(
    ("said", "end", "words"),
    [
        ((), 89.0, ""),
        ((), 90.0, "no thread of it gives a sign of life"),
        # the state thread lives and says for minutes that nothing happened
        (tuple(minutes("running", 89)), 89.0, ""),
        (tuple(minutes("running", 90)), 90.0, "its event loop did not act on the signal"),
        # it finishes a long turn, says so each minute, and its socket is dead
        (tuple(minutes("draining", 1700)), 1700.0, ""),
        # it took the signal and froze afterwards
        (((1.0, "draining", 0.5),), 80.0, ""),
        (((1.0, "draining", 0.5),), 91.0, "no thread of it gives a sign of life"),
        # one write that crossed the signal, then a disk that takes nothing more
        (((1.0, "running", 0.5),), 90.5, ""),
    ],
)
def test_what_counts_as_proof(said: tuple[tuple[float, str, float], ...], end: float, words: str) -> None:
    assert heard(*said, end=end) == words


@pytest.mark.parametrize(
    "record",
    [
        attrs.evolve(RUNNING, pid=PID + 1),
        attrs.evolve(RUNNING, start_time=START + 1),
        attrs.evolve(RUNNING, start_time=None),
        attrs.evolve(RUNNING, drain_budget_s=None),  # of a writer that is no member of ours
    ],
)
def test_a_record_of_somebody_else_proves_nothing(record: StateRecord) -> None:
    assert heard(end=10_000.0, record=record) == ""


def test_without_a_record_or_a_disk_there_is_a_doubt() -> None:
    assert Silence(PID, START, 0.0).proof(10_000.0, writable=True) == ""
    assert heard(end=10_000.0, writable=False) == ""
    # a loop that its own state thread calls deaf is proven without the disk
    assert heard(*minutes("running", 120), end=120.0, writable=False)


def test_an_answer_or_a_halt_begins_the_silence_anew() -> None:
    silence = Silence(PID, START, 0.0)
    silence.read(RUNNING, 0.0)
    silence.heard(89.0)
    assert silence.proof(178.0, writable=True) == ""
    assert silence.proof(179.0, writable=True)


@given(st.lists(st.tuples(st.floats(0, 59), st.sampled_from(["draining", "stopped"])), max_size=60))
def test_whoever_writes_each_minute_that_it_drains_is_never_ended(gaps: list[tuple[float, str]]) -> None:
    silence, now = Silence(PID, START, 0.0), 0.0
    silence.read(RUNNING, now)
    for gap, state in gaps:
        now += gap
        silence.read(attrs.evolve(RUNNING, state=state, updated_at=now), now)
        assert not silence.proof(now + 30, writable=True)


def deaf_and_dumb(fleet: FakeFleet) -> Any:
    """A look that gets no answer from the first process."""

    async def look(home: Path) -> Any:
        found = fleet.serving.get(home)
        return None if found is not None and found.pid == 100 else found

    return look


async def test_a_hanging_process_with_a_dead_socket_is_ended_long_before_its_drain_is_over() -> None:
    member = gateway(drain_budget_s=21600.0)
    fleet = FakeFleet(member)
    fleet.drain_seconds["default"] = 1e9
    events = await restart(
        fleet,
        member,
        look=deaf_and_dumb(fleet),
        record=lambda home: attrs.evolve(RUNNING, drain_budget_s=21600.0),
        writable=lambda home: True,
        silence=0.1,
    )
    assert fleet.log[:3] == ["arm 100", "SIGUSR1 100", "SIGTERM 100"]
    assert of_kind(events, "member_restarted")


async def test_a_drain_behind_a_dead_socket_keeps_its_time_and_says_what_it_waits_for() -> None:
    member = gateway(drain_budget_s=21600.0)
    fleet = FakeFleet(member)
    fleet.drain_seconds["default"] = 0.5
    stamps = iter(range(10_000))
    events = await restart(
        fleet,
        member,
        look=deaf_and_dumb(fleet),
        record=lambda home: attrs.evolve(
            RUNNING, state="draining", updated_at=float(next(stamps)), active_agents=2
        ),
        silence=0.1,
    )
    assert "SIGTERM 100" not in fleet.log
    assert of_kind(events, "drain_waiting")[-1].waiting_for == "2 running turns"
    assert of_kind(events, "member_restarted")
    assert SILENCE_SECONDS == 90.0
