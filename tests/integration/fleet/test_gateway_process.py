"""The gateway as a real process: three ways to start it, chat turns, drain, exit codes, replacement."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from nedura.fleet import ask_now, collect_now, judge, lock_holder
from nedura.installs import running_code
from tests.kits.fleet import ROOT, child_environ, gateway, read_answer, say, wait_for

SCRIPT = "renderers/gateway/nedura_gateway/run.py"


def cli(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "nedura_cli.main", *arguments],
        cwd=ROOT,
        env=child_environ(home),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


@pytest.mark.parametrize(
    "command",
    [("-m", "nedura_cli", "gateway"), ("-m", "nedura_gateway"), (SCRIPT,)],
    ids=["bare gateway", "module", "script"],
)
def test_every_entry_is_the_same_gateway(tmp_path: Path, command: tuple[str, ...]) -> None:
    home = tmp_path / "home"
    before = running_code()
    with gateway(home, command=command) as daemon:
        answer = daemon.wait_running()
        assert answer["pid"] == daemon.pid
        assert answer["code_sha"] in {before.code_sha, running_code().code_sha}  # a commit may come between
        found = json.loads(cli(home, "fleet", "explain", "--json", str(daemon.pid)).stdout)
        assert (found["gateway_run"], found["home"], found["supervisor"]) == (True, str(home), "manual")
        daemon.signal(signal.SIGINT)
        assert daemon.wait() == 0


def test_three_gateways_are_three_rows_with_identity(tmp_path: Path) -> None:
    root = tmp_path / "root"
    homes = [root, root / "profiles" / "a", root / "profiles" / "b"]
    for home in homes:
        home.mkdir(parents=True)
    with gateway(homes[0]) as one, gateway(homes[1]) as two, gateway(homes[2]) as three:
        result = cli(root, "fleet", "status", "--json")
        assert result.returncode == 0, result.stderr
        status = json.loads(result.stdout)
        rows = {row["profile"]: row for row in status["rows"]}
        assert {name: row["pid"] for name, row in rows.items()} == {
            "default": one.pid, "a": two.pid, "b": three.pid,
        }  # fmt: skip
        assert all(len(row["code_sha"]) == 40 for row in rows.values())
        assert all(row["source"] == "socket" for row in rows.values())
        text = cli(root, "fleet", "status").stdout
        assert all(f"(pid {daemon.pid})" in text for daemon in (one, two, three))


def test_a_running_turn_ends_before_the_restart_and_new_ones_are_refused(tmp_path: Path) -> None:
    home, finish = tmp_path / "home", tmp_path / "finish"
    with gateway(home) as daemon, daemon.connect() as link:
        link.sendall(json.dumps({"text": f"until {finish}", "chat": "a"}).encode() + b"\n")
        wait_for(lambda: (daemon.identify() or {}).get("active_agents") == 1)
        daemon.signal(signal.SIGUSR1)
        wait_for(lambda: (daemon.identify() or {}).get("gateway_state") == "draining")
        refused = daemon.chat("0.1")
        assert (refused[-1]["error"], refused[-1]["done"]) == ("draining", True)
        assert daemon.process.poll() is None
        finish.touch()
        answer = read_answer(link)
        assert answer[-1] == {"done": True}
        assert "".join(line.get("delta", "") for line in answer).endswith("words")
        assert daemon.wait() == 75


def test_history_and_a_bad_line(tmp_path: Path) -> None:
    with gateway(tmp_path / "home") as daemon, daemon.connect() as link:
        assert say(link, "0.1")[-1] == {"done": True}
        link.sendall(b"{nonsense\n")
        assert read_answer(link)[-1]["error"] == "bad_message"
        assert say(link, "0.1")[-1] == {"done": True}, "one bad line does not cost the connection"
        assert say(link, "not a number")[-1]["error"] == "internal"
        assert daemon.process.poll() is None


def test_nobody_is_signed_in_is_said_plainly(tmp_path: Path) -> None:
    with gateway(tmp_path / "home", handler="") as daemon:
        (answer,) = daemon.chat("hello")
        assert (answer["error"], answer["done"]) == ("refused", True)
        assert "signed in" in answer["copy"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 1), (signal.SIGINT, 0), (signal.SIGUSR1, 75)])
def test_exit_codes(tmp_path: Path, number: signal.Signals, code: int) -> None:
    with gateway(tmp_path / "home") as daemon:
        daemon.signal(number)
        assert daemon.wait() == code


def test_permanent_refusals_are_78(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with gateway(home, handler="no_such_module:answer", ready=False) as daemon:
        assert daemon.wait() == 78
    (home / "config.yaml").write_text("agent: [unclosed\n")
    with gateway(home, ready=False) as daemon:
        assert daemon.wait() == 78
        assert "config.yaml" in daemon.said()


def test_a_second_gateway_is_refused_and_hurts_nobody(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with gateway(home) as first:
        with gateway(home, ready=False) as second:
            assert second.wait() == 1
            assert "already runs" in second.said()
        with gateway(home, "--external-supervisor", ready=False) as third:
            assert third.wait() == 75, "for a supervised start a taken home is transient"
        assert (first.identify() or {})["pid"] == first.pid


def test_replace_takes_over_with_notice(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with gateway(home) as first, gateway(home, "--replace", ready=False) as second:
        assert first.wait() == 0, "a takeover is a clean end"
        wait_for(lambda: (ask_now(home, "identify") or {}).get("pid") == second.pid)
        assert lock_holder(home).pid == second.pid


def test_kill_9_leaves_nothing_that_stops_the_next_start(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with gateway(home) as first:
        first.process.kill()
        first.wait()
        fleet = collect_now(home)
        assert not fleet.runtimes
        assert [gone.pid for gone in fleet.gone] == [first.pid]
        assert [row.state for row in judge(running_code(), fleet, before=fleet.gone)] == ["down"]
        with gateway(home) as second:
            assert second.wait_running()["pid"] == second.pid
            assert not collect_now(home).gone


def test_starts_that_follow_each_other_too_fast_wait(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "gateway-starts.log").write_text("".join(f"{time.time():.3f}\n" for _ in range(5)))
    with gateway(home, ready=False) as daemon:
        wait_for(lambda: "waiting 5 s" in daemon.said(), 20)
        assert daemon.identify() is None
        assert daemon.process.poll() is None


def test_a_host_daemon_is_a_member_by_three_lines(tmp_path: Path) -> None:
    """What a host application writes; its command line is its own, its claim speaks for it."""
    home = tmp_path / "home"
    home.mkdir()
    script = tmp_path / "hostd.py"
    script.write_text(
        "import asyncio, nedura\n"
        "async def main():\n"
        "    async with nedura.FleetMember() as member:\n"
        "        async with member.turn('boot'):\n"
        "            pass\n"
        "        await member.wait_stopped()\n"
        "    return member.exit_code\n"
        "raise SystemExit(asyncio.run(main()))\n"
    )
    before = running_code()
    process = subprocess.Popen([sys.executable, str(script)], env=child_environ(home))
    try:
        wait_for(lambda: ask_now(home, "identify"))
        (row,) = collect_now(home).runtimes
        assert (row.pid, row.state) == (process.pid, "running")
        assert row.code.code_sha in {before.code_sha, running_code().code_sha}
        found = json.loads(cli(home, "fleet", "explain", "--json", str(process.pid)).stdout)
        assert found["gateway_run"] is True
        assert "claim" in found["why"]
        process.send_signal(signal.SIGUSR1)
        assert process.wait(10) == 75
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(10)


def test_explain_speaks_exact_json(tmp_path: Path) -> None:
    result = cli(
        tmp_path,
        "fleet",
        "explain",
        "--json",
        "--",
        "python",
        "-m",
        "nedura_cli.main",
        "-p",
        "ops",
        "gateway",
    )
    found: dict[str, Any] = json.loads(result.stdout)
    assert list(found) == ["gateway_run", "profile", "subcommand", "home", "supervisor", "why"]
    assert (found["gateway_run"], found["profile"], found["subcommand"]) == (True, "ops", "gateway")
    dead = json.loads(cli(tmp_path, "fleet", "explain", "--json", "999999999").stdout)
    assert dead["gateway_run"] is False
    own = json.loads(cli(tmp_path, "fleet", "explain", "--json", str(os.getpid())).stdout)
    assert own["gateway_run"] is False


def test_killed_at_any_instant_the_next_start_works(tmp_path: Path) -> None:
    home = tmp_path / "home"
    for delay in (0.05, 0.15, 0.25, 0.35, 0.5):
        with gateway(home, ready=False, environ={"NEDURA_GATEWAY_MAX_STARTS": "100"}) as daemon:
            time.sleep(delay)
            daemon.process.kill()
            daemon.wait()
    with gateway(home, environ={"NEDURA_GATEWAY_MAX_STARTS": "100"}) as daemon:
        assert daemon.chat("0.1")[-1] == {"done": True}


def test_of_five_starts_at_once_one_wins(tmp_path: Path) -> None:
    home = tmp_path / "home"
    environ = {"NEDURA_GATEWAY_MAX_STARTS": "100"}
    with ExitStack() as stack:
        daemons = [stack.enter_context(gateway(home, ready=False, environ=environ)) for _ in range(5)]
        wait_for(lambda: sum(daemon.process.poll() is None for daemon in daemons) == 1, 40, "four refusals")
        (winner,) = [daemon for daemon in daemons if daemon.process.poll() is None]
        assert winner.wait_running()["pid"] == winner.pid
        assert {daemon.process.poll() for daemon in daemons} == {None, 1}


def test_a_verb_about_the_machines_services_leaves_a_gateway_started_by_hand_alone(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with gateway(home) as daemon:
        stopped = cli(home, "gateway", "stop", "--system", "--all")
        assert (stopped.returncode, "Nothing to do" in stopped.stdout) == (0, True), stopped
        restarted = cli(home, "gateway", "restart", "--system")
        assert restarted.returncode == 1
        assert "None of the gateways that run is the machine's service" in restarted.stdout
        assert daemon.wait_running()["pid"] == daemon.pid


def test_a_gateway_that_is_down_is_shown_with_its_last_words_and_what_starts_it(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with gateway(home) as daemon:
        daemon.signal(signal.SIGTERM)  # nobody announced it
        daemon.wait()
        shown = cli(home, "gateway", "status").stdout
        assert f"(last end: process {daemon.pid}: signal SIGTERM without notice)" in shown
        fleet = cli(home, "fleet", "status").stdout
        assert "DOWN" in fleet
        assert "nedura gateway run" in fleet.splitlines()[-2], "a restart finds no gateway to restart"


def test_a_stop_notice_counts_although_the_kernel_handles_it_after_the_signal_behind_it(
    tmp_path: Path,
) -> None:
    """`systemctl stop`: SIGINT from ExecStop, then SIGTERM. Both pending at once, SIGTERM's handler runs first."""
    with gateway(tmp_path / "home") as daemon:
        for number in (signal.SIGSTOP, signal.SIGINT, signal.SIGTERM, signal.SIGCONT):
            daemon.signal(number)
        assert daemon.wait() == 0


def test_a_restart_of_a_served_profile_names_the_gateway_that_serves_it(tmp_path: Path) -> None:
    """One process serves both: restarting it for one of them is asked for by name, and nobody is told that nothing runs."""
    root = tmp_path / "root"
    (root / "profiles" / "a").mkdir(parents=True)
    (root / "config.yaml").write_text("gateway:\n  multiplex_profiles: true\n")
    with gateway(root) as daemon:
        daemon.wait_running()
        wait_for(lambda: "a" in ((ask_now(root, "identify") or {}).get("served_profiles") or ()), 10)
        result = cli(root, "-p", "a", "gateway", "restart")
        assert result.returncode == 2
        assert (
            f"Profile a is served by the gateway of profile default (process {daemon.pid})" in result.stderr
        )
        assert "nedura -p default gateway restart" in result.stderr
        assert ask_now(root, "identify", {})["pid"] == daemon.pid  # type: ignore[index]
