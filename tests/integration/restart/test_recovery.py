from __future__ import annotations

import asyncio
import json
from pathlib import Path

import attrs
import pytest

from nedura.fleet.restart_recovery import Recovered, _believed, recover, recovery_limit, run_recovery
from tests.integration.restart.daemon import identity
from tests.integration.restart.manual import add_profile, make_root, running, serving
from tests.unit.restart.fakes import NEW, OLD, FakeFleet, failing, gateway


async def test_a_fresh_process_finishes_what_the_phase_left(tmp_path: Path) -> None:
    root = make_root(tmp_path)
    homes = [root, add_profile(root, "a")]
    async with running(root, *homes) as members:
        (root / "version").write_text("2")
        found = await run_recovery(members, identity("2"), timeout=40)
        assert found.complete
        assert set(found.verified) == {"default", "a"}
        for home, before in zip(homes, members, strict=True):
            assert (await serving(home)).pid != before.pid


async def test_what_is_current_already_is_verified_and_not_restarted() -> None:
    done, owed = gateway("a", 1, code=NEW), gateway("b", 2)
    fleet = FakeFleet(done, owed)
    found = await recover([done, owed], NEW, parts=fleet.parts())
    assert set(found.verified) == {"a", "b"}
    assert not any(line == "SIGUSR1 1" for line in fleet.log)


async def test_a_member_that_came_back_meanwhile_is_the_one_that_is_drained() -> None:
    before = gateway("a", 1)
    fleet = FakeFleet(attrs.evolve(before, pid=7, start_time=70))
    found = await recover([before], NEW, parts=fleet.parts())
    assert "SIGUSR1 7" in fleet.log
    assert found.complete


async def test_only_what_is_verified_counts() -> None:
    members = [gateway("a", 1), gateway("b", 2, supervisor="desktop"), gateway("c", 3, ancestor=True)]
    fleet = FakeFleet(*members, starts=OLD)
    fleet.on_force = failing("boot")
    found = await recover(members, NEW, parts=fleet.parts())
    assert not found.complete
    assert found.verified == ()
    assert set(found.failed) == {"a"}
    assert set(found.skipped) == {"b"}
    assert found.relaunch_attempted == ("c",)


async def test_one_that_dies_in_its_watch_is_not_verified() -> None:
    members = [gateway("a", 1), gateway("b", 2)]
    fleet = FakeFleet(*members)
    asyncio.get_running_loop().call_later(0.15, lambda: fleet.serving.pop(members[0].home))
    found = await recover(members, NEW, parts=fleet.parts(), settle=0.4)
    assert (found.verified, set(found.failed)) == (("b",), {"a"})


@pytest.mark.parametrize(
    ("out", "status"),
    [
        (b"", 0), (b"nonsense", 0), (b"[]", 0), (b"{}", 0),
        (json.dumps({"requested": ["a"], "verified": ["a"], "relaunch_attempted": [], "failed": {}, "skipped": {}}).encode(), 1),
        (json.dumps({"requested": ["b"], "verified": ["b"], "relaunch_attempted": [], "failed": {}, "skipped": {}}).encode(), 0),
        (json.dumps({"requested": ["a"], "verified": ["a", "x"], "relaunch_attempted": [], "failed": {}, "skipped": {}}).encode(), 0),
    ],
)  # fmt: skip
def test_an_answer_that_proves_nothing_is_no_answer(out: bytes, status: int) -> None:
    found = _believed(out, ("a",), status)
    assert found.verified == ()
    assert found.requested == ("a",)
    assert not found.complete


async def test_a_process_that_cannot_be_started_or_hangs_proves_nothing(tmp_path: Path) -> None:
    member = gateway("a", 1)
    missing = await run_recovery([member], NEW, interpreter=str(tmp_path / "none"))
    assert not missing.complete
    assert "could not be started" in missing.failed["a"]
    slow = tmp_path / "slow"
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    late = await run_recovery([member], NEW, interpreter=str(slow), timeout=0.3)
    assert not late.complete
    assert Recovered().complete
    assert (recovery_limit(1), recovery_limit(10)) == (180.0, 930.0)
