"""What a launch does about an unfinished update: retry with back-off, ask the fleet first, never cry wolf, never fail."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import attrs
import pytest

from nedura.installs import CodeIdentity, InstallPaths
from nedura.locks import FileLock
from nedura.product import NEDURA
from nedura.update.exempt import is_exempt
from nedura.update.launch import Launch
from nedura.update.ledger.lock import UpdateLock
from nedura.update.ledger.obligations import RestartObligation, TailObligation
from nedura.update.ledger.settle import settle_from_fleet
from tests.kits.pipeline import INSTALL_ID, NEW, OLD, ToyFleet, gateway


@attrs.define
class Desk:
    """One launch with a scripted finisher."""

    home: Path
    now: float = 1000.0
    code: int | None = 0
    clears: bool = True
    runs: int = 0
    lines: list[str] = attrs.field(factory=list)
    shared: Path | None = None

    @property
    def paths(self) -> InstallPaths:
        return InstallPaths(self.home, INSTALL_ID)

    @property
    def tail(self) -> TailObligation:
        return TailObligation(self.paths.folder)

    def finish(self, limit: float) -> int | None:
        self.runs += 1
        if self.clears:
            self.tail.clear()
        return self.code

    def launch(self) -> list[str]:
        self.lines.clear()
        Launch(
            root_home=self.home,
            install=self.paths,
            shared=self.shared or self.paths.folder,
            environ={**os.environ, "NEDURA_GATEWAY_LOCK_DIR": str(self.home / "locks")},
            say=self.lines.append,
            finish=self.finish,
            now=lambda: self.now,
        ).settle()
        return list(self.lines)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_nothing_owed_says_nothing(desk: Desk) -> None:
    assert desk.launch() == []
    assert desk.runs == 0


def test_the_tail_is_retried_at_once_and_cleared(desk: Desk) -> None:
    desk.tail.arm()
    assert len(desk.launch()) == 1
    assert desk.runs == 1
    assert desk.launch() == []


def test_retries_back_off_stop_after_six_and_say_so(desk: Desk) -> None:
    desk.tail.arm()
    desk.clears, desk.code = False, 1
    for expected in (1, 2, 2):
        desk.launch()
        assert desk.runs == expected
    for _ in range(10):
        desk.now += 15 * 60
        lines = desk.launch()
    assert desk.runs == 6
    assert lines == ["nedura: the last update is not finished; 6 retries failed. Run: nedura update"]


def test_what_takes_longer_goes_on_in_the_background(desk: Desk) -> None:
    desk.tail.arm()
    desk.code, desk.clears = None, False
    assert "background" in desk.launch()[-1]


def test_launches_take_turns(desk: Desk) -> None:
    desk.tail.arm()
    other = FileLock(desk.paths.folder / "source-completion-retry.lock")
    assert other.try_acquire()
    assert desk.launch() == []
    assert desk.runs == 0
    other.release()


def test_an_update_that_still_runs_is_left_to_itself(desk: Desk) -> None:
    """Also when only its second half is left, which holds nothing but the inherited install lock."""
    desk.tail.arm()
    lock = UpdateLock(desk.home, desk.paths.folder / ".nedura-update.lock", NEDURA, {})
    lock.acquire(desk.now)
    assert desk.launch() == []
    (desk.home / ".nedura-update-in-progress").unlink()
    assert desk.launch() == []
    assert desk.runs == 0
    lock.release()
    desk.launch()
    assert desk.runs == 1


def test_the_second_half_of_a_working_trees_update_is_seen_too(desk: Desk, tmp_path: Path) -> None:
    """Its lock is in the git folder; with the first half killed nothing else tells of it."""
    checkout = tmp_path / "checkout"
    (checkout / ".git").mkdir(parents=True)
    desk.shared = checkout
    desk.tail.arm()
    lock = UpdateLock(desk.home, checkout / ".git" / "nedura-update-holder", NEDURA, {})
    lock.acquire(desk.now)
    (desk.home / ".nedura-update-in-progress").unlink()
    assert desk.launch() == []
    assert desk.runs == 0
    lock.release()
    desk.launch()
    assert desk.runs == 1


def test_a_launch_beside_a_running_update_neither_warns_of_its_restart_nor_forgets_it(desk: Desk) -> None:
    """Armed before the move, it looks settled until the move: every gateway runs what is current then."""
    debt = owe(desk, "default")
    lock = UpdateLock(desk.home, desk.paths.folder / ".nedura-update.lock", NEDURA, {})
    lock.acquire(desk.now)
    assert desk.launch() == []
    assert debt.read() is not None
    lock.release()
    desk.launch()
    assert debt.read() is None


async def test_what_an_update_arms_while_the_fleet_is_asked_stays(desk: Desk) -> None:
    debt = owe(desk, "default")

    class Slow(ToyFleet):
        async def idle(self, profiles):  # type: ignore[no-untyped-def]
            debt.arm(now=2.0, owner="next", expected=NEW, inventory=[{"profile": "default"}])
            return await super().idle(profiles)

    await asked(desk, Slow((gateway("default", desk.home, 5, NEW),)))
    record = debt.read()
    assert record is not None
    assert record.owners == ("r", "next")


def test_an_update_may_start_while_a_launch_looks(desk: Desk) -> None:
    """A launch holds the install lock for a moment to see whether anybody has it: that refuses no update."""
    place = desk.paths.folder / ".nedura-update.lock"
    place.parent.mkdir(parents=True)
    look = FileLock(place)
    assert look.try_acquire()
    timer = threading.Timer(0.03, look.release)
    timer.start()
    lock = UpdateLock(desk.home, place, NEDURA, {})
    lock.acquire(desk.now)
    timer.join()
    lock.release()


@pytest.mark.parametrize(
    "record",
    [
        {"inventory": {"runtimes": ["x", 5]}},
        {"inventory": {"runtimes": [{"profile": ["a"]}]}},
        {"inventory": {"runtimes": {"a": 1}}},
        {"restarted": "x"},
        {"expected": [1]},
    ],
)
def test_a_record_of_odd_shape_is_owed_and_stops_no_launch(desk: Desk, record: dict[str, object]) -> None:
    debt = owe(desk, "default")
    debt.host_path.write_text(json.dumps({"version": 1, "started": 1, "pid": 1, **record}))
    (line,) = desk.launch()
    assert "was not wholly restarted. Run: nedura update" in line
    assert "nedura gateway restart --all" in line, (
        "the plain verb restarts one profile of the fleet that owes"
    )
    assert debt.read() is not None


def test_not_even_a_bug_in_the_look_stops_a_launch(desk: Desk) -> None:
    desk.tail.arm()

    def broken(limit: float) -> int:
        raise KeyError("token=abcdefgh123")

    Launch(
        root_home=desk.home,
        install=desk.paths,
        shared=desk.paths.folder,
        environ={"NEDURA_GATEWAY_LOCK_DIR": str(desk.home / "locks")},
        say=desk.lines.append,
        finish=broken,
        now=lambda: desk.now,
    ).settle()
    assert "could not be looked at: KeyError" in desk.lines[-1]
    assert "abcdefgh123" not in desk.lines[-1]


def test_a_home_that_cannot_be_used_does_not_stop_a_launch(desk: Desk) -> None:
    desk.paths.folder.parent.mkdir(parents=True)
    desk.paths.folder.write_text("")
    desk.launch()


@pytest.mark.parametrize(
    ("command", "as_json", "exempt"),
    [
        (None, False, True),
        ("update", False, True),
        ("gateway", False, True),
        ("fleet", True, True),
        ("fleet", False, False),
        ("chat", False, False),
    ],
)
def test_who_never_retries(command: str | None, as_json: bool, exempt: bool) -> None:
    assert is_exempt(command, as_json=as_json) is exempt


async def asked(desk: Desk, fleet: ToyFleet, expected: CodeIdentity = NEW) -> tuple[str, ...] | None:
    debt = RestartObligation(desk.home / "locks", desk.paths.folder, desk.home)
    return await settle_from_fleet(
        debt,
        root_home=desk.home,
        install_id=INSTALL_ID,
        expected=expected,
        product=NEDURA,
        environ={},
        fleet=fleet,
    )


def owe(desk: Desk, *profiles: str) -> RestartObligation:
    debt = RestartObligation(desk.home / "locks", desk.paths.folder, desk.home)
    debt.arm(now=1.0, owner="r", expected=NEW, inventory=[{"profile": name} for name in profiles])
    return debt


async def test_a_fleet_that_is_current_clears_the_warning(desk: Desk) -> None:
    debt = owe(desk, "default")
    fleet = ToyFleet((gateway("default", desk.home, 5, NEW),))
    assert await asked(desk, fleet) is None
    assert debt.read() is None


async def test_a_stale_gateway_is_named(desk: Desk) -> None:
    debt = owe(desk, "default", "alpha")
    fleet = ToyFleet(
        (gateway("default", desk.home, 5, NEW), gateway("alpha", desk.home / "profiles/alpha", 6, OLD))
    )
    assert await asked(desk, fleet) == ("alpha",)
    assert debt.read() is not None


async def test_an_empty_look_proves_nothing(desk: Desk) -> None:
    class Silent(ToyFleet):
        async def idle(self, profiles):  # type: ignore[no-untyped-def]
            return frozenset()

    debt = owe(desk, "default")
    assert await asked(desk, Silent()) == ("default",)
    assert debt.read() is not None


async def test_a_gateway_that_provably_does_not_run_owes_nothing(desk: Desk) -> None:
    debt = owe(desk, "default")
    assert await asked(desk, ToyFleet()) is None
    assert debt.read() is None


async def test_a_corrupt_record_stays_armed(desk: Desk) -> None:
    debt = owe(desk, "default")
    debt.host_path.write_bytes(b"{torn")
    assert await asked(desk, ToyFleet((gateway("default", desk.home, 5, NEW),))) == ()
    assert debt.read() is not None
