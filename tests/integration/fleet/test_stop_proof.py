"""Stopping a gateway whose start-time environment does not name its home, or whose home cannot be written."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from pathlib import Path

import pytest

from nedura.errors import FleetError
from nedura.fleet import ask_now
from nedura.fleet.explain import explain_pid
from nedura.fleet.processes import ProcFs
from nedura.fleet.takeover import doubts, stop_member
from tests.kits.fleet import ROOT, Gateway, gateway, wait_for

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")


def _running(daemon: Gateway, home: Path) -> None:
    wait_for(lambda: (ask_now(home, "identify") or {}).get("gateway_state") == "running")
    assert daemon.process.poll() is None


def test_a_sticky_profiles_gateway_is_stopped(tmp_path: Path) -> None:
    root = tmp_path / "root"
    home = root / "profiles" / "ops"
    home.mkdir(parents=True)
    (root / "active_profile").write_text("ops\n")
    with gateway(root, ready=False) as daemon:
        _running(daemon, home)
        assert doubts(daemon.pid, home, ProcFs()) == ""
        assert "another home" in doubts(daemon.pid, tmp_path, ProcFs())
        assert explain_pid(daemon.pid).home == str(home)
        assert asyncio.run(stop_member(home)) is True
        assert daemon.wait() == 0


def test_a_relative_home_counts_from_the_processs_own_folder(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with gateway(home, environ={"NEDURA_HOME": "../" * 12 + str(home).lstrip("/")}, ready=False) as daemon:
        _running(daemon, home)
        assert doubts(daemon.pid, home, ProcFs()) == ""
        assert json.loads((home / "gateway_state.json").read_text())["nedura_home"].startswith("/")
        assert asyncio.run(stop_member(home)) is True


@pytest.mark.parametrize("notice", ["planned-stop", "takeover"])
def test_a_note_that_cannot_be_written_does_not_keep_it_from_stopping(tmp_path: Path, notice: str) -> None:
    home = tmp_path / "home"
    with gateway(home) as daemon:
        (home / f".gateway-{notice}.json").mkdir()
        assert asyncio.run(stop_member(home, notice=notice)) is True  # type: ignore[arg-type]
        assert daemon.wait() == 0, "an interrupt is a planned stop by itself"


def test_a_refused_stop_leaves_no_note(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with gateway(home) as daemon, gateway(tmp_path / "other") as other:
        stat = ProcFs().stat(other.pid)
        assert stat is not None
        record = {"pid": other.pid, "start_time": stat.start_time, "nedura_home": str(home)}
        (home / "gateway.lock").write_bytes(f"{other.pid}\n{json.dumps(record)}\n".encode())
        with pytest.raises(FleetError, match="another home"):
            asyncio.run(stop_member(home))
        assert not (home / ".gateway-planned-stop.json").exists()
        assert (daemon.process.poll(), other.process.poll()) == (None, None)


def test_refused_starts_are_no_storm_and_a_stop_ends_the_wait(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with gateway(home):
        before = (home / "gateway-starts.log").read_text()
        with gateway(home, ready=False) as second:
            assert second.wait() == 1
        assert (home / "gateway-starts.log").read_text() == before
    (home / "gateway-starts.log").write_text("".join(f"{time.time():.3f}\n" for _ in range(9)))
    with gateway(home, ready=False) as waiting:
        wait_for(lambda: "waiting" in waiting.said())
        assert asyncio.run(stop_member(home)) is True, "it holds the claim while it waits"
        assert waiting.wait() == 0


def test_a_turn_in_a_thread_does_not_keep_a_forced_restart(tmp_path: Path) -> None:
    home = tmp_path / "home"
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "stuck_handler.py").write_text(
        "import asyncio, time\n"
        "async def answer(text, context):\n"
        "    yield 'working'\n"
        "    await asyncio.to_thread(time.sleep, 60)\n"
    )
    environ = {
        "PYTHONPATH": f"{ROOT}:{folder}",
        "NEDURA_RESTART_DRAIN_TIMEOUT": "0",
        "NEDURA_RESTART_AFTER_TURN_TIMEOUT": "0.1",
    }
    with gateway(home, handler="stuck_handler:answer", environ=environ) as daemon, daemon.connect() as link:
        link.sendall(json.dumps({"text": "x", "chat": "a"}).encode() + b"\n")
        wait_for(lambda: (daemon.identify() or {}).get("active_agents") == 1)
        daemon.signal(signal.SIGUSR1)
        assert daemon.wait(25) == 75
