"""Who is there and whose it is: sockets, files, scans, ledgers, services; ours and what is left alone."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest

from nedura.fleet import Fleet, ServiceInfo, collect, collect_now, judge, reconcile, verify_fleet
from nedura.fleet.events import FleetMatrix
from nedura.fleet.ledger import LedgerEntry, SpawnLedger
from nedura.fleet.processes import ProcFs, PsutilProcesses, liveness, system_processes
from nedura.installs import CodeIdentity, running_code
from nedura.testing.clock import FakeClock
from tests.kits.fleet import ROOT, child_environ, gateway, wait_for

SLEEPER = "import time, sys\nwhile True: time.sleep(0.2)\n"


@contextmanager
def look_alike(
    folder: Path, home: Path | None, *arguments: str, environ: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A process with exactly a gateway's command line, and no membership: an old, starting or crashed one."""
    package = folder / "nedura_cli"
    package.mkdir(parents=True, exist_ok=True)
    (package / "__init__.py").write_text("")
    (package / "main.py").write_text(SLEEPER)
    base = {**os.environ, **(environ or {}), "PYTHONPATH": str(folder)}
    if home is not None:
        base["NEDURA_HOME"] = str(home)
    words = arguments or ("gateway", "run")
    process = subprocess.Popen([sys.executable, "-m", "nedura_cli.main", *words], env=base, cwd=folder)
    try:
        wait_for(lambda: "nedura_cli.main" in (ProcFs().argv(process.pid) or ()))
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    folder.mkdir()
    return folder


def names(fleet: Fleet) -> list[tuple[str, str, str]]:
    return [(row.kind, row.profile, row.source) for row in fleet.runtimes]


def test_a_gateway_without_socket_is_found_by_its_lock(root: Path) -> None:
    with gateway(root) as daemon:
        wait_for(lambda: json.loads((root / "gateway_state.json").read_text())["gateway_state"] == "running")
        told = daemon.code()
        os.unlink(root / "gateway.sock")
        (row,) = collect_now(root, scan=False).runtimes
        assert (row.pid, row.source, row.state) == (daemon.pid, "file", "running")
        assert row.code == told


def test_a_state_file_of_another_writer_is_not_believed(root: Path) -> None:
    with gateway(root) as daemon:
        os.unlink(root / "gateway.sock")
        daemon.signal(signal.SIGSTOP)
        record = json.loads((root / "gateway_state.json").read_text())
        (root / "gateway_state.json").write_text(json.dumps({**record, "pid": 1, "code_sha": "f" * 40}))
        (row,) = collect_now(root, scan=False).runtimes
        assert (row.pid, row.code) == (daemon.pid, CodeIdentity())
        daemon.signal(signal.SIGCONT)


def test_a_process_without_any_record_is_found_by_scan(root: Path, tmp_path: Path) -> None:
    with look_alike(tmp_path / "t", root) as process:
        fleet = collect_now(root)
        assert names(fleet) == [("gateway", "default", "scan")]
        assert fleet.runtimes[0].pid == process.pid
        (row,) = judge(running_code(), fleet, before=fleet.runtimes)
        assert (row.state, row.failing) == ("unknown", False)
        assert not collect_now(root, scan=False).runtimes


def test_the_profile_flag_outranks_the_environment(root: Path, tmp_path: Path) -> None:
    (root / "profiles" / "ops").mkdir(parents=True)
    (root / "profiles" / "ops-2").mkdir()
    with look_alike(tmp_path / "t", root, "-p", "ops", "gateway", "run"):
        assert names(collect_now(root)) == [("gateway", "ops", "scan")]
    with look_alike(tmp_path / "t", root / "profiles" / "ops", "--profile=ops-2", "gateway"):
        assert names(collect_now(root)) == [("gateway", "ops-2", "scan")]
    with look_alike(tmp_path / "t", root / "profiles" / "ops", "-p", "default", "gateway"):
        assert names(collect_now(root)) == [("gateway", "default", "scan")]


def test_another_home_is_named_and_left_alone(root: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    with gateway(other) as foreign, look_alike(tmp_path / "t", other) as twin:
        fleet = collect_now(root)
        assert not fleet.runtimes
        left = [item for item in fleet.foreign if item.pid in (foreign.pid, twin.pid)]
        assert len(left) == 2
        assert {item.reason for item in left} == {"another home"}
        assert all(str(other) in item.copy_terminal for item in left)


def test_another_install_on_our_home_is_external(root: Path) -> None:
    with gateway(root) as daemon:
        fleet = collect_now(root, install_id="f" * 12)
        assert not fleet.runtimes
        (item,) = [item for item in fleet.foreign if item.pid == daemon.pid]
        assert item.reason == "another install"
        mine = attrs.evolve(running_code(), install_id="f" * 12)
        (row,) = judge(mine, collect_now(root))
        assert row.state == "external"


def test_an_unreadable_home_is_left_alone_and_named(root: Path, tmp_path: Path) -> None:
    with look_alike(tmp_path / "t", root) as process:
        fleet = collect_now(root, processes=Blind())
        (item,) = [item for item in fleet.foreign if item.pid == process.pid]
        assert item.reason == "home unreadable"
        assert not fleet.runtimes


class Blind(ProcFs):
    """Environments cannot be read."""

    def environ(self, pid: int) -> dict[str, str] | None:
        return None


def test_the_definition_and_the_ledger_speak_for_an_unreadable_environment(
    root: Path, tmp_path: Path
) -> None:
    with look_alike(tmp_path / "t", root) as process:
        unit = ServiceInfo(
            name="nedura-gateway.service",
            main_pid=process.pid,
            environment={"NEDURA_HOME": str(root)},
            written_by_us=True,
        )
        (row,) = collect_now(root, processes=Blind(), services=[unit]).runtimes
        assert (row.pid, row.unit, row.supervisor) == (process.pid, "nedura-gateway.service", "systemd")
        stat = system_processes().stat(process.pid)
        assert stat is not None
        entry = LedgerEntry(pid=process.pid, start_time=stat.start_time, purpose="gateway", home=str(root))
        SpawnLedger(root).register(entry)
        assert [row.pid for row in collect_now(root, processes=Blind()).runtimes] == [process.pid]
        SpawnLedger(root).path.write_text(json.dumps([{**attrs.asdict(entry), "start_time": 1}]))
        assert collect_now(root, processes=Blind()).runtimes == (), "another incarnation's row proves nothing"


def test_psutil_and_proc_agree() -> None:
    """The table of other systems, asked on this one."""
    mine, theirs = ProcFs(), PsutilProcesses()
    pid = os.getpid()
    assert theirs.argv(pid) == mine.argv(pid)
    assert theirs.environ(pid) == mine.environ(pid)
    assert theirs.uid(pid) == mine.uid(pid) == os.getuid()
    stat = theirs.stat(pid)
    assert stat is not None
    assert stat.ppid == os.getppid()
    assert not stat.dead
    assert liveness(theirs, pid, stat.start_time) == "alive"
    assert liveness(theirs, pid, (stat.start_time or 0) - 1000) == "another"
    assert pid in theirs.pids()
    own = os.fsencode((mine.argv(pid) or ("",))[0])
    assert pid in [found for found, _ in theirs.matching(re.compile(re.escape(own)))]
    assert pid in [found for found, _ in mine.matching(re.compile(re.escape(own)))]
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    try:
        wait_for(lambda: (found := mine.stat(child.pid)) is not None and found.dead)
        zombie = theirs.stat(child.pid)
        assert zombie is None or zombie.dead
        assert theirs.argv(child.pid) in ((), None)
    finally:
        child.wait()
    for table in (mine, theirs):
        assert table.stat(2**22 - 1) is None
        assert table.argv(2**22 - 1) is None
        assert table.environ(2**22 - 1) is None


def test_short_lived_commands_and_this_process_are_no_runtimes(root: Path, tmp_path: Path) -> None:
    with look_alike(tmp_path / "t", root, "dashboard", "--status"):
        assert not collect_now(root).runtimes
    with look_alike(tmp_path / "t", root, "dashboard", "--no-open"):
        assert names(collect_now(root)) == [("dashboard", "default", "scan")]


def test_the_ledger_tells_backends_by_exact_incarnation(root: Path, tmp_path: Path) -> None:
    table = system_processes()
    me = table.stat(os.getpid())
    assert me is not None
    with look_alike(tmp_path / "t", root, "serve", "--port", "0") as process:
        stat = table.stat(process.pid)
        assert stat is not None
        entry = LedgerEntry(
            pid=process.pid,
            start_time=stat.start_time,
            purpose="serve",
            home=str(root),
            host="127.0.0.1",
            port=8080,
        )
        ledger = SpawnLedger(root)
        ledger.register(entry)
        (row,) = collect_now(root).runtimes
        assert (row.kind, row.supervisor, row.restart_via, row.source) == (
            "serve",
            "manual-serve",
            "respawn-argv",
            "ledger",
        )
        assert row.detail["port"] == 8080
        ledger.register(
            attrs.evolve(entry, spawner_pid=os.getpid(), spawner_start=me.start_time, purpose="dashboard")
        )
        assert "desktop" in {row.supervisor for row in collect_now(root).runtimes}
        ledger.register(attrs.evolve(entry, start_time=1))
        assert len(ledger.live()) == 2, "another start time is another process"
    assert not collect_now(root).runtimes
    ledger.register(entry)
    assert len(ledger.read()) == 1, "dead entries go when the next one is written"
    ledger.path.write_text("{")
    assert ledger.live() == ()
    ledger.register(entry)
    assert (root / "spawn-ledger.json.corrupt").exists()


def test_a_unit_belongs_to_the_member_in_its_cgroup(root: Path) -> None:
    """The unit's main process is a wrapper; a second unit has the same process: one row, the other name is an alias."""
    with gateway(root) as daemon:
        wrapped = ServiceInfo(name="nedura-gateway.service", main_pid=1, pids=(1, daemon.pid), state="active")
        legacy = ServiceInfo(name="hermes-gateway.service", main_pid=daemon.pid, state="active")
        (row,) = collect_now(root, services=[wrapped, legacy]).runtimes
        assert (row.unit, row.unit_scope, row.supervisor, row.restart_via) == (
            "nedura-gateway.service", "user", "systemd", "systemd",
        )  # fmt: skip
        assert row.aliases == ("hermes-gateway.service",)


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="a second uid needs root")
def test_a_look_alike_of_another_user_is_named_and_left_alone(root: Path) -> None:
    """Our command line, our home in its environment, another uid: a claim, not a fact."""
    with tempfile.TemporaryDirectory(prefix="nedura-fleet-", dir="/tmp") as folder:
        package = Path(folder) / "nedura_cli"
        package.mkdir()
        os.chmod(folder, 0o755)
        (package / "__init__.py").write_text("")
        (package / "main.py").write_text(SLEEPER)
        process = subprocess.Popen(
            ["/usr/bin/python3", "-m", "nedura_cli.main", "gateway", "run"],
            env={"NEDURA_HOME": str(root), "PYTHONPATH": folder, "PATH": os.environ["PATH"]}, cwd=folder, user=65534,
        )  # fmt: skip
        try:
            wait_for(lambda: "nedura_cli.main" in (ProcFs().argv(process.pid) or ()))
            fleet = collect_now(root)
            assert fleet.runtimes == ()
            assert [item.reason for item in fleet.foreign if item.pid == process.pid] == ["another user"]
        finally:
            process.kill()
            process.wait()


def test_a_foreign_process_is_known_by_its_unit(root: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    with gateway(other) as foreign:
        unit = ServiceInfo(name="nedura-gateway-1a2b3c4d.service", main_pid=foreign.pid, pids=(foreign.pid,))
        found = [item for item in collect_now(root, services=[unit]).foreign if item.pid == foreign.pid]
        assert [(item.name, item.what, item.reason, item.home) for item in found] == [
            ("nedura-gateway-1a2b3c4d.service", "systemd unit", "another home", other)
        ]


def test_a_unit_of_another_product_is_named_and_left_alone(root: Path, tmp_path: Path) -> None:
    """`hermes-gateway.service` of the other product: its process is no entry of ours, whatever HOME it has."""
    process = subprocess.Popen(
        [sys.executable, "-c", SLEEPER, "-m", "hermes_cli.main", "gateway", "run"],
        env={**os.environ, "HOME": str(root.parent)},
    )
    try:
        unit = ServiceInfo(
            name="hermes-gateway.service", main_pid=process.pid, pids=(process.pid,), state="active"
        )
        fleet = collect_now(root, services=[unit])
        assert not fleet.runtimes
        (item,) = [item for item in fleet.foreign if item.name == "hermes-gateway.service"]
        assert (item.reason, item.pid) == ("another product", process.pid)
        assert "left alone" in item.copy_terminal
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()


def test_ancestors_stay_visible(root: Path, tmp_path: Path) -> None:
    """An updater that a gateway started sees that gateway, marked as its ancestor (#87594)."""
    package = tmp_path / "t" / "nedura_cli"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "main.py").write_text(
        "import os, subprocess, sys\n"
        f"environ = {{**os.environ, 'PYTHONPATH': {str(ROOT)!r}}}\n"
        "sys.exit(subprocess.call([sys.executable, '-c', sys.argv[-1]], env=environ))\n"
    )
    inner = (
        "import os, sys, pathlib\n"
        "from nedura.fleet import collect_now\n"
        "rows = collect_now(pathlib.Path(os.environ['NEDURA_HOME'])).runtimes\n"
        "print([(row.pid == os.getppid(), row.ancestor) for row in rows])\n"
    )
    result = subprocess.run(
        [sys.executable, "-m", "nedura_cli.main", "gateway", "run", inner],
        env={**child_environ(root), "PYTHONPATH": str(tmp_path / "t")},
        cwd=tmp_path / "t", capture_output=True, text=True, check=True, timeout=20,
    )  # fmt: skip
    assert result.stdout.strip() == "[(True, True)]"


def test_an_empty_home_and_a_missing_one(root: Path, tmp_path: Path) -> None:
    assert collect_now(root).runtimes == ()
    missing = collect_now(tmp_path / "nowhere")
    assert (missing.runtimes, missing.homes) == ((), ())


@pytest.mark.parametrize(
    "content", ["{", "[]", "1", '{"pid": -1}', '{"pid": "x", "gateway_state": "running"}', "[" * 5000, ""]
)
def test_broken_records_never_raise(root: Path, content: str) -> None:
    for name in (
        "gateway_state.json",
        "gateway.pid",
        "gateway.lock",
        "spawn-ledger.json",
        "gateway.sock.path",
    ):
        (root / name).write_text(content)
    fleet = collect_now(root)
    assert fleet.runtimes == ()
    assert fleet.gone == ()


def test_planted_links_never_raise(root: Path, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("{}")
    for name in ("gateway_state.json", "gateway.pid", "gateway.lock", "spawn-ledger.json", "gateway.sock"):
        (root / name).symlink_to(tmp_path / "precious")
    os.mkfifo(root / "gateway.sock.path")
    start = time.monotonic()
    assert collect_now(root).runtimes == ()
    assert time.monotonic() - start < 2
    assert (tmp_path / "precious").read_text() == "{}"


def test_eight_gateways_are_collected_at_once(root: Path) -> None:
    homes = [root, *(root / "profiles" / f"p{number}" for number in range(7))]
    for home in homes:
        home.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        daemons = [stack.enter_context(gateway(home, ready=False)) for home in homes]
        for daemon in daemons:
            daemon.wait_running(30)
        for daemon in daemons[:3]:
            daemon.signal(signal.SIGSTOP)  # its kernel still accepts; its socket thread does not answer
        start = time.monotonic()
        fleet = collect_now(root, timeout=0.5)
        spent = time.monotonic() - start
        for daemon in daemons[:3]:
            daemon.signal(signal.SIGCONT)
        assert {row.pid for row in fleet.runtimes} == {daemon.pid for daemon in daemons}
        assert sorted(row.source for row in fleet.runtimes) == ["file"] * 3 + ["socket"] * 5
        assert spent < 2.0, "silent ones are waited for together"


# ---- polling ------------------------------------------------------------------------------------------------------------------

NEW = CodeIdentity(install_id="a" * 12, code_sha="2" * 40)
OLD = CodeIdentity(install_id="a" * 12, code_sha="1" * 40)


def scripted(*fleets: Fleet) -> Any:
    left = list(fleets)

    async def look() -> Fleet:
        return left.pop(0) if len(left) > 1 else left[0]

    return look


def runtime(pid: int, code: CodeIdentity = NEW, **more: Any) -> Any:
    from nedura.fleet import Runtime

    facts = {"kind": "gateway", "profile": "default", "home": Path("/h"), "state": "running", **more}
    return Runtime(pid=pid, start_time=pid, code=code, **facts)


async def drive(**arguments: Any) -> tuple[list[str], FleetMatrix]:
    clock = FakeClock()
    kinds: list[str] = []
    last: Any = None
    async for last in verify_fleet(NEW, clock=clock, **arguments):
        kinds.append(last.kind)
    assert isinstance(last, FleetMatrix)
    return kinds, last


async def test_verification_waits_for_the_successor_to_publish() -> None:
    old = runtime(1, OLD)
    kinds, matrix = await drive(
        look=scripted(
            Fleet(gone=(old,)),
            Fleet(runtimes=(runtime(2, CodeIdentity(), state="starting"),)),
            Fleet(runtimes=(runtime(2, NEW),)),
        ),
        before=[old],
        restarted=["default"],
    )
    assert kinds == ["verify_waiting", "matrix"]
    assert (matrix.complete, matrix.settled, matrix.rows[0].state) == (True, True, "current")


async def test_a_stale_survivor_is_proven_at_once() -> None:
    old = runtime(1, OLD)
    kinds, matrix = await drive(look=scripted(Fleet(runtimes=(old,))), before=[old])
    assert kinds == ["matrix"]
    assert (matrix.complete, matrix.settled) == (False, True)


async def test_the_deadline_ends_the_wait_with_the_truth() -> None:
    old = runtime(1, OLD)
    _, matrix = await drive(look=scripted(Fleet(gone=(old,))), before=[old], deadline_s=10)
    assert (matrix.complete, matrix.settled) == (False, False)
    assert matrix.rows[0].state == "down"
    assert 10 <= matrix.waited < 13


async def test_a_hopeless_fleet_is_not_waited_for() -> None:
    old = runtime(1, OLD)
    _, matrix = await drive(look=scripted(Fleet(gone=(old,))), before=[old], hopeless=lambda: True)
    assert (matrix.waited, matrix.complete) == (0, False)


async def test_no_row_although_something_was_restarted_is_incomplete() -> None:
    _, matrix = await drive(look=scripted(Fleet()), restarted=["default"], deadline_s=2)
    assert (matrix.complete, matrix.rows) == (False, ())


async def test_an_ancestor_that_accepted_is_pending_and_not_waited_for() -> None:
    old = runtime(1, OLD, ancestor=True, state="draining")
    _, matrix = await drive(look=scripted(Fleet(runtimes=(old,))), before=[old], pending={1})
    assert (matrix.complete, matrix.rows[0].state, matrix.waited) == (True, "restart_pending", 0)


async def test_collect_and_reconcile_a_real_restart(root: Path) -> None:
    with gateway(root) as first:
        before = (await collect(root)).runtimes
        first.signal(signal.SIGUSR1)
        assert await asyncio.to_thread(first.wait) == 75
    with gateway(root):
        (outcome,) = reconcile(before, await collect(root))
        assert outcome.outcome == "restarted"
