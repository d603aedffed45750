"""A seeded share of the crash proof; the long runs are by hand (`./run crash`, docs/reliability.md)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import attrs
import pytest

from tests.crash.harness import Harness
from tests.crash.host import full_host_lacks, make_host
from tests.crash.plan import CALLS, STAGES, WHATS, Kill, plan_kill
from tests.crash.rules import Facts, after_kill, after_launch, after_update
from tests.crash.strike import traced_by

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.timeout(100)
def test_a_killed_parent_leaves_nothing_broken() -> None:
    """On any machine: no file system and no systemd of its own."""
    with make_host("sealed", disk=False) as host:
        harness = Harness(host)
        harness.prepare()
        kill = Kill(seed=2, how="stage", whom="parent", stage="first_member")
        assert harness.run(kill) == [], kill.name
        assert harness.reached == {"kill": 1}


@pytest.mark.root
@pytest.mark.system
@pytest.mark.timeout(200)
def test_kills_and_power_cuts_beside_a_real_systemd_leave_nothing_broken() -> None:
    """A parent that dies, and a power cut at an fsync of the new generation."""
    lacks = full_host_lacks()
    if lacks:
        pytest.skip(f"needs {lacks}")
    command = [sys.executable, "-m", "tests.crash", "--host", "full", "--json"]
    command += ["--seed", "21", "--runs", "2", "--only", "power", "--only", "kill"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=190, check=False)
    last = json.loads(done.stdout.splitlines()[-1])
    assert done.returncode == 0, done.stdout + done.stderr
    assert (last["kind"], last["runs"], last["violations"]) == ("crash_finished", 2, 0)
    assert last["by_kind"]["power"] >= 1, (
        "what these seeds mean depends on the speed here, but never all of it"
    )


def test_whoever_is_not_traced_is_never_part_of_the_struck_tree() -> None:
    """An update that dies at its very first call has no tracer yet: 0 is what every other process says, too."""
    assert traced_by(0) == {}


def test_a_seed_always_means_the_same_strike() -> None:
    counts = dict.fromkeys(CALLS, 40)
    kills = [plan_kill(seed, 6.0, counts, disk=True) for seed in range(600)]
    assert kills == [plan_kill(seed, 6.0, counts, disk=True) for seed in range(600)]
    assert {kill.how for kill in kills} == {"instant", "call", "stage"}
    assert {kill.what for kill in kills} == set(WHATS)
    assert {kill.whom for kill in kills} == {"tree", "parent", "child"}
    assert {kill.stage for kill in kills} == {"", *STAGES["sealed"]}
    assert all(0 < kill.number <= 40 for kill in kills if kill.how == "call")
    plain = {plan_kill(seed, 6.0, {}).what for seed in range(300)}
    assert plain == {"kill", "sigint"}, "without a disk and a tracer"
    assert {plan_kill(seed, 6.0, counts, disk=True, only=["power"]).what for seed in range(50)} == {"power"}


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
        {"stale_launcher": True},
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
    assert after_kill(attrs.evolve(moved, tail=True), run="r", cut=True) == [], "nobody runs old code"
    assert after_launch(GOOD) == []
    assert after_launch(attrs.evolve(GOOD, damaged=("nedura/a.py",))), "a launch mends a torn tree"
