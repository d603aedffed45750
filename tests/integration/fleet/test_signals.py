"""Nobody is signalled by a bare pid: forged, reused, foreign and dead targets (threats.md 4)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

from nedura.errors import FleetError
from nedura.fleet.processes import ProcFs, Stat, liveness, system_processes
from nedura.fleet.signals import send_signal, wait_gone
from nedura.fleet.takeover import StopLimits, doubts, stop_member
from tests.kits.fleet import gateway, wait_for

VICTIM = """
import signal, sys, time
def note(number, frame):
    with open(sys.argv[1], "a") as log: log.write(f"{number}\\n")
for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGHUP): signal.signal(number, note)
print("ready", flush=True)
while True: time.sleep(0.05)
"""


class NeverHalted(ProcFs):
    """A process table that calls every process a running one, so that nobody lets a halted one run again."""

    def stat(self, pid: int) -> Stat | None:
        found = super().stat(pid)
        return None if found is None else attrs.evolve(found, state="S")


class Victim:
    """An innocent process that writes down every signal it gets."""

    def __init__(self, log: Path, environ: dict[str, str] | None = None) -> None:
        self.log = log
        self.process = subprocess.Popen(
            [sys.executable, "-c", VICTIM, str(log)], stdout=subprocess.PIPE, text=True, env=environ
        )
        assert self.process.stdout is not None
        self.process.stdout.readline()
        stat = system_processes().stat(self.pid)
        assert stat is not None
        self.start_time = stat.start_time

    @property
    def pid(self) -> int:
        return self.process.pid

    def got(self) -> list[str]:
        time.sleep(0.15)
        return self.log.read_text().split() if self.log.exists() else []


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[Victim]:
    made = Victim(tmp_path / "signals")
    yield made
    made.process.kill()
    made.process.communicate()


def test_the_trap_works(victim: Victim) -> None:
    assert send_signal(victim.pid, signal.SIGTERM, start_time=victim.start_time)
    assert victim.got() == ["15"]


def test_wrong_or_unknown_start_time(victim: Victim) -> None:
    assert victim.start_time is not None
    for start in (victim.start_time + 1, None):
        assert send_signal(victim.pid, signal.SIGTERM, start_time=start).outcome == "refused"
    assert victim.got() == []


def test_a_proof_is_asked_under_the_handle(victim: Victim) -> None:
    sent = send_signal(
        victim.pid, signal.SIGTERM, start_time=victim.start_time, proof=lambda pid: f"{pid} is innocent"
    )
    assert (sent.outcome, sent.reason) == ("refused", f"{victim.pid} is innocent")
    assert victim.got() == []


def test_pid_1_self_and_nonsense_are_refused() -> None:
    for pid in (-1, 0, 1, os.getpid()):
        stat = system_processes().stat(pid) if pid > 0 else None
        start = stat.start_time if stat else 1
        assert send_signal(pid, signal.SIGTERM, start_time=start).outcome == "refused"


def test_another_users_process_is_refused(victim: Victim) -> None:
    sent = send_signal(victim.pid, signal.SIGTERM, start_time=victim.start_time, uid=os.geteuid() + 1)
    assert (sent.outcome, sent.reason) == ("refused", "it belongs to another user")
    assert victim.got() == []


def test_a_zombie_is_gone() -> None:
    process = subprocess.Popen([sys.executable, "-c", "pass"])
    table = system_processes()
    start = wait_for(lambda: table.stat(process.pid)).start_time
    wait_for(lambda: (stat := table.stat(process.pid)) is not None and stat.dead)
    assert liveness(table, process.pid, start) == "gone"
    assert send_signal(process.pid, signal.SIGTERM, start_time=start).outcome == "gone"
    assert wait_gone(process.pid, start, 0.1)
    process.wait()
    assert send_signal(process.pid, signal.SIGTERM, start_time=start).outcome == "gone"


@pytest.mark.parametrize("content", ["pid", "lock"])
def test_records_that_name_an_innocent_move_nobody(victim: Victim, tmp_path: Path, content: str) -> None:
    """A pid file, a state file and even the text of an unheld lock name it: nothing is signalled."""
    home = tmp_path / "home"
    home.mkdir()
    record = {
        "pid": victim.pid,
        "start_time": victim.start_time,
        "kind": "nedura-gateway",
        "nedura_home": str(home),
    }
    (home / "gateway.pid").write_text(json.dumps(record))
    (home / "gateway_state.json").write_text(json.dumps({**record, "gateway_state": "running"}))
    if content == "lock":
        (home / "gateway.lock").write_text(f"{victim.pid}\n{json.dumps(record)}\n")
    assert asyncio.run(stop_member(home)) is False
    assert victim.got() == []


def test_a_held_lock_that_names_an_innocent_moves_nobody(victim: Victim, tmp_path: Path) -> None:
    """Somebody of ours holds the lock, its text is forged: live evidence of the named process outranks it."""
    home = tmp_path / "home"
    with gateway(home):
        record = {"pid": victim.pid, "start_time": victim.start_time, "nedura_home": str(home)}
        (home / "gateway.lock").write_bytes(f"{victim.pid}\n{json.dumps(record)}\n".encode())
        with pytest.raises(FleetError, match="another home"):
            asyncio.run(stop_member(home))
        assert victim.got() == []


def test_the_real_one_is_stopped_and_one_that_does_not_end_is_killed(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with gateway(home) as daemon:
        assert doubts(daemon.pid, home, ProcFs()) == ""
        assert asyncio.run(stop_member(home)) is True
        assert daemon.wait() == 0
    with gateway(home) as daemon:
        daemon.signal(
            signal.SIGSTOP
        )  # halted, it never saw SIGTERM: it is let run again and ends as it should
        assert asyncio.run(stop_member(home)) is True
        assert daemon.wait() == 0
    with gateway(home) as daemon:
        daemon.signal(signal.SIGSTOP)
        limits = StopLimits(term_s=0.3, kill_s=5)
        assert asyncio.run(stop_member(home, limits=limits, processes=NeverHalted())) is True
        assert daemon.wait() == -9


def test_a_gateway_of_another_home_is_not_this_homes(tmp_path: Path) -> None:
    with gateway(tmp_path / "a") as daemon:
        assert "another home" in doubts(daemon.pid, tmp_path / "b", ProcFs())
