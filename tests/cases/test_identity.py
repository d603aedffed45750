"""Field reports of area `identity`, and the process ones of `gateway` and `security`, by their ids."""

from __future__ import annotations

import ast
import asyncio
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import attrs
import pytest

from nedura.commands import build_parser
from nedura.errors import FleetError
from nedura.fleet import (
    FleetMember,
    MemberOptions,
    classify,
    collect_now,
    lock_holder,
    stop_member,
)
from nedura.fleet.claim import PidRecord, boot_id, read_pid_record
from nedura.fleet.drain import DrainSettings
from nedura.fleet.explain import explain_pid
from nedura.fleet.processes import ProcFs, liveness, same_start, system_processes
from nedura.fleet.scope import Scope, home_key, same_home
from nedura.fleet.signals import send_signal
from nedura.fleet.supervision import in_family
from nedura.product import NEDURA
from tests.integration.fleet.test_inventory import look_alike
from tests.kits.fleet import ROOT, gateway, wait_for

OPTIONS = MemberOptions(settings=DrainSettings(cron_s=0, grace_s=1), watchdogs=False, signals=False)


# ---- C109: wrong names, remedies that do not exist ----------------------------------------------------------------------------


def printed_commands() -> list[str]:
    """Every `nedura ...` that the fleet, the gateway and the model route tell people to run."""
    paths = [*(ROOT / "nedura" / "fleet").rglob("*.py"), *(ROOT / "renderers" / "gateway").rglob("*.py")]
    found = set()
    for path in [*paths, ROOT / "nedura" / "inference.py"]:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found |= set(
                    re.findall(r"(?:Run|see|See|or): (nedura [a-z](?:[^\"';,\n{}.]|\.(?=\w))*)", node.value)
                )
    return sorted(found)


def test_c109_every_printed_remedy_parses() -> None:
    commands = printed_commands()
    assert len(commands) >= 5, commands
    for command in commands:
        words = ["x" if word.isupper() else word for word in shlex.split(command)[1:]]
        assert build_parser().parse_args(words).command, command


def test_c109_a_query_is_no_server_and_the_command_does_not_see_itself(tmp_path: Path) -> None:
    assert classify(["nedura", "dashboard", "--status"]).role == "command"
    assert classify(["nedura", "dashboard", "--no-open"]).role == "dashboard"
    with look_alike(tmp_path / "t", tmp_path, "dashboard", "--status"):
        fleet = collect_now(tmp_path)
        assert fleet.runtimes == ()
        assert all(item.pid != os.getpid() for item in fleet.foreign)


# ---- C111: a recorded pid that belongs to somebody else ---------------------------------------------------------------------


def test_c111_a_reused_pid_lives(tmp_path: Path) -> None:
    victim = subprocess.Popen(["sleep", "60"])
    try:
        stat = wait_for(lambda: system_processes().stat(victim.pid))
        for start in (stat.start_time - 5, stat.start_time):
            record = {
                "pid": victim.pid,
                "start_time": start,
                "kind": "nedura-gateway",
                "nedura_home": str(tmp_path),
            }
            (tmp_path / "gateway.pid").write_text(json.dumps(record))
            (tmp_path / "gateway_state.json").write_text(json.dumps({**record, "gateway_state": "running"}))
            assert asyncio.run(stop_member(tmp_path)) is False
        assert not collect_now(tmp_path).runtimes
        assert victim.poll() is None
    finally:
        victim.kill()
        victim.wait()


# ---- C112: three answers ------------------------------------------------------------------------------------------------------


class Unreadable(ProcFs):
    """Another user's process: its start time and environment cannot be read."""

    def stat(self, pid: int) -> Any:
        stat = super().stat(pid)
        return attrs.evolve(stat, start_time=None) if stat is not None else None

    def environ(self, pid: int) -> dict[str, str] | None:
        return None


def test_c112_unknown_neither_kills_nor_frees_a_lock(tmp_path: Path) -> None:
    assert (same_start(1, 1), same_start(1, 2), same_start(None, 2)) == (True, False, None)
    blind = Unreadable()
    assert liveness(blind, os.getpid(), 5) == "unknown"
    victim = subprocess.Popen(["sleep", "60"])
    try:
        wait_for(lambda: system_processes().stat(victim.pid))
        assert send_signal(victim.pid, signal.SIGTERM, start_time=7, processes=blind).outcome == "refused"
        assert victim.poll() is None
    finally:
        victim.kill()
        victim.wait()
    with gateway(tmp_path / "home") as daemon:
        holder = lock_holder(tmp_path / "home", blind)
        assert (holder.held, holder.pid) == (True, daemon.pid), "an unknown start time does not free the lock"


def test_c112_a_zombie_is_gone() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    try:
        table = system_processes()
        wait_for(lambda: (stat := table.stat(pid)) is not None and stat.dead)
        assert table.argv(pid) == ()
        assert liveness(table, pid, None) == "gone"
        assert classify(table.argv(pid) or ()).gateway_run is False
        assert "zombie" in explain_pid(pid).why
    finally:
        os.waitpid(pid, 0)


# ---- C113: a left-over pid file -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [
        "4194000",
        "",
        "abc",
        "0",
        "-1",
        "9" * 1_000_000,
        "{}",
        '{"pid": true}',
        "null",
        '{"pid": 4194000, "start_time": 1}',
    ],
    ids=[
        "dead",
        "empty",
        "letters",
        "zero",
        "negative",
        "1 MB of digits",
        "no pid",
        "bool",
        "null",
        "dead with start",
    ],
)
async def test_c113_an_unusable_pid_file_is_replaced_and_the_start_goes_on(
    tmp_path: Path, content: str
) -> None:
    (tmp_path / "gateway.pid").write_text(content)
    async with FleetMember(tmp_path, OPTIONS):
        record = read_pid_record(tmp_path)
        assert record is not None
        assert record.pid == os.getpid()


async def test_c113_ten_starts_in_a_row(tmp_path: Path) -> None:
    for _ in range(10):
        async with FleetMember(tmp_path, OPTIONS):
            pass
        (tmp_path / "gateway.pid").write_text("1")


def test_c113_the_live_command_outranks_the_record(tmp_path: Path) -> None:
    """A record calls an innocent process a gateway; what it really runs decides."""
    victim = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", "gateway", "run"])
    try:
        stat = wait_for(lambda: system_processes().stat(victim.pid))
        record = {"pid": victim.pid, "start_time": stat.start_time, "kind": "nedura-gateway",
                  "argv": ["nedura", "gateway", "run"], "gateway_state": "running", "nedura_home": str(tmp_path)}  # fmt: skip
        (tmp_path / "gateway.pid").write_text(json.dumps(record))
        (tmp_path / "gateway_state.json").write_text(json.dumps(record))
        fleet = collect_now(tmp_path)
        assert fleet.runtimes == ()
        assert [gone.pid for gone in fleet.gone] == [victim.pid], "the file's claim is shown, not believed"
        assert explain_pid(victim.pid).gateway_run is False
    finally:
        victim.kill()
        victim.wait()


# ---- C114: numbers repeat in containers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change", [{"boot_id": "another-boot"}, {"host": "old-container"}, {"start_time": 1}, {}]
)
async def test_c114_our_own_pid_in_an_old_lock_does_not_stop_us(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    record = attrs.evolve(PidRecord.of_this_process(tmp_path), **change)
    text = f"{os.getpid()}\n{json.dumps(attrs.asdict(record))}\n"
    (tmp_path / "gateway.lock").write_text(text)
    (tmp_path / "gateway.pid").write_text(json.dumps(attrs.asdict(record)))
    start = time.monotonic()
    async with FleetMember(tmp_path, OPTIONS):
        assert time.monotonic() - start < 2


def test_c114_a_held_lock_of_another_host_is_held_and_its_pid_means_nothing(tmp_path: Path) -> None:
    """On a shared volume the lock itself is asked, never the number in it."""
    with gateway(tmp_path / "home") as daemon:
        own = attrs.evolve(PidRecord.of_this_process(tmp_path), pid=daemon.pid)
        for record in (attrs.evolve(own, host="another-host"), attrs.evolve(own, boot_id="another-boot")):
            (tmp_path / "home" / "gateway.lock").write_text(
                f"{daemon.pid}\n{json.dumps(attrs.asdict(record))}\n"
            )
            holder = lock_holder(tmp_path / "home")
            assert (holder.held, holder.pid) == (True, None)
            with pytest.raises(FleetError, match="cannot be told"):
                asyncio.run(stop_member(tmp_path / "home"))
    assert boot_id()


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="a pid namespace needs root")
def test_c114_the_same_number_in_a_new_pid_namespace(tmp_path: Path) -> None:
    """Two containers on one home: the second is refused by the lock although it sees itself under the recorded pid."""
    home = tmp_path / "home"
    with gateway(home):
        lock = home / "gateway.lock"
        pid, _, line = lock.read_text().partition("\n")
        lock.write_text(f"1\n{json.dumps({**json.loads(line), 'pid': 1})}\n")
        assert pid.isdigit()
        result = subprocess.run(
            ["unshare", "-p", "-f", "--mount-proc", sys.executable, "-m", "nedura_gateway"],
            env={**os.environ, "NEDURA_HOME": str(home), "PYTHONPATH": str(ROOT)},
            cwd=ROOT, capture_output=True, text=True, timeout=30, check=False,
        )  # fmt: skip
        assert result.returncode == 1, result.stderr
        assert "already runs" in result.stderr


# ---- C115: whole tokens only ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "role"),
    [
        (["vim", "/opt/nedura"], "none"),
        (["tail", "-f", "/var/log/nedura-gateway"], "none"),
        (["/usr/bin/nedura-gateway-server"], "none"),
        (["nedura-gatewayd"], "none"),
        (["python", "-m", "nedura_cli.main_extra", "gateway"], "none"),
        (["python", "/x/my_nedura_cli/main.py", "gateway"], "none"),
        (["python", "/x/nedura_cli/main.py", "gateway"], "gateway"),
        (["nedura", "gatewayx"], "command"),
        (["nedura", "--profile", "a", "gateway"], "gateway"),
    ],
)
def test_c115_whole_tokens_at_program_position(argv: list[str], role: str) -> None:
    assert classify(argv).role == role


def test_c115_unit_names_are_exact_families() -> None:
    families = NEDURA.unit_families[:1]
    assert in_family("nedura-gateway.service", families)
    assert in_family("nedura-gateway-ops.service", families)
    assert not in_family("nedura-gateways.service", families)
    assert not in_family("nedura-gateway_server.service", families)
    assert not in_family("x-nedura-gateway.service", families)


def test_c115_taking_over_one_profile_leaves_its_sibling(tmp_path: Path) -> None:
    root = tmp_path / "root"
    homes = [root / "profiles" / "ops", root / "profiles" / "ops-2"]
    for home in homes:
        home.mkdir(parents=True)
    with gateway(homes[0]) as ops, gateway(homes[1]) as sibling:
        assert asyncio.run(stop_member(homes[0]))
        assert ops.wait() == 0
        assert (sibling.identify() or {})["pid"] == sibling.pid


# ---- C116: one home, several spellings ------------------------------------------------------------------------------------------


def test_c116_every_spelling_is_one_home(tmp_path: Path) -> None:
    real = tmp_path / "data"
    real.mkdir()
    link = tmp_path / "link"
    link.symlink_to(real)
    spellings = [str(link), f"{link}/", f"{link}/../link", str(real)]
    scope = Scope.of([link])
    assert all(scope.home(home_key(text)) == link for text in spellings)
    with gateway(link) as daemon:
        for text in spellings:
            fleet = collect_now(Path(text))
            assert [row.pid for row in fleet.runtimes] == [daemon.pid], text
            assert all(item.pid != daemon.pid for item in fleet.foreign)


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="a bind mount needs root")
def test_c116_a_bind_mount_is_the_same_home(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    first.mkdir()
    second.mkdir()
    script = f"""
import subprocess, sys
subprocess.run(["mount", "--bind", {str(first)!r}, {str(second)!r}], check=True)
from nedura.fleet.scope import home_key, same_home
sys.exit(0 if same_home(home_key({str(first)!r}), home_key({str(second)!r})) else 3)
"""
    result = subprocess.run(
        ["unshare", "-m", sys.executable, "-c", script],
        cwd=ROOT,
        check=False,
        timeout=20,
        capture_output=True,
    )
    assert result.returncode == 0, result.stderr
    assert not same_home(home_key(first), home_key(second))
