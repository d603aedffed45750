"""A restart of a member that somebody restarts already attaches to it: one successor, both report success."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from nedura.fleet.inventory import look
from nedura.fleet.model import Runtime
from nedura.fleet.restart import RestartParts
from nedura.fleet.restart_events import MemberFailed, MemberRestarted, RestartEvent
from nedura.fleet.restart_lock import RestartLock
from nedura.fleet.rolling import attach_restarts, restart_rest, restarts_under_way
from nedura.fleet.supervisors.manual import ManualSupervisor
from nedura.installs import CodeIdentity
from nedura_cli.fleet import expected_identity
from nedura_cli.gateway import restart_parts
from tests.integration.restart.daemon import identity
from tests.integration.restart.manual import make_root, running, serving, start
from tests.unit.restart.fakes import FakeFleet, gateway

HOLDER = """
import fcntl, os, sys
handle = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o600)
fcntl.flock(handle, fcntl.LOCK_EX)
os.pwrite(handle, f"{os.getpid()}\\n".encode(), 0)
print(flush=True)
sys.stdin.read()
"""


async def restart(
    member: Runtime, expected: CodeIdentity | None = None, *, after: float = 0.0, **more: object
) -> list[RestartEvent]:
    """One restart with parts of its own, as another process has them."""
    await asyncio.sleep(after)
    values = {
        "supervisors": {"manual": ManualSupervisor()},
        "look": look,
        "tick": 0.1,
        "serving_timeout": 10.0,
        **more,
    }
    parts = RestartParts(**values)  # type: ignore[arg-type]
    return [event async for event in restart_rest([member], expected or identity("2"), parts=parts)]


def done(events: list[RestartEvent]) -> list[int]:
    return [event.pid for event in events if isinstance(event, MemberRestarted)]


async def test_a_second_restart_takes_the_result_of_the_first(tmp_path: Path) -> None:
    root = make_root(tmp_path)
    (root / "turn").write_text("0.6")
    async with running(root, root) as (member,):
        for name, value in {"version": "2", "turn": "0", "boot": "1"}.items():
            (root / name).write_text(value)
        first, second = await asyncio.gather(restart(member), restart(member, after=0.2))
        after = await serving(root)
        assert done(first) == done(second) == [after.pid]
        assert not [event for event in second if event.kind == "restart_started"]
        assert any("another restart of it (process" in event.copy_terminal for event in second)
        log = (root / "logs" / "gateway.log").read_text()
        assert "ClaimTaken" not in log, "two successors were started"


async def test_a_restart_that_was_seen_too_late_is_not_done_again(tmp_path: Path) -> None:
    """The member was looked at before somebody else restarted it, and its turn came afterwards."""
    root = make_root(tmp_path)
    async with running(root, root) as (member,):
        (root / "version").write_text("2")
        (pid,) = done(await restart(member))
        late = await restart(member)
        assert done(late) == [pid]
        assert (await serving(root)).pid == pid
        # on other code than it should run, it is restarted, whoever did it before
        (root / "version").write_text("3")
        (third,) = done(await restart(member, identity("3")))
        assert third != pid


async def test_the_code_that_counts_is_the_one_at_the_end_of_the_other_restart(tmp_path: Path) -> None:
    """An update commits, or takes its generation back, while an operator's restart waits for it: what a start runs has changed."""
    root = make_root(tmp_path)
    (root / "version").write_text("2")
    async with running(root, root) as (member,):
        other = RestartLock(root)
        assert other.take()

        def target() -> CodeIdentity:
            return identity((root / "version").read_text())

        waiting = asyncio.ensure_future(restart(member, target(), target=target))
        await asyncio.sleep(0.2)
        (root / "version").write_text("1")
        os.kill(member.pid, signal.SIGKILL)
        back = await start(root, root)
        other.release()
        events = await waiting
        assert done(events) == [back.pid]
        assert not [event for event in events if event.kind in ("restart_started", "member_failed")]


def test_an_operators_restart_asks_what_counts_anew() -> None:
    assert restart_parts().target is expected_identity


async def test_a_restart_whose_process_died_is_done_by_the_one_that_waits(tmp_path: Path) -> None:
    root = make_root(tmp_path)
    async with running(root, root) as (member,):
        (root / "version").write_text("2")
        holder = await asyncio.create_subprocess_exec(
            sys.executable, "-c", HOLDER, str(root / "gateway-restart.lock"),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert holder.stdout is not None
        await holder.stdout.readline()
        assert RestartLock(root).busy()
        waiting = asyncio.ensure_future(restart(member))
        await asyncio.sleep(0.4)
        assert not waiting.done()
        assert (await serving(root)).pid == member.pid, "nothing is touched while another is at it"
        holder.kill()
        await holder.wait()
        (pid,) = done(await waiting)
        assert pid != member.pid
        assert not RestartLock(root).busy()


async def test_another_restart_that_never_ends_is_reported_as_not_complete(tmp_path: Path) -> None:
    root = make_root(tmp_path)
    async with running(root, root) as (member,):
        other = RestartLock(root)
        assert other.take()
        events = await restart(member, patience=lambda declared: 0.3)
        other.release()
        (failed,) = [event for event in events if isinstance(event, MemberFailed)]
        assert (failed.check, failed.incomplete) == ("busy", True)
        assert (await serving(root)).pid == member.pid


async def test_what_we_run_under_is_told_without_waiting_for_another_restart(tmp_path: Path) -> None:
    """The other restart waits for the turn that we are in: to wait for it would be to wait for ourselves."""
    member = gateway(home=tmp_path, ancestor=True)
    other = RestartLock(tmp_path)
    assert other.take()
    async with asyncio.timeout(3):
        events = [
            event async for event in restart_rest([member], identity("2"), parts=FakeFleet(member).parts())
        ]
    other.release()
    assert [event.kind for event in events] == ["restart_started", "restart_pending"]


async def test_a_member_that_is_down_for_somebody_elses_restart_is_waited_for(tmp_path: Path) -> None:
    """Whoever looks in that moment sees no gateway at all."""
    root = make_root(tmp_path)
    (root / "boot").write_text("0.8")
    async with running(root, root) as (member,):
        (root / "version").write_text("2")
        assert restarts_under_way([root]) == ()
        first = asyncio.ensure_future(restart(member))
        async with asyncio.timeout(10):
            while await look(root) is not None:
                await asyncio.sleep(0.01)
        assert restarts_under_way([root]) == (root,)
        events = [event async for event in attach_restarts([root], identity("2"))]
        assert done(await first) == done(events) == [(await serving(root)).pid]
        # one that ends without a gateway has restarted nobody
        nobody = make_root(tmp_path / "empty")
        assert [event async for event in attach_restarts([nobody], identity("2"))] == []


@pytest.mark.parametrize("fault", ["folder", "link"])
async def test_a_home_that_takes_no_lock_is_restarted_without_one(tmp_path: Path, fault: str) -> None:
    root = make_root(tmp_path)
    lock = root / "gateway-restart.lock"
    async with running(root, root) as (member,):
        (root / "version").write_text("2")
        lock.mkdir() if fault == "folder" else lock.symlink_to(tmp_path / "elsewhere")
        assert done(await restart(member)) == [(await serving(root)).pid]
        assert not (tmp_path / "elsewhere").exists()
