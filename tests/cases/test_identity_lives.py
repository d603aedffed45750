"""Field reports on the lives of one gateway: messages across a restart, pid 1, files closed to others; each by its id."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from nedura.fleet import (
    FleetMember,
    MemberOptions,
    ScopedLock,
)
from nedura.fleet.claim import PidRecord
from nedura.fleet.drain import DrainSettings
from nedura_gateway.adapters import Inbound
from nedura_gateway.handlers import TurnContext
from nedura_gateway.inbox import Inbox
from nedura_gateway.platform_worker import PlatformWorker
from tests.integration.fleet.test_platforms import FakePlatform
from tests.kits.fleet import ROOT, wait_async

OPTIONS = MemberOptions(settings=DrainSettings(cron_s=0, grace_s=1), watchdogs=False, signals=False)


# ---- C172, C173: commands and messages across a restart -----------------------------------------------------------------------


async def life(home: Path, platform: FakePlatform, handler: Any, until: Any) -> int:
    async with FleetMember(home, OPTIONS) as member:
        context = TurnContext(home=home, request_restart=member.request_restart)
        worker = PlatformWorker(member, handler, context, {platform.name: platform}, Inbox(home))
        worker.start()
        await wait_async(lambda: member._stopper.stopped.is_set() or until(), 10, "the end of this life")
        await worker.stop()
    return member.exit_code


async def test_c172_a_restart_command_is_executed_once(tmp_path: Path) -> None:
    """The platform never learns that it was handled and sends it again after each start."""
    executed: list[str] = []

    async def obey(text: str, context: TurnContext) -> AsyncIterator[str]:
        executed.append(text)
        assert context.request_restart is not None
        yield "restarting" if context.request_restart() else "already"

    platform = FakePlatform([("10", "/restart")], moves=False)
    assert await life(tmp_path, platform, obey, lambda: False) == 75
    ended = time.monotonic() + 0.4
    assert await life(tmp_path, platform, obey, lambda: time.monotonic() > ended) == 0
    assert executed == ["/restart"]
    assert platform.sent == [("c", "restarting")]


async def test_c173_messages_that_wait_in_a_drain_are_answered_once(tmp_path: Path) -> None:
    """Five are queued, the restart comes while the first runs; the platform loses its position at the restart."""
    platform = FakePlatform([(str(number), f"m{number}") for number in range(5)])
    restarts: list[bool] = []

    async def slow(text: str, context: TurnContext) -> AsyncIterator[str]:
        if text == "m0" and not restarts:
            await wait_async(lambda: platform.position == 5)
            assert context.request_restart is not None
            restarts.append(context.request_restart())
        await asyncio.sleep(0.01)
        yield f"re: {text}"

    assert await life(tmp_path, platform, slow, lambda: False) == 75
    first = len(platform.sent)
    assert 1 <= first < 5
    platform.position = 0
    ended = time.monotonic() + 0.6
    await life(tmp_path, platform, slow, lambda: time.monotonic() > ended)
    assert platform.sent == [("c", f"re: m{number}") for number in range(5)]


async def silent(text: str, context: TurnContext) -> AsyncGenerator[str, None]:
    yield ""


async def test_c173_a_message_taken_while_draining_waits_on_disk(tmp_path: Path) -> None:
    async with FleetMember(tmp_path, OPTIONS) as member:
        member.request_restart()
        platform = FakePlatform([])
        worker = PlatformWorker(
            member, silent, TurnContext(home=tmp_path), {"fake": platform}, Inbox(tmp_path)
        )
        assert await worker.deliver(Inbound(adapter="fake", id="1", chat="c", text="late"))
        await worker.stop()
    assert [item.message.text for item in Inbox(tmp_path).pending] == ["late"]
    assert platform.sent == []


# ---- C176: pid 1 is a process ------------------------------------------------------------------------------------------------


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="a pid namespace needs root")
def test_c176_a_gateway_as_pid_1_is_running(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    script = f"""
import os, subprocess, sys, time
from pathlib import Path
home = Path({str(home)!r})
from nedura.fleet import collect_now, lock_holder
child = os.fork()
if child:
    os.execv(sys.executable, [sys.executable, "-m", "nedura_gateway", "--handler", "nedura.testing.handlers:slow_words"])
for _ in range(200):
    rows = collect_now(home).runtimes
    if rows and rows[0].state == "running":
        break
    time.sleep(0.05)
print([(row.pid, row.state, row.source) for row in rows], lock_holder(home).pid, flush=True)
os.kill(1, 2)
"""
    result = subprocess.run(
        ["unshare", "-p", "-f", "--mount-proc", sys.executable, "-c", script],
        env={**os.environ, "NEDURA_HOME": str(home), "PYTHONPATH": str(ROOT)},
        cwd=ROOT, capture_output=True, text=True, timeout=40, check=False,
    )  # fmt: skip
    assert "[(1, 'running', 'socket')] 1" in result.stdout, result.stdout + result.stderr
    assert PidRecord.parse({"pid": 1}) is not None


async def test_c176_one_process_never_locks_itself_out(tmp_path: Path) -> None:
    """The own token's lock is taken again by the same holder, and freed by the kernel when the holder dies (#81468)."""
    lock = ScopedLock("telegram", "bot-token", home=tmp_path, folder=tmp_path / "locks")
    assert lock.try_acquire()
    assert lock.try_acquire()
    other = ScopedLock("telegram", "bot-token", home=tmp_path, folder=tmp_path / "locks")
    assert not other.try_acquire()
    lock.release()
    assert other.try_acquire()
    other.release()


# ---- C185: every file of a member is closed to others ------------------------------------------------------------------------


def test_c185_nothing_of_a_gateway_is_open_under_umask_000(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    code = (
        "import os, runpy, sys; os.umask(0)\n"
        "sys.argv = ['x', '--handler', 'nedura.testing.handlers:slow_words']\n"
        "runpy.run_module('nedura_gateway', run_name='__main__')\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "NEDURA_HOME": str(home), "PYTHONPATH": str(ROOT)},
        cwd=ROOT,
    )
    open_ones: set[str] = set()
    try:
        end = time.monotonic() + 15
        ready = False
        while not ready and time.monotonic() < end:
            open_ones |= {path.name for path in home.rglob("*") if _open(path)}
            ready = (home / "chat.sock").exists() and (home / "gateway_state.json").exists()
        assert ready
        open_ones |= {path.name for path in home.rglob("*") if _open(path)}
        assert not open_ones
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 0
    assert not {path.name for path in home.rglob("*") if _open(path)}


def _open(path: Path) -> bool:
    try:
        return bool(path.lstat().st_mode & 0o077)
    except OSError:
        return False


def test_c185_the_lock_never_holds_the_identity_itself(tmp_path: Path) -> None:
    lock = ScopedLock("telegram", "123456:SECRET-NEEDLE", home=tmp_path, folder=tmp_path / "locks")
    assert lock.try_acquire()
    (path,) = (tmp_path / "locks").iterdir()
    assert "NEEDLE" not in path.read_text() + path.name
    assert path.stat().st_mode & 0o777 == 0o600
    lock.release()
