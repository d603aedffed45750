"""A seeded share of the crash proof; the long runs are by hand (`./run crash`, docs/reliability.md)."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import attrs
import pytest

from tests.crash.follow import Follower
from tests.crash.harness import Harness
from tests.crash.host import full_host_lacks, make_host
from tests.crash.plan import KINDS, STAGES, WHATS, Kill, Measured, Round, cycle_of, plan_round
from tests.crash.rules import Facts, after_kill, after_launch, after_update, ended_right
from tests.crash.strike import heed_ctrl_c, traced_by
from tests.crash.trace import START, reach_of

ROOT = Path(__file__).resolve().parents[3]
SHARE = 3
"""Two seeds in a row whose first strikes are a kill and a power cut."""


@pytest.mark.timeout(150)
def test_a_killed_parent_leaves_nothing_broken() -> None:
    """On any machine: no file system and no systemd of its own."""
    with make_host("sealed", disk=False) as host:
        harness = Harness(host)
        harness.prepare()
        kill = Kill(seed=2, how="stage", whom="parent", stage="first_member")
        assert harness.run(Round(kills=(kill,), launches=(None,))) == [], kill.name
        assert harness.pairs["kill parent"].keys() <= set(STAGES["sealed"])
        assert harness.by_kind == {"kill parent": 1}


@pytest.mark.root
@pytest.mark.system
@pytest.mark.timeout(300)
def test_kills_and_power_cuts_beside_a_real_systemd_leave_nothing_broken() -> None:
    """A parent that dies, and a power cut at an fsync of the new generation."""
    lacks = full_host_lacks()
    if lacks:
        pytest.skip(f"needs {lacks}")
    command = [sys.executable, "-m", "tests.crash", "--host", "full", "--json"]
    command += ["--seed", str(SHARE), "--runs", "2", "--only", "power", "--only", "kill"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    last = json.loads(done.stdout.splitlines()[-1])
    assert done.returncode == 0, done.stdout + done.stderr
    assert (last["kind"], last["runs"], last["violations"]) == ("crash_finished", 2, 0)
    assert last["by_kind"]["power"] >= 1, done.stdout
    assert last["by_kind"]["kill tree"] >= 1, done.stdout


def test_whoever_is_not_traced_is_never_part_of_the_struck_tree() -> None:
    """An update that dies at its very first call has no tracer yet: 0 is what every other process says, too."""
    assert traced_by(0) == {}


def test_only_the_planned_call_counts_as_struck(tmp_path: Path) -> None:
    """The update ends its own probe by SIGKILL; each thread is counted by itself."""
    trace = Follower(tmp_path / "trace", "fsync", 2)
    trace.path.write_text(
        "7 fsync(3) = 0\n8 fsync(3) = 0\n8 rename(1) = 0\n9 +++ killed by SIGKILL +++\n8 fsync(4"
    )
    trace.look()
    assert not trace.struck
    with trace.path.open("a") as file:
        file.write(" <unfinished ...>\n8 +++ killed by SIGKILL +++\n")
    trace.look()
    assert (trace.struck, trace.bystander, trace.failed) == (True, False, False)


def test_a_gateway_that_is_struck_instead_of_the_updater_is_known(tmp_path: Path) -> None:
    trace = Follower(tmp_path / "trace", "fsync", 1)
    trace.path.write_text(
        '7 execve("bin/nedura", ["bin/nedura", "gateway", "run"], 0x7) = 0\n'
        "7 fsync(3) = ?\n7 +++ killed by SIGKILL +++\n"
    )
    trace.look()
    assert (trace.struck, trace.bystander) == (True, True)


def test_an_update_in_the_background_of_a_shell_can_be_struck_by_ctrl_c() -> None:
    """Such a shell lets its jobs ignore SIGINT, which they hand on."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        heed_ctrl_c()
        child = [sys.executable, "-c", "import signal; print(signal.getsignal(2) is signal.SIG_IGN)"]
        said = subprocess.run(child, capture_output=True, text=True, check=True).stdout
    finally:
        signal.signal(signal.SIGINT, before)
    assert said == "False\n"


def _measured() -> Measured:
    calls = dict.fromkeys(("fsync", "rename", "write"), (1, 2, 3))
    reach = {stage: {START: calls} for stage in {*STAGES["sealed"], *STAGES["checkout"]}}
    return Measured(seconds=2.0, lengths=dict.fromkeys(reach, 0.2), reach=reach)


@pytest.mark.parametrize("layout", ["sealed", "checkout"])
def test_as_many_seeds_as_there_are_pairs_hit_every_kind_in_every_stage(layout: str) -> None:
    measured, stages = _measured(), set(STAGES[layout])
    cycle = cycle_of(layout, measured, disk=True)
    assert len(cycle) <= 200
    plans = [plan_round(seed, measured, layout=layout, disk=True) for seed in range(77, 77 + len(cycle))]
    assert plans == [
        plan_round(seed, measured, layout=layout, disk=True) for seed in range(77, 77 + len(cycle))
    ]
    aimed = {(plan.kills[0].what, plan.kills[0].whom, plan.kills[0].stage) for plan in plans}
    late = {"build", "first_member", "maintenance", "restart", "verify"}
    assert aimed == {
        (what, whom, stage)
        for what, whom, _ in KINDS
        for stage in (stages & late if whom == "child" else stages)
    }
    assert {kill.how for plan in plans for kill in plan.kills} == {"instant", "call", "stage"}
    assert {len(plan.kills) for plan in plans} == {1, 2, 3, 4}
    assert any(plan.launches[0] for plan in plans)
    assert not all(plan.launches[0] for plan in plans)
    assert all(kill.after < 0.2 for plan in plans for kill in plan.kills), "within its stage"


def test_what_a_machine_cannot_do_is_not_planned() -> None:
    plain = {plan_round(seed, Measured()).kills[0].what for seed in range(300)}
    assert plain == {"kill", "sigint"}, "without a disk and a tracer"
    power = {
        kill.what
        for seed in range(50)
        for kill in plan_round(seed, _measured(), disk=True, only=["power"]).kills[:1]
    }
    assert power == {"power"}
    assert {what for what, _, _ in KINDS} == set(WHATS)


def test_a_trace_says_which_number_strikes_where() -> None:
    """The first thread that gets as far is struck, whoever it is; numbers may also count from a stage on."""
    told = r'7 write(1, "{\"kind\":\"stage_started\",\"stage\":\"%s\",\"copy\"", 90) = 90'
    lines = ["7 fsync(3) = 0", told % "plan", "8 fsync(4) = 0", "8 fsync(4) = 0", told % "commit"]
    lines += ["7 fsync(3) = 0", "7 renameat2(1) = 0", "7 fsync(3 <unfinished ...>", "7 close(3) = 0"]
    reach = reach_of("\n".join(lines))
    assert reach["start"]["start"] == {"fsync": (1,)}
    assert reach["plan"]["start"] == {"write": (1,), "fsync": (2,)}
    assert reach["commit"]["start"] == {"write": (2,), "fsync": (3,), "rename": (1,)}
    assert reach["commit"]["plan"]["rename"] == (1,)
    assert "fsync" not in reach["commit"]["plan"], "thread 8 has made two already"
    assert reach["commit"]["commit"]["fsync"] == (1, 2)


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
        {"source": ["HEAD.lock"]},
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
    before = attrs.evolve(GOOD, current="000001", members={"default": (True, "000001")}, receipts=[])
    moved = attrs.evolve(
        GOOD, receipts=[{"update_id": "r", "outcome": "running"}], members={"default": (True, "000001")}
    )
    assert after_kill(attrs.evolve(moved, tail=True, debt=True), before=before, run="r") == []
    assert after_kill(attrs.evolve(moved, debt=True), before=before, run="r"), "the tail is not owed"
    assert after_kill(attrs.evolve(moved, tail=True), before=before, run="r"), "the restart is not owed"
    lies = attrs.evolve(GOOD, current="000001")
    assert after_kill(lies, before=before, run="r"), "success is claimed, but the code did not move"
    cut = after_kill(attrs.evolve(moved, tail=True), before=before, run="r", cut=True)
    assert cut == [], "nobody runs old code"
    again = attrs.evolve(moved, members=GOOD.members)
    assert after_kill(again, before=again, run="r") == [], "nothing was owed and nothing is"
    assert after_kill(again, before=attrs.evolve(again, tail=True), run="r"), "a tail that went with a kill"
    verified: dict[str, Any] = {"update_id": "r", "outcome": "running"}
    verified["stages"] = [{"name": "verify", "outcome": "success"}]
    tidies = attrs.evolve(again, receipts=[verified])
    assert after_kill(tidies, before=before, run="r") == [], "only tidying up was left"
    owes = attrs.evolve(again, receipts=[{**verified, "followups": [{"step": "builds"}]}])
    assert after_kill(owes, before=before, run="r"), "a follow-up that nothing owes"
    assert after_kill(again, before=before, run="r"), "not verified"
    assert after_kill(again, before=before, run="r", ended=True) == [], "only its receipt was refused"
    down = attrs.evolve(tidies, members={"default": (False, "")})
    assert after_kill(down, before=down, run="r") == [], "it was down before"
    assert after_kill(down, before=tidies, run="r"), "it went down"
    assert after_launch(GOOD) == []
    assert after_launch(attrs.evolve(GOOD, damaged=("nedura/a.py",))), "a launch mends a torn tree"


def _right(kind: str, code: int | None, **facts: Any) -> list[str]:
    asked: dict[str, Any] = {"moved": False, "there": False, "receipt": None, "at": 1000.0, "said": ""}
    return ended_right(kind, code, **{**asked, **facts})


def test_an_exit_code_that_lies_is_noticed() -> None:
    late = {"outcome": "success", "finished_at": "1970-01-01T00:16:42Z"}
    at_once = {"outcome": "success", "finished_at": "1970-01-01T00:16:40.1Z"}
    assert _right("sigint", 0, moved=True, receipt=late), "2 s after Ctrl-C"
    assert _right("sigint", 0, moved=True, receipt=at_once) == [], "it had ended"
    assert _right("sigint", 130, receipt={"outcome": "interrupted"}) == []
    assert _right("sigint", -2) == [], "a shell says 130"
    assert _right("sigint", 130, receipt=late, said='{"kind": "update_started"}')
    assert _right("sigint", 1) == [], "in Python's own start"
    assert _right("sigint", 1, said='{"kind": "update_started"}')
    assert _right("full", 1) == []
    assert _right("full", 1, moved=True), "nothing after the commit point fails an update"
    assert _right("eio", 0), "success without a move"
    assert _right("eio", 0, there=True) == []
    assert _right("kill child", 0, moved=True) == []
    assert _right("kill child", 1, moved=True)
    assert _right("kill tree", None) == []
    assert _right("", 0) == []
    assert _right("", 1)
    assert _right("power", None, said="Traceback (most recent call last):\n") == [], "its disk is gone"
    assert _right("full", 1, said="Traceback (most recent call last):\n")
