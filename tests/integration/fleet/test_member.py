"""Membership inside one process: claim, state, socket, drain, watchdogs, sd_notify."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import time
from pathlib import Path
from typing import Any

import attrs
import pytest

from nedura.errors import FleetError, RecordMissing, RefusedError, StoreError, UnsafePath
from nedura.fleet import (
    ClaimTaken,
    Draining,
    DrainSettings,
    FleetMember,
    MemberOptions,
    ask,
    lock_holder,
    look,
    write_marker,
)
from nedura.fleet.claim import Claim, PidRecord, read_pid_record
from nedura.fleet.statefile import read_state
from nedura.fleet.watchdog import LoopWatch, ShutdownWatch
from tests.kits.fleet import wait_async

FAST = DrainSettings(after_turn_s=5, drain_s=0, cron_s=0, grace_s=1)


def options(**more: Any) -> MemberOptions:
    base = MemberOptions(settings=FAST, watchdogs=False)
    return attrs.evolve(base, **more)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir(mode=0o700)
    return folder


def state(home: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads((home / "gateway_state.json").read_text())
    return value


async def test_a_member_claims_serves_and_leaves_clean(home: Path) -> None:
    async with FleetMember(home, options()) as member:
        assert lock_holder(home).pid == os.getpid()
        record = read_pid_record(home)
        assert record is not None
        assert (record.pid, record.nedura_home) == (os.getpid(), str(home))
        await wait_async(
            lambda: (home / "gateway_state.json").exists() and state(home)["gateway_state"] == "running"
        )
        answer = await ask(home, "identify")
        assert answer is not None
        assert (answer["pid"], answer["kernel_pid"], answer["nedura_home"]) == (
            os.getpid(),
            os.getpid(),
            str(home),
        )
        assert answer["code_version"] == member.code.code_version
        assert not (home / ".clean_shutdown").exists()
        for name in ("gateway.lock", "gateway.pid", "gateway_state.json", "gateway.sock"):
            assert (home / name).stat().st_mode & 0o777 == 0o600, name
    assert lock_holder(home).held is False
    assert not (home / "gateway.pid").exists()
    assert not (home / "gateway.sock").exists()
    assert (home / ".clean_shutdown").exists()
    assert (state(home)["gateway_state"], member.exit_code) == ("stopped", 0)


async def test_one_home_has_one_member(home: Path) -> None:
    async with FleetMember(home, options()):
        with pytest.raises(ClaimTaken) as caught:
            async with FleetMember(home, options(signals=False)):
                raise AssertionError("two members share a home")
        assert caught.value.holder.pid == os.getpid()
        assert await look(home) is not None, "the loser must not take the winner's socket away"
    async with FleetMember(home, options()):
        assert lock_holder(home).held


async def test_every_write_carries_the_code_and_the_newest_state(home: Path) -> None:
    (home / "gateway_state.json").write_text('{"pid": 1, "code_sha": "old", "gateway_state": "running"}')
    async with FleetMember(home, options()) as member:
        async with member.turn("chat a", model="m") as turn:
            turn.touch("search")
            await wait_async(lambda: state(home).get("active_agents") == 1)
            now = state(home)
            assert (now["pid"], now["code_sha"]) == (os.getpid(), member.code.code_sha)
            work = now["active_work"][0]
            assert (work["session"], work["model"], work["current_tool"]) == ("chat a", "m", "search")
        await wait_async(lambda: state(home)["active_agents"] == 0)
        first = state(home)["updated_at"]
        async with member.turn():
            pass
        await wait_async(lambda: state(home)["updated_at"] > first)


async def test_the_loop_never_waits_for_disk(home: Path) -> None:
    async with FleetMember(home, options()) as member:
        start = time.perf_counter()
        for _ in range(2000):
            async with member.turn():
                pass
        spent = time.perf_counter() - start
        await asyncio.sleep(0.3)
        assert spent < 1.0
        assert member._writer.writes < 20, "writes are folded together"


async def test_a_restart_waits_for_the_turn_and_exits_75(home: Path) -> None:
    async with FleetMember(home, options()) as member:
        done = asyncio.Event()

        async def work() -> str:
            async with member.turn("t"):
                await done.wait()
                return "answered"

        task = asyncio.create_task(work())
        await asyncio.sleep(0)
        os.kill(os.getpid(), 10)  # SIGUSR1
        await wait_async(lambda: member.draining)
        with pytest.raises(Draining):
            async with member.turn():
                pass
        assert not member.request_restart(), "a second request changes nothing"
        answer = await ask(home, "status")
        assert answer is not None
        assert (answer["gateway_state"], answer["active_agents"]) == ("draining", 1)
        done.set()
        await asyncio.wait_for(member.wait_stopped(), 5)
        assert await task == "answered"
    assert member.exit_code == 75
    assert (state(home)["gateway_state"], state(home)["restart_requested"]) == ("stopped", True)
    assert (home / ".clean_shutdown").exists()


async def test_a_turn_that_outlives_every_budget_is_interrupted(home: Path) -> None:
    settings = DrainSettings(after_turn_s=0.2, drain_s=0.1, cron_s=0, grace_s=2)
    async with FleetMember(home, options(settings=settings)) as member:
        cleaned = asyncio.Event()

        async def work() -> None:
            async with member.turn("t"):
                try:
                    await asyncio.sleep(60)
                finally:
                    cleaned.set()

        task = asyncio.create_task(work())
        await asyncio.sleep(0)
        start = time.monotonic()
        member.request_restart()
        await asyncio.wait_for(member.wait_stopped(), 5)
        assert 0.25 < time.monotonic() - start < 2
        assert cleaned.is_set()
        await asyncio.gather(task, return_exceptions=True)
    assert member.exit_code == 75
    assert not (home / ".clean_shutdown").exists(), "a forced drain was not clean"


async def test_a_wedged_turn_is_not_waited_for(home: Path) -> None:
    settings = DrainSettings(after_turn_s=30, wedged_s=0.2, grace_s=1, cron_s=0)
    async with FleetMember(home, options(settings=settings)) as member:

        async def work() -> None:
            async with member.turn("dead"):
                await asyncio.sleep(60)

        task = asyncio.create_task(work())
        await asyncio.sleep(0.3)
        member.request_restart()
        await asyncio.wait_for(member.wait_stopped(), 2)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("notice", ["planned-stop", "takeover", None])
async def test_sigterm_with_notice_is_0_and_without_is_1(home: Path, notice: str | None) -> None:
    async with FleetMember(home, options()) as member:
        holder = lock_holder(home)
        if notice is not None:
            assert holder.record is not None
            write_marker(home, notice, pid=os.getpid(), start_time=holder.record.start_time, now=time.time())  # type: ignore[arg-type]
        os.kill(os.getpid(), 15)
        await asyncio.wait_for(member.wait_stopped(), 5)
    assert member.exit_code == (0 if notice else 1)
    assert state(home)["gateway_state"] == ("stopped" if notice else "running")
    assert not list(home.glob(".gateway-*.json")), "a used notice is gone"


@pytest.mark.parametrize(
    "change",
    [{"pid": 4242}, {"start_time": 1}, {"now": 1.0}, {"home": "/elsewhere"}],
    ids=["another pid", "another start time", "expired", "another home"],
)
async def test_a_notice_for_somebody_else_is_no_notice(home: Path, change: dict[str, Any]) -> None:
    async with FleetMember(home, options()) as member:
        record = lock_holder(home).record
        assert record is not None
        facts: dict[str, Any] = {
            "pid": os.getpid(),
            "start_time": record.start_time,
            "now": time.time(),
            **change,
        }
        other = facts.pop("home", None)
        write_marker(home, "planned-stop", **facts)
        if other:
            path = home / ".gateway-planned-stop.json"
            path.write_text(path.read_text().replace(str(home), other))
        os.kill(os.getpid(), 15)
        await asyncio.wait_for(member.wait_stopped(), 5)
    assert member.exit_code == 1


async def test_pause_for_update_is_the_same_drain(home: Path) -> None:
    async with FleetMember(home, options()) as member:
        first = await ask(home, "pause-for-update")
        second = await ask(home, "pause-for-update")
        assert first is not None
        assert second is not None
        assert (first["pausing"], first["already_stopping"], first["pid"]) == (True, False, os.getpid())
        assert (second["pausing"], second["already_stopping"]) == (False, True)
        assert first["drain_timeout"] == FAST.budget_s
        await asyncio.wait_for(member.wait_stopped(), 5)
    assert member.exit_code == 75


async def test_rescan_says_when_there_is_nothing_to_rescan(home: Path) -> None:
    async with FleetMember(home, options()):
        assert (await ask(home, "rescan-profiles") or {})["multiplex"] is False
    found = {"served_profiles": ["a"], "added": ["a"], "removed": []}

    async def rescan() -> dict[str, Any]:
        return found

    async with FleetMember(home, options(rescan=rescan)):
        answer = await ask(home, "rescan-profiles") or {}
        assert (answer["multiplex"], answer["added"]) == (True, ["a"])


async def test_ready_stopping_and_watchdog_reach_the_manager(home: Path, tmp_path: Path) -> None:
    address = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(address))
        manager.setblocking(False)
        environ = {**os.environ, "NOTIFY_SOCKET": str(address), "WATCHDOG_USEC": "200000"}
        async with FleetMember(home, options(auto_ready=False, environ=environ)) as member:
            await asyncio.sleep(0.02)
            with pytest.raises(BlockingIOError):
                manager.recv(4096)  # not ready yet: no READY before the handlers and the socket exist
            member.ready()
            await asyncio.sleep(0.35)
        said = []
        while True:
            try:
                said.append(manager.recv(4096).decode())
            except BlockingIOError:
                break
    assert said[0].startswith("READY=1")
    assert "WATCHDOG=1" in said
    assert "STOPPING=1" in said


async def test_a_dead_loop_ends_the_process_with_75(home: Path) -> None:
    ended: list[int] = []
    async with FleetMember(home, options(hard_exit=ended.append)) as member:
        watch = LoopWatch(asyncio.get_running_loop(), member._notifier, member._on_wedged_loop, probe=0.05)
        runner = asyncio.to_thread(lambda: asyncio.run(watch.run()))
        task = asyncio.create_task(runner)
        await asyncio.sleep(0.2)
        assert not ended, "a live loop is not touched"
        time.sleep(0.6)
        await asyncio.wait_for(task, 5)
        record = read_state(home, time.time())
        assert ended == [75]
        assert record is not None
        assert (record.state, record.exit_reason) == ("degraded", "loop_liveness_watchdog")
        assert "Thread" in (home / "logs" / "gateway-loop-watchdog.log").read_text()


async def test_a_socket_answer_says_how_long_the_loop_stands_still(home: Path) -> None:
    async with FleetMember(home, options()):
        await asyncio.to_thread(_ask_in_thread, home)
        loop_blocked = asyncio.to_thread(_ages, home)
        task = asyncio.create_task(loop_blocked)
        await asyncio.sleep(0)
        time.sleep(0.7)
        ages = await task
    assert ages[0] < 0.2
    assert ages[-1] > 0.2, ages


def _ask_in_thread(home: Path) -> None:
    from nedura.fleet import ask_now

    assert ask_now(home, "identify")


def _ages(home: Path) -> list[float]:
    from nedura.fleet import ask_now

    found = []
    for _ in range(4):
        time.sleep(0.15)
        answer = ask_now(home, "identify")
        assert answer is not None, "a blocked loop does not keep the socket from answering"
        found.append(answer["loop_age_s"])
    return found


def test_the_shutdown_leash() -> None:
    import threading

    fired = threading.Event()
    watch = ShutdownWatch(fired.set)
    watch.arm(0.05)
    watch.arm(100)
    assert fired.wait(2)
    other = ShutdownWatch(lambda: pytest.fail("it was disarmed"))
    other.arm(0.1)
    other.disarm()
    time.sleep(0.2)


async def test_a_missing_profile_home_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(RecordMissing):
        async with FleetMember(tmp_path / "root" / "profiles" / "gone", options()):
            pass
    assert not (tmp_path / "root").exists()


async def test_a_body_that_fails_is_told(home: Path) -> None:
    member = FleetMember(home, options())
    with pytest.raises(ValueError, match="broken"):
        async with member:
            raise ValueError("broken")
    assert member.exit_code == 1
    assert (state(home)["exit_reason"], lock_holder(home).held) == ("ValueError", False)


@pytest.mark.parametrize("mode", [0o777, 0o770])
async def test_a_home_that_others_can_write_is_refused(home: Path, mode: int) -> None:
    home.chmod(mode)
    with pytest.raises(UnsafePath, match="chmod"):
        try:
            async with FleetMember(home, options()):
                pass
        except UnsafePath as error:
            raise UnsafePath(error.diagnostics()) from error
    assert not (home / "gateway.lock").exists()


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="another user's home needs root")
async def test_root_never_serves_another_users_home(home: Path) -> None:
    os.chown(home, 65534, 65534)
    with pytest.raises(RefusedError) as caught:
        async with FleetMember(home, options()):
            pass
    assert "sudo -u" in caught.value.advice
    assert [path.name for path in home.iterdir()] == [], "nothing of root's lies there"


async def test_junk_in_the_sockets_place_leaves_the_private_folder_and_the_files(home: Path) -> None:
    (home / "gateway.sock").mkdir()
    async with FleetMember(home, options()) as member:
        told = await ask(home, "identify")
        assert told is not None
        assert told["pid"] == os.getpid()
        await wait_async(
            lambda: (home / "gateway_state.json").exists() and state(home)["gateway_state"] == "running"
        )
        assert lock_holder(home).pid == os.getpid()
        assert member.active_turns == 0


async def test_a_cancelled_entry_leaves_no_claim(home: Path) -> None:
    for pause in (0.0, 0.001, 0.005):
        entry = asyncio.create_task(FleetMember(home, options()).__aenter__())
        await asyncio.sleep(pause)
        if entry.done():
            await entry.result().__aexit__(None, None, None)
            continue
        entry.cancel()
        await asyncio.gather(entry, return_exceptions=True)
        await asyncio.sleep(0.1)
        assert lock_holder(home).held is False


async def test_an_exit_that_is_cancelled_twice_lets_go_of_the_claim(home: Path) -> None:
    member = await FleetMember(home, options()).__aenter__()
    leaving = asyncio.create_task(member.__aexit__(None, None, None))
    await asyncio.sleep(0)
    for _ in range(2):
        leaving.cancel()
        await asyncio.sleep(0)
    await asyncio.gather(leaving, return_exceptions=True)
    assert lock_holder(home).held is False


def test_a_full_disk_is_a_named_error_and_leaves_no_lock(home: Path) -> None:
    record = PidRecord.of_this_process(home)
    claim = Claim(home, record)
    (home / "gateway.pid").mkdir()  # the second of the two writes
    with pytest.raises(StoreError):
        claim.take()
    assert not claim.held
    assert lock_holder(home).held is False


async def test_a_membership_is_used_once(home: Path) -> None:
    async with FleetMember(home, options()) as member:
        pass
    with pytest.raises(FleetError, match="once"):
        await member.__aenter__()


async def test_the_hosts_signal_handlers_come_back(home: Path) -> None:
    def mine(number: int, frame: object) -> None: ...

    before = signal.signal(signal.SIGTERM, mine)
    try:
        async with FleetMember(home, options()):
            assert signal.getsignal(signal.SIGTERM) is not mine
        assert signal.getsignal(signal.SIGTERM) is mine
    finally:
        signal.signal(signal.SIGTERM, before)


async def test_a_body_that_fails_is_no_clean_end(home: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        async with FleetMember(home, options()):
            raise ZeroDivisionError
    assert not (home / ".clean_shutdown").exists()


async def test_a_forced_drain_keeps_the_leash(home: Path) -> None:
    """Work in a thread outlives it, and then nobody but the leash ends the process, with the code that was asked for."""
    codes: list[int] = []
    settings = DrainSettings(after_turn_s=0, drain_s=0, cron_s=0, grace_s=0.1, watchdog_s=0.3)
    made = options(settings=settings, watchdogs=True, hard_exit=codes.append)
    async with FleetMember(home, made) as member, member.turn("stuck"):
        member.request_restart()
        try:
            await asyncio.wait_for(member.wait_stopped(), 5)
        except asyncio.CancelledError:
            asyncio.current_task().uncancel()  # type: ignore[union-attr]
            await member.wait_stopped()
    assert member.forced
    await wait_async(lambda: codes, 5)
    assert codes == [75]
