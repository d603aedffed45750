"""The second half of an update with scripted parts: order, isolation of steps, what is cleared and what stays owed."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Collection
from pathlib import Path
from typing import Any

import attrs
import pytest

from nedura.fleet.restart_events import MemberFailed
from nedura.product import NEDURA
from nedura.update.completion.completion_parts import CompletionParts, Steps
from nedura.update.completion.request import CompletionRequest
from nedura.update.completion.second_half import Completion, FirstMemberFailed
from nedura.update.events import StepDone
from nedura.wire import Event
from tests.kits.pipeline import INSTALL_ID, NEW, OLD, ToyFleet, gateway


async def works(name: str) -> AsyncGenerator[Event, None]:
    yield StepDone(name=name)


async def breaks(error: Exception) -> AsyncGenerator[Event, None]:
    yield StepDone(name="begun")
    raise error


@attrs.define
class Case:
    home: Path
    fleet: ToyFleet
    steps: Any = ()

    def make(self, **request: Any) -> Completion:
        fields: dict[str, Any] = {
            "update_id": "run",
            "nonce": "n",
            "source": str(self.home),
            "root_home": str(self.home),
            "home": str(self.home),
            "install_id": INSTALL_ID,
            "before": OLD,
            "expected": NEW,
        }
        environ = {**os.environ, "NEDURA_GATEWAY_LOCK_DIR": str(self.home / "locks")}

        def upkeep(completion: Completion) -> Steps:
            return [("maintenance", self.steps)] if self.steps else []

        made = Completion(
            request=CompletionRequest(**{**fields, **request}),
            product=NEDURA,
            parts=CompletionParts(fleet=self.fleet, upkeep=upkeep),
            environ=environ,
        )
        made.tail.arm()
        made.debt.arm(now=1.0, owner="run", expected=NEW, inventory=[{"profile": "default"}])
        return made


@pytest.fixture
def case(tmp_path: Path) -> Case:
    home = tmp_path / "home"
    home.mkdir(0o700)
    return Case(home, ToyFleet((gateway("default", home, 11), gateway("alpha", home / "profiles/alpha", 12))))


async def run(completion: Completion) -> list[Event]:
    return [event async for event in completion.events()]


async def test_everything_works_and_nothing_stays_owed(case: Case) -> None:
    completion = case.make()
    events = await run(completion)
    assert case.fleet.restarted == ["default", "alpha"]
    assert completion.followups == []
    assert not completion.tail.is_armed()
    assert completion.debt.read() is None
    assert completion.finished().exit_code == 0
    kinds = [event.kind for event in events]
    assert kinds[0] == "writer_changed"
    assert kinds.index("member_restarted") < kinds.index("matrix")


async def test_a_step_that_breaks_is_a_follow_up_and_the_others_go_on(case: Case) -> None:
    case.steps = [
        ("launchers", breaks(OSError(28, "No space left on device"))),
        ("profile_sync", works("profile_sync")),
        ("config_migration", breaks(RuntimeError("x"))),
    ]
    completion = case.make()
    events = await run(completion)
    assert completion.followups == ["launchers", "config_migration"]
    assert any(isinstance(event, StepDone) and event.name == "profile_sync" for event in events)
    assert case.fleet.restarted == ["default", "alpha"]
    assert completion.tail.is_armed(), "a tail follow-up keeps the tail"
    assert completion.debt.read() is None, "the fleet itself is verified"
    finished = completion.finished()
    assert (finished.outcome, finished.exit_code) == ("success", 0)


async def test_a_stale_gateway_keeps_the_restart_owed_with_its_inventory(case: Case) -> None:
    case.fleet.failing = frozenset({"alpha"})
    completion = case.make()
    await run(completion)
    assert completion.followups == ["gateway_restart"]
    assert not completion.tail.is_armed(), "the tail itself is done"
    record = completion.debt.read()
    assert record is not None
    assert [row["profile"] for row in record.inventory or ()] == ["alpha"]
    assert completion.finished().exit_code == 0


async def test_a_fleet_that_cannot_be_looked_at_keeps_the_restart_owed(case: Case) -> None:
    class Blind(ToyFleet):
        async def collect(self):  # type: ignore[no-untyped-def]
            raise OSError("no /proc")

    case.fleet = Blind()
    completion = case.make(first_member=False)
    await run(completion)
    assert "gateway_restart" in completion.followups
    assert completion.debt.read() is not None


async def test_the_first_member_that_fails_stops_everything_before_maintenance(case: Case) -> None:
    class Failing(ToyFleet):
        async def first(self, runtimes, expected):  # type: ignore[no-untyped-def]
            yield MemberFailed(profile="default", pid=11, check="version", reason="runs the old one")

    case.fleet = Failing(case.fleet.runtimes)
    case.steps = [("launchers", works("launchers"))]
    completion = case.make()
    seen: list[Event] = []
    with pytest.raises(FirstMemberFailed) as caught:
        seen.extend([event async for event in completion.events()])
    await case.steps[0][1].aclose()
    assert caught.value.check == "version"
    assert caught.value.member["profile"] == "default"
    assert not any(isinstance(event, StepDone) for event in seen)
    assert completion.tail.is_armed()
    assert completion.debt.read() is not None


async def test_no_gateway_restart_leaves_it_owed(case: Case) -> None:
    completion = case.make(options={"no_gateway_restart": True})
    events = await run(completion)
    assert case.fleet.restarted == []
    assert any(event.kind == "skipped" for event in events)
    assert completion.debt.read() is not None
    assert not completion.tail.is_armed()


async def test_a_second_rerun_restarts_nobody(case: Case) -> None:
    await run(case.make())
    case.fleet.restarted.clear()
    completion = case.make(changed=False, first_member=False)
    await run(completion)
    assert case.fleet.restarted == []
    assert completion.debt.read() is None


async def test_the_exit_code_file_is_written_before_the_fleet_restarts(case: Case) -> None:
    path = case.home / ".update_exit_code"
    seen = []

    class Watching(ToyFleet):
        async def rest(self, runtimes, expected, skip):  # type: ignore[no-untyped-def]
            seen.append(path.read_text().strip())
            async for event in ToyFleet.rest(self, runtimes, expected, skip):
                yield event

    case.fleet = Watching(case.fleet.runtimes)
    await run(case.make(options={"gateway_mode": True}, first_member=False))
    assert seen == ["0"]


async def test_a_failed_environment_is_the_dependencies_follow_up(case: Case) -> None:
    completion = case.make(
        notes={"pm_receipt": {"ok": False, "reason": "no matching wheel"}},
        layout="checkout",
        first_member=False,
    )
    events = await run(completion)
    assert completion.followups == ["dependencies"]
    assert completion.tail.is_armed()
    (stage,) = [
        event for event in events if event.kind == "stage_finished" and getattr(event, "stage", "") == "deps"
    ]
    assert getattr(stage, "outcome", "") == "failed"


async def test_a_user_action_of_the_old_half_makes_it_partial(case: Case) -> None:
    completion = case.make(receipt={"user_action": {"step": "local_changes", "reason": "conflict"}})
    await run(completion)
    finished = completion.finished()
    assert (finished.outcome, finished.exit_code) == ("partial", 1)


@pytest.mark.parametrize("runs", [False, True])
async def test_a_damaged_restart_record_of_an_install_without_gateways_is_settled_by_every_claim(
    case: Case, runs: bool
) -> None:
    """Else the warning would never end: nobody is left who could be restarted (a claim that is held keeps it armed)."""
    case.home.joinpath("profiles/alpha").mkdir(parents=True)

    class Empty(ToyFleet):
        async def idle(self, profiles: Collection[str]) -> frozenset[str]:
            return frozenset(profiles) - ({"alpha"} if runs else set())

    case.fleet = Empty()
    completion = case.make()
    completion.debt.host_path.write_text("{torn")
    await run(completion)
    assert (completion.debt.read() is None) is not runs
    assert completion.followups == (["gateway_restart"] if runs else [])
