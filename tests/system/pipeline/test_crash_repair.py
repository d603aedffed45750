"""A repair that is killed every time stops after its limit and says so; a person's update still heals (issue 8, facts/update.md 8.5)."""

from __future__ import annotations

import subprocess
import time

import psutil
import pytest

from nedura.update.ledger.obligations import MAX_ATTEMPTS, TailObligation
from tests.crash.harness import Harness
from tests.crash.host import PROFILES, make_host
from tests.crash.look import current_of, look
from tests.crash.plan import Kill
from tests.crash.rules import after_update
from tests.crash.strike import kill_tree, sessions_of, strike
from tests.kits.site import World


def _repairs(process: psutil.Process) -> bool:
    try:
        return "--finish-owed" in process.cmdline()
    except psutil.Error:
        return False


def _launch_that_dies(world: World) -> bool:
    """One launch, killed with all that it has started as soon as it repairs; whether it came to that."""
    launch = subprocess.Popen(
        [str(world.site.launcher), "fleet", "status"],
        env=world.environ,
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    root = psutil.Process(launch.pid)
    while launch.poll() is None:
        if any(_repairs(one) for one in sessions_of(root).values()):
            kill_tree(lambda: sessions_of(root))
            launch.wait(5)
            return True
        time.sleep(0.005)
    return False


@pytest.mark.timeout(200)
def test_a_repair_that_is_killed_every_time_stops_after_its_limit_and_says_so() -> None:
    with make_host("sealed", disk=False) as host:
        harness, world = Harness(host), host.world
        harness.prepare()
        old, commit = current_of(world), harness.commit()
        strike(host, Kill(seed=0, how="stage", whom="tree", stage="maintenance"))
        tail = TailObligation(world.site.paths.folder)
        assert tail.is_armed()
        for tried in range(1, MAX_ATTEMPTS + 1):
            assert _launch_that_dies(world), f"launch {tried} tries"
            assert tail.attempts().count == tried
            tail.attempts_path.write_text(f"{tried} {time.time() - 3600:.0f}\n")  # an hour goes by
        said = world.command("fleet", "status")
        assert f"{MAX_ATTEMPTS} retries failed. Run: nedura update" in said.stderr
        assert tail.attempts().count == MAX_ATTEMPTS, "no further try"
        assert not _launch_that_dies(world)
        host.calm()
        before = world.pids(PROFILES)
        assert strike(host, None).code == 0
        facts = look(world, old=old, commit=commit)
        assert after_update(facts, code=0, kills=1 + MAX_ATTEMPTS, restarted=0) == []
        assert not tail.attempts_path.exists()
        pids = world.pids(PROFILES)
        assert set(pids) == set(before)
        assert "retries failed" not in world.command("fleet", "status").stderr
