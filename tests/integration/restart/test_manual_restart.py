from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from pathlib import Path

import attrs
import psutil
import pytest

from nedura.fleet import relaunch
from nedura.fleet.claim import LOCK_NAME, PidRecord
from nedura.fleet.inventory import collect, look
from nedura.fleet.matrix import judge
from nedura.fleet.model import Fleet, Runtime
from nedura.fleet.processes import system_processes
from nedura.fleet.restart import RestartParts
from nedura.fleet.restart_events import MemberFailed, MemberRestarted, RestartEvent
from nedura.fleet.rolling import restart_rest, roll
from nedura.fleet.socketpath import find_socket
from nedura.fleet.statefile import read_state
from nedura.fleet.supervisors.manual import ManualSupervisor
from nedura.fleet.takeover import StopLimits, stop_member
from nedura.installs import CodeIdentity
from nedura.locks import FileLock
from tests.integration.restart.daemon import identity
from tests.integration.restart.manual import add_profile, make_root, running, serving
from tests.kits.fleet import SLOW, gateway


def parts(**more: object) -> RestartParts:
    values = {
        "supervisors": {"manual": ManualSupervisor()},
        "look": look,
        "tick": 0.1,
        "serving_timeout": 10.0,
        **more,
    }
    return RestartParts(**values)  # type: ignore[arg-type]


async def rolled(
    members: list[Runtime], expected: CodeIdentity | None, *, sealed: bool = False, **more: object
) -> list[RestartEvent]:
    return [event async for event in roll(members, expected, parts=parts(**more), sealed=sealed, settle=1.0)]


async def test_members_started_by_hand_finish_their_turns_and_come_back(tmp_path: Path) -> None:
    root = make_root(tmp_path)
    homes = [root, add_profile(root, "a"), add_profile(root, "b")]
    (root / "command").write_text(f"while [ ! -e {root}/go ]; do sleep 0.05; done")
    async with running(root, *homes) as members:
        (root / "version").write_text("2")
        (root / "command").write_text("")
        events = []
        async for event in restart_rest(members, identity("2"), parts=parts()):
            events.append(event)
            if event.kind == "drain_waiting":
                (root / "go").touch()
        done = {event.profile: event for event in events if isinstance(event, MemberRestarted)}
        assert set(done) == {"default", "a", "b"}
        assert any(event.kind == "drain_waiting" and "1 running turn" in event.copy for event in events)
        for home, before in zip(homes, members, strict=True):
            after = await serving(home)
            assert after.pid == done[after.profile].pid != before.pid
            assert after.code.generation == "000002"
            process = psutil.Process(after.pid)
            assert os.getsid(after.pid) == after.pid, "an own session"
            assert process.environ()["NEDURA_HOME"] == str(home)
            assert process.ppid() != os.getpid()
            assert 0 < done[after.profile].downtime_ms < 10_000


async def test_a_gateway_started_by_hand_comes_back_with_its_handler_and_force_but_without_replace(
    tmp_path: Path,
) -> None:
    home = tmp_path / "home"
    with gateway(home, "--force", "--replace", "-v") as daemon:
        member = attrs.evolve(await serving(home), supervisor="manual")
        try:
            events = [
                event
                async for event in restart_rest([member], daemon.code(), parts=parts(serving_timeout=40.0))
            ]
            assert any(isinstance(event, MemberRestarted) for event in events), [
                event.copy for event in events
            ]
            after = await serving(home, not_pid=daemon.pid)
            argv = psutil.Process(after.pid).cmdline()
            assert argv[argv.index("gateway") :] == ["gateway", "run", "-v", "--force", "--handler", SLOW]
            (_, *words) = await asyncio.to_thread(daemon.chat, "2")
            assert words[-1]["done"], "the handler answers, not the model"
        finally:
            found = await look(home)
            if found is not None and found.pid != daemon.pid:
                psutil.Process(found.pid).kill()


async def test_a_member_that_cannot_drain_is_ended_and_replaced(tmp_path: Path) -> None:
    root = make_root(tmp_path)
    async with running(root, root) as (member,):
        os.kill(member.pid, signal.SIGSTOP)
        try:
            (root / "version").write_text("2")
            stuck = parts(look=look)
            supervisor = stuck.supervisors["manual"]
            await supervisor.arm(member)
            await supervisor.force(member, lambda words: None)
            after = await serving(root, not_pid=member.pid)
            assert after.code.generation == "000002"
        finally:
            if psutil.pid_exists(member.pid):
                os.kill(member.pid, signal.SIGCONT)


@pytest.mark.parametrize(("fault", "check"), [("boot", "boot"), ("version", "version"), ("dies", "settle")])
async def test_a_bad_build_ends_a_sealed_roll_at_its_first_member(
    tmp_path: Path, fault: str, check: str
) -> None:
    root = make_root(tmp_path)
    homes = [root, add_profile(root, "a"), add_profile(root, "b")]
    async with running(root, *homes) as members:
        (root / "version").write_text("2")
        (root / "fault").write_text(fault)
        events = await rolled(members, identity("2"), sealed=True)
        (failed,) = [event for event in events if isinstance(event, MemberFailed)]
        assert failed.check == check
        assert sum(event.kind == "restart_started" for event in events) == 1
        for home, before in list(zip(homes, members, strict=True))[1:]:
            assert (await serving(home)).pid == before.pid


async def test_no_second_watcher_for_one_incarnation(tmp_path: Path) -> None:
    root = make_root(tmp_path)
    async with running(root, root) as (member,):
        supervisor = ManualSupervisor()
        await supervisor.arm(member)
        await supervisor.arm(member)
        watchers = [
            process for process in psutil.process_iter(["cmdline"])
            if str(Path(relaunch.__file__)) in (process.info["cmdline"] or [])
            and process.uids().real == os.getuid() and os.getsid(process.pid) == process.pid
        ]  # fmt: skip
        mine = [
            process
            for process in watchers
            if process.pid in {watcher[0] for watcher in supervisor._watchers.values()}
        ]
        assert len(mine) == 1
        for process in mine:
            process.kill()


async def run_watcher(request: dict[str, object]) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-I", "-S", "-B", relaunch.__file__,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    out, _ = await process.communicate(json.dumps(request).encode())
    return process.returncode or 0, out.decode()


async def test_the_watcher_starts_nothing_beside_a_process_that_stays(tmp_path: Path) -> None:
    mark, log = tmp_path / "started", tmp_path / "log"
    stays = await asyncio.create_subprocess_exec("sleep", "30")
    try:
        start_time = int(Path(f"/proc/{stays.pid}/stat").read_text().rpartition(")")[2].split()[19])
        status, out = await run_watcher({
            "pid": stays.pid, "start_time": start_time, "timeout": 0.3, "argv": ["/usr/bin/touch", str(mark)],
            "env": {}, "cwd": str(tmp_path), "log": str(log),
        })  # fmt: skip
        assert status == 0
        watcher = int(out.split()[0])
        for _ in range(100):
            if not psutil.pid_exists(watcher) or psutil.Process(watcher).status() == psutil.STATUS_ZOMBIE:
                break
            await asyncio.sleep(0.05)
        assert not mark.exists()
        assert "still running" in log.read_text()
    finally:
        stays.kill()
        await stays.wait()


async def test_a_reused_pid_does_not_hold_the_watcher_up(tmp_path: Path) -> None:
    mark = tmp_path / "started"
    await run_watcher({
        "pid": os.getpid(), "start_time": 1, "timeout": 5, "argv": ["/usr/bin/touch", str(mark)],
        "env": {}, "cwd": str(tmp_path), "log": str(tmp_path / "log"),
    })  # fmt: skip
    async with asyncio.timeout(5):
        while not mark.exists():
            await asyncio.sleep(0.02)


async def test_a_member_halted_by_a_signal_is_told_apart_and_let_run_again_before_its_drain(
    tmp_path: Path,
) -> None:
    """SIGSTOP or Ctrl-Z: it holds its lock and sees no signal. Waiting for its drain would take half an hour."""
    root = make_root(tmp_path)
    async with running(root, root) as (member,):
        os.kill(member.pid, signal.SIGSTOP)
        (found,) = (await collect(root, install_id=member.code.install_id)).runtimes
        assert (found.pid, found.halted) == (member.pid, True)
        (row,) = judge(identity("1"), Fleet(runtimes=(found,)))
        assert "halted by a signal" in row.copy_terminal
        (root / "version").write_text("2")
        work = rolled([attrs.evolve(found, supervisor="manual")], identity("2"))
        events = await asyncio.wait_for(work, 20)
        assert any(event.kind == "drain_waiting" and "halted" in event.copy for event in events)
        (done,) = [event for event in events if isinstance(event, MemberRestarted)]
        assert (await serving(root)).pid == done.pid != member.pid
        os.kill(done.pid, signal.SIGSTOP)
        before = time.monotonic()
        assert await stop_member(root)
        assert time.monotonic() - before < StopLimits().term_s - 2, "it was let run and ended by itself"


async def test_a_forged_claim_gets_no_innocent_process_signalled(tmp_path: Path) -> None:
    """The lock is held and its record names a live process of ours with its right start time: still only text."""
    root = make_root(tmp_path)
    innocent = await asyncio.create_subprocess_exec("sleep", "30")
    lock = FileLock(root / LOCK_NAME, "The lock")
    try:
        assert lock.try_acquire()
        stat = system_processes().stat(innocent.pid)
        assert stat is not None
        record = PidRecord(pid=innocent.pid, start_time=stat.start_time, nedura_home=str(root))
        os.pwrite(lock.fileno(), f"{innocent.pid}\n{json.dumps(attrs.asdict(record))}\n".encode(), 0)
        (found,) = (await collect(root, install_id="d" * 12, scan=False)).runtimes
        assert found.pid == innocent.pid
        events = await rolled([attrs.evolve(found, supervisor="manual")], identity("2"))
        (failure,) = events
        assert isinstance(failure, MemberFailed)
        assert failure.check == "identity"
        await asyncio.sleep(0.2)
        assert innocent.returncode is None
    finally:
        lock.release()
        innocent.kill()
        await innocent.wait()


async def test_a_frozen_interpreter_is_ended_and_a_drain_behind_a_dead_socket_is_not(tmp_path: Path) -> None:
    """No thread of the first one runs; the second only lost its socket and finishes its turn (facts/runtime.md 5.7)."""
    root = make_root(tmp_path)
    busy = add_profile(root, "busy")
    (root / "fault").write_text("frozen")
    (busy / "fault").write_text("none")
    (busy / "command").write_text(f"while [ ! -e {busy}/go ]; do sleep 0.05; done")
    async with running(root, busy) as (member,):
        frozen = await asyncio.create_subprocess_exec(
            str(root / "bin" / "nedura"), "gateway", "run", env={**os.environ, "NEDURA_HOME": str(root)},
            stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        async with asyncio.timeout(10):
            while (state := read_state(root, 0.0)) is None or state.state != "running":
                await asyncio.sleep(0.02)
        await asyncio.sleep(0.1)
        assert await look(root) is None
        stat = system_processes().stat(frozen.pid)
        assert stat is not None
        silent = attrs.evolve(
            member, profile="default", home=root, pid=frozen.pid, start_time=stat.start_time
        )
        socket = find_socket(busy, "gateway", os.environ, os.getuid())
        assert socket is not None
        socket.unlink()
        (root / "fault").write_text("")
        (busy / "command").write_text("")
        (root / "version").write_text("2")
        began = time.monotonic()
        events = []
        for one, silence in ((member, 90.0), (silent, 0.5)):
            pace = parts(silence=silence, wedged_wait=0.3)
            async for event in restart_rest([one], identity("2"), parts=pace):
                events.append(event)
                if event.kind == "drain_waiting" and "1 running turn" in event.copy:
                    (busy / "go").touch()
        assert time.monotonic() - began < 25
        assert {event.profile for event in events if isinstance(event, MemberRestarted)} == {
            "default",
            "busy",
        }
        assert (busy / "go").exists(), "its turn was cut short"
        for home in (root, busy):
            os.kill((await serving(home)).pid, signal.SIGKILL)
        await frozen.wait()
