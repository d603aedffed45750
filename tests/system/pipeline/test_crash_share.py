"""A seeded share of the crash proof; the long runs are by hand (`./run crash`, docs/reliability.md)."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from tests.crash.__main__ import Harness, prepare
from tests.crash.plan import CALLS, Kill, plan_kill
from tests.crash.rules import Facts, after_kill, after_update
from tests.kits.site import world


@pytest.mark.timeout(200)
def test_two_kills_of_a_real_update_leave_nothing_broken() -> None:
    with world() as here:
        prepare(here)
        harness = Harness(here, as_json=True)
        for kill in (
            Kill(seed=1, how="instant", after=3.0),
            Kill(seed=2, how="instant", whom="parent", after=4.5),
        ):
            assert harness.run(kill) == [], kill.name


def test_a_seed_always_means_the_same_kill() -> None:
    counts = dict.fromkeys(CALLS, 40)
    kills = [plan_kill(seed, 6.0, counts) for seed in range(300)]
    assert kills == [plan_kill(seed, 6.0, counts) for seed in range(300)]
    assert {kill.how for kill in kills} == {"instant", "call", "signal"}
    assert {kill.whom for kill in kills} == {"tree", "parent", "child"}
    assert all(0 < kill.number <= 40 for kill in kills if kill.how == "call")


GOOD = Facts(
    current="000002",
    old="000001",
    new="000002",
    receipts=[
        {"update_id": "r", "outcome": "success", "committed_at": "t", "post_update": {"generation": "000002"}}
    ],
    latest={"outcome": "success"},
    members={"default": (True, "000002")},
)


@pytest.mark.parametrize(
    "change",
    [
        {"current": "000003"},
        {"current": ""},
        {"damaged": ("a.py",)},
        {"receipts": [None]},
        {"stores": {"state.db": "malformed"}},
        {"edits": {"a.py": False}},
        {"marker": 7},
        {"tail": True},
        {"debt": True},
        {"members": {"default": (False, "000002")}},
        {"members": {"default": (True, "000001")}},
        {"latest": None},
        {"processes": ["1 update"]},
        {"receipts": [{"update_id": "x", "outcome": "running"}]},
    ],
)
def test_each_rule_notices(change: dict[str, Any]) -> None:

    assert after_update(GOOD, code=0, kills=1, restarted=0) == []
    assert after_update(attrs.evolve(GOOD, **change), code=0, kills=0, restarted=0)


def test_more_rules_notice() -> None:

    assert after_update(GOOD, code=1, kills=1, restarted=0)
    assert after_update(GOOD, code=0, kills=1, restarted=1)
    moved = attrs.evolve(
        GOOD, receipts=[{"update_id": "r", "outcome": "running"}], members={"default": (True, "000001")}
    )
    assert after_kill(attrs.evolve(moved, tail=True, debt=True), run="r") == []
    assert after_kill(attrs.evolve(moved, debt=True), run="r"), "the tail is not owed"
    assert after_kill(attrs.evolve(moved, tail=True), run="r"), "the restart is not owed"
    lies = attrs.evolve(GOOD, current="000001")
    assert after_kill(lies, run="r"), "success is claimed, but the code did not move"
