"""Scenes under a real user manager: `real-systemd.sh user -n -- python -m tests.system.restart.scenes NAME`."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import attrs
import pytest

from nedura.fleet.budget import drain_limit
from nedura.fleet.inventory import collect, look
from nedura.fleet.model import Runtime
from nedura.fleet.rolling import left_alone, roll
from nedura.fleet.supervisors.base import RestartError
from nedura.fleet.supervisors.listing import list_services
from nedura.fleet.supervisors.systemctl import Systemctl
from nedura.fleet.supervisors.systemd import SystemdSupervisor
from nedura.fleet.supervisors.unit_state import why_down
from tests.integration.restart.daemon import identity
from tests.integration.restart.manual import ROOT, TOY
from tests.system.restart.host import Host, failed, new_host, parts, restart, restarted, systemctl

SCENES: Final[dict[str, Callable[[Host], Awaitable[None]]]] = {}


def scene(function: Callable[[Host], Awaitable[None]]) -> Callable[[Host], Awaitable[None]]:
    SCENES[function.__name__] = function
    return function


@scene
async def c075_a_delay_of_the_manager_is_not_waited_for(host: Host) -> None:
    """SIGUSR1, exit 75, `start` without the manager's own delay."""
    host.unit(RestartSec="30")
    host.release("1", turn="0.5")
    systemctl("restart", "nedura-gateway.service")
    member = await host.member()
    host.release("2", turn="0")
    begin = time.monotonic()
    events = await restart([member])
    took = time.monotonic() - begin
    assert restarted(events)["default"].pid != member.pid
    assert took < 10, f"{took} s: the manager's own delay was waited for"
    assert any(event.kind == "drain_waiting" for event in events)
    assert systemctl("show", "nedura-gateway.service", "-p", "MainPID", "--value").strip() == str(
        restarted(events)["default"].pid
    )


@scene
async def c073_stop_limit_shorter_than_drain(host: Host) -> None:
    """C073: the drain is no stop, so the manager's short stop limit does not cut it; a dead owner's lock blocks nobody."""
    host.release("1", command=f"while [ ! -e {host.root}/go ]; do sleep 0.05; done")
    host.unit(TimeoutStopSec="1")
    member = await host.member()
    (host.root / "gateway.pid").write_text("999999")
    host.release("2", command="")
    restarting = asyncio.ensure_future(restart([member]))
    await asyncio.sleep(2.5)
    now = await look(host.root)
    assert now is not None
    assert (now.pid, now.active_turns) == (member.pid, 1), "the turn was cut short"
    (host.root / "go").touch()
    assert restarted(await restarting)["default"]
    # and the blunt way: the manager kills it in mid-turn; its lock stays behind and blocks nobody
    host.release("3", turn="60", drain="60")
    systemctl("restart", "nedura-gateway.service")
    await host.member()
    host.release("4", turn="0")
    systemctl("restart", "nedura-gateway.service")
    after = await host.member()
    assert after.code == identity("4")


@scene
async def a_unit_that_never_comes_back(host: Host) -> None:
    host.unit(TimeoutStartSec="20")
    member = await host.member()
    host.release("2", fault="boot")
    begin = time.monotonic()
    events = await restart([member])
    failure = failed(events)["default"]
    assert failure.check == "boot"
    assert "exit code 1" in failure.reason
    assert failure.command == "systemctl --user restart nedura-gateway.service"
    assert time.monotonic() - begin < 40


@scene
async def a_start_that_hangs_before_ready(host: Host) -> None:
    host.unit(TimeoutStartSec="5")
    member = await host.member()
    host.release("2", fault="hang")
    begin = time.monotonic()
    events = await restart([member])
    assert failed(events)["default"].check == "ready"
    assert time.monotonic() - begin < 25, "what hangs once is not tried twice"


@scene
async def c093_a_refused_configuration(host: Host) -> None:
    """C093: exit 78 is not restarted by the manager, and the failure says why."""
    host.unit()
    member = await host.member()
    host.release("2", fault="config")
    events = await restart([member])
    failure = failed(events)["default"]
    assert failure.check == "config"
    assert "configuration" in failure.reason
    before = systemctl("show", "nedura-gateway.service", "-p", "NRestarts", "--value")
    await asyncio.sleep(1)
    assert systemctl("show", "nedura-gateway.service", "-p", "NRestarts", "--value") == before


@scene
async def c085_a_wrapper_as_main_process(host: Host) -> None:
    """C085: the gateway below a wrapper is found by its cgroup and restarted through the manager only."""
    wrapper = host.folder / "wrap.sh"
    wrapper.write_text(f"#!/bin/sh\n{TOY} gateway run\nexit $?\n")
    wrapper.chmod(0o755)
    host.unit(command=str(wrapper))
    member = await host.member()
    main_pid = int(systemctl("show", "nedura-gateway.service", "-p", "MainPID", "--value"))
    assert main_pid != member.pid
    assert (member.supervisor, member.unit) == ("systemd", "nedura-gateway.service")
    host.release("2")
    events = await restart([member])
    assert restarted(events)["default"]
    procs = Path("/sys/fs/cgroup") / systemctl(
        "show", member.unit, "-p", "ControlGroup", "--value"
    ).strip().lstrip("/")
    assert len((procs / "cgroup.procs").read_text().split()) == 2, "one wrapper, one gateway"


@scene
async def a_wrapper_that_stays(host: Host) -> None:
    """The main process outlives the gateway in it: only a restart of the whole unit helps."""
    wrapper = host.folder / "wrap.sh"
    wrapper.write_text(f"#!/bin/sh\ntrap 'exit 0' TERM\n{TOY} gateway run\nwhile :; do sleep 0.2; done\n")
    wrapper.chmod(0o755)
    host.unit(command=str(wrapper), TimeoutStopSec="3")
    member = await host.member()
    host.release("2")
    assert restarted(await restart([member]))["default"]


@scene
async def restart_on_failure_only(host: Host) -> None:
    host.unit(Restart="on-failure", RestartForceExitStatus="", SuccessExitStatus="")
    member = await host.member()
    host.release("2")
    assert restarted(await restart([member]))["default"]


@scene
async def no_restart_at_all(host: Host) -> None:
    host.unit(Restart="no", RestartForceExitStatus="")
    member = await host.member()
    host.release("2")
    assert restarted(await restart([member]))["default"]


@scene
async def a_drained_unit_costs_one_question_and_one_start(host: Host) -> None:
    """What its control group and its own READY say is not asked of the manager, too: each call keeps a member down for longer."""
    host.unit()
    member = await host.member()
    calls = host.folder / "calls"
    wrapper = host.folder / "bin" / "systemctl"
    wrapper.parent.mkdir()
    real = shutil.which("systemctl")
    wrapper.write_text(f'#!/bin/sh\necho "$*" >> {shlex.quote(str(calls))}\nexec {real} "$@"\n')
    wrapper.chmod(0o755)
    environ = {**os.environ, "PATH": f"{wrapper.parent}:{os.environ['PATH']}"}
    host.release("2")
    assert restarted(await restart([member], supervisors={"systemd": SystemdSupervisor(environ=environ)}))
    verbs = [next(word for word in line.split() if word[0] != "-") for line in calls.read_text().splitlines()]
    assert verbs == ["show", "restart"]


@scene
async def a_successor_that_the_manager_started_is_not_restarted(host: Host) -> None:
    """Whoever drains it late finds a unit that runs again: it is left alone."""
    host.unit(RestartSec="1")
    member = await host.member()
    supervisor = SystemdSupervisor()
    await supervisor.arm(member)
    host.release("2")
    os.kill(member.pid, signal.SIGUSR1)
    async with asyncio.timeout(20):
        while (successor := await host.member()).pid == member.pid:
            await asyncio.sleep(0.05)
    await supervisor.revive(member, lambda words: None)
    assert (await host.member()).pid == successor.pid


@scene
async def a_masked_unit_is_left_running(host: Host) -> None:
    unit = host.unit()
    member = await host.member()
    path = Path(os.environ["HOME"]) / ".config/systemd/user" / unit
    path.unlink()
    path.symlink_to("/dev/null")
    systemctl("daemon-reload")
    events = await restart([member])
    assert failed(events)["default"].check == "masked"
    now = await look(member.home)
    assert now is not None
    assert now.pid == member.pid, "it would not have come back"


@scene
async def a_hung_manager(host: Host) -> None:
    host.unit()
    member = await host.member()
    manager = int(
        subprocess.run(
            ["pgrep", "-f", "systemd --user"], capture_output=True, text=True, check=True
        ).stdout.split()[0]
    )
    os.kill(manager, signal.SIGSTOP)
    try:
        begin = time.monotonic()
        events = await restart([member])
        assert time.monotonic() - begin < 9, "systemctl itself would block for 90 s"
        assert failed(events)["default"].check == "manager"
        now = await look(member.home)
        assert now is not None
        assert now.pid == member.pid, "nothing is stopped that cannot be started"
    finally:
        os.kill(manager, signal.SIGCONT)


@scene
async def a_drain_before_ready(host: Host) -> None:
    """A unit that is just starting gets to be ready before it is drained."""
    host.release("1", boot="1.5")
    unit = host.unit(start=False)
    systemctl("start", "--no-block", unit)
    async with asyncio.timeout(10):
        while (member := await look(host.root)) is None:
            await asyncio.sleep(0.02)
    assert member.state == "starting"
    host.release("2", boot="0")
    events = await restart([member])
    assert restarted(events)["default"].pid != member.pid
    assert systemctl("show", unit, "-p", "Result", "--value").strip() == "success"


@scene
async def a_turn_longer_than_the_budget(host: Host) -> None:
    """A drain that outlasts every limit is followed by the blunt restart, and says what it waited for."""
    host.release("1", turn="3600", drain="3600")
    host.unit(TimeoutStopSec="2")
    member = await host.member()
    host.release("2", turn="0", drain="1")
    assert drain_limit(0.0) == 45
    short = attrs.evolve(member, drain_budget_s=1.0)
    events = await asyncio.wait_for(restart([short], drain_limit=lambda declared: 2.0), 30)
    assert any(event.kind == "drain_waiting" and "1 running turn" in event.copy for event in events)
    assert restarted(events)["default"]


@scene
async def c070_ten_units_one_hangs(host: Host) -> None:
    names = [f"p{index}" for index in range(10)]
    for name in names:
        host.unit(name, start=False, TimeoutStartSec="8")
    systemctl("start", *[f"nedura-gateway-{name}.service" for name in names])
    members = [await host.member(name) for name in names]
    host.release("2")
    (host.home("p7") / "fault").write_text("hang")
    events = await restart(members)
    assert set(failed(events)) == {"p7"}
    assert set(restarted(events)) == set(names) - {"p7"}


@scene
async def two_units_of_one_process(host: Host) -> None:
    """Two definitions, one process: it restarts once."""
    host.unit()
    member = await host.member()
    host.release("2")
    events = await restart([member, attrs.evolve(member, unit="hermes-gateway.service")])
    assert len([event for event in events if event.kind == "restart_started"]) == 1


@scene
async def c072_a_client_timeout_is_watched(host: Host) -> None:
    """The client's end is not the job's end; the job is watched and the unit read again before anything is judged."""
    host.release("1")
    host.unit(TimeoutStartSec="40")
    member = await host.member()
    supervisor = SystemdSupervisor()
    await supervisor.arm(member)
    said: list[str] = []
    armed = supervisor._armed["user", member.unit]
    host.release("2", fault="gate")

    def say(words: str) -> None:
        said.append(words)
        (host.root / "gate").touch()  # what the start waits for

    await supervisor._run_job(armed, "restart", 3.0, say)
    assert any("restart running" in words or "start running" in words for words in said), said
    assert (await host.member()).code == identity("2")


@scene
async def the_client_timeout_of_a_job_that_goes_on(host: Host) -> None:
    host.release("1")
    host.unit(TimeoutStartSec="40")
    member = await host.member()
    supervisor = SystemdSupervisor()
    await supervisor.arm(member)
    host.release("2", fault="gate")
    with pytest.raises(RestartError, match="not complete") as caught:
        await supervisor._run_job(supervisor._armed["user", member.unit], "restart", 0.7, lambda words: None)
    assert caught.value.incomplete
    (host.root / "gate").touch()
    assert (await host.member()).code == identity("2")


@scene
async def overhead_of_showing_many_units(host: Host) -> None:
    """One call tells about all units of our families."""
    for name in ("a", "b"):
        host.unit(name)
    states = await Systemctl("user").show("nedura-gateway*", "hermes-gateway*")
    assert {state.name for state in states} == {"nedura-gateway-a.service", "nedura-gateway-b.service"}
    assert all(state.running and state.environment["NEDURA_HOME"] for state in states)


async def run_inside(host: Host, unit: str, result: Path, *options: str) -> None:
    """Start an updater in a unit's control group and wait for its end."""
    cgroup = systemctl("show", unit, "-p", "ControlGroup", "--value").strip().lstrip("/")
    procs = Path("/sys/fs/cgroup") / cgroup / "cgroup.procs"
    shell = f"echo $$ > {procs}; exec {shlex.quote(sys.executable)} -m tests.system.restart.inside {host.root} {result} {' '.join(options)}"
    updater = await asyncio.create_subprocess_exec("/bin/sh", "-c", shell)
    await updater.wait()


@scene
async def c079_an_updater_in_the_gateways_own_cgroup(host: Host) -> None:
    """C079: it moves to its own scope first, so the restart that it asks for does not end it."""
    unit = host.unit()
    member = await host.member()
    host.release("2")
    result = host.folder / "result"
    await run_inside(host, unit, result)
    told = json.loads(result.read_text())
    assert told == {"unit": "", "kinds": told["kinds"]}
    assert told["kinds"][-1] == "member_restarted"
    assert (await host.member()).pid != member.pid


@scene
async def c079_an_updater_that_cannot_leave_the_cgroup(host: Host) -> None:
    """Without a scope the gateway is told last and not waited for; it restarts when the updater has ended."""
    unit = host.unit(ExecStopPost="")
    member = await host.member()
    host.release("2")
    result = host.folder / "result"
    await run_inside(host, unit, result, "--stay")
    async with asyncio.timeout(15):
        while (now := await look(host.root)) is None or now.pid == member.pid:
            await asyncio.sleep(0.05)


@scene
async def c070_five_units_three_homes(host: Host) -> None:
    """C070, C080: every unit of our homes, whatever its name; none of another home, whatever its name."""
    other = host.folder / "other"
    other.mkdir(mode=0o700)
    host.unit()
    host.unit("a")
    host.unit("b", name="my-bot.service")
    host.unit("c", name="hermes-gateway-c.service")
    foreign = host.unit(name="hermes-gateway.service", home=other)
    before = await host.member(home=other)
    for profile in ("default", "a", "b", "c"):
        await host.member(profile)
    listing = await list_services()
    assert {service.name for service in listing.services} == {
        "nedura-gateway.service", "nedura-gateway-a.service", "my-bot.service", "hermes-gateway-c.service", foreign,
    }  # fmt: skip
    fleet = await collect(host.root, services=listing.services, install_id="d" * 12)
    assert {(one.profile, one.unit) for one in fleet.runtimes} == {
        ("default", "nedura-gateway.service"), ("a", "nedura-gateway-a.service"), ("b", "my-bot.service"),
        ("c", "hermes-gateway-c.service"),
    }  # fmt: skip
    named = left_alone(fleet.foreign)
    assert any(foreign in event.name and str(other) in event.copy_terminal for event in named), named
    host.release("2")
    events = await restart(fleet.runtimes)
    assert set(restarted(events)) == {"default", "a", "b", "c"}
    after = await host.member(home=other)
    assert (after.pid, after.start_time) == (before.pid, before.start_time)


@scene
async def a_sealed_roll_with_a_bad_build(host: Host) -> None:
    """One member leaves service; the others are not touched."""
    names = [f"p{index}" for index in range(4)]
    for name in names:
        host.unit(name, TimeoutStartSec="20")
    members = [await host.member(name) for name in names]
    host.release("2", fault="version")
    events = [event async for event in roll(members, identity("2"), parts=parts(), sealed=True, settle=1)]
    assert [event.check for event in failed(events).values()] == ["version"]
    assert sum(event.kind == "restart_started" for event in events) == 1
    untouched = [await look(member.home) for member in members[1:]]
    assert [one.pid for one in untouched if one] == [member.pid for member in members[1:]]


@scene
async def c074_a_failed_unit_is_revived(host: Host) -> None:
    """C074: once its folder is back, reset-failed and start bring it up; the real status is decoded."""
    folder = host.folder / "work"
    unit = host.unit(WorkingDirectory=str(folder), start=False, Restart="no")
    systemctl("start", unit, check=False)
    state = await Systemctl("user").state(unit)
    assert (state.active, state.exit_status) == ("failed", 200)
    assert why_down(state) == ("boot", "its working directory cannot be entered (exit code 200)")
    folder.mkdir()
    host.release("2")
    supervisor = SystemdSupervisor()
    ghost = Runtime(
        kind="gateway", profile="default", pid=2**22, start_time=1, home=host.root, supervisor="systemd", unit=unit, unit_scope="user"
    )  # fmt: skip
    await supervisor.arm(ghost)
    await supervisor.revive(ghost, lambda words: None)
    assert (await host.member()).code == identity("2")


@scene
async def c093_a_start_limit_is_named_and_lifted(host: Host) -> None:
    """C093: the start limit has a name, and a good build after it comes up."""
    host.release("1", fault="boot")
    unit = host.unit(start=False, RestartSec="0.05", Restart="always")
    path = Path(os.environ["HOME"]) / ".config/systemd/user" / unit
    path.write_text(
        path.read_text().replace("StartLimitIntervalSec=0", "StartLimitIntervalSec=60\nStartLimitBurst=3")
    )
    systemctl("daemon-reload")
    systemctl("start", unit, check=False)
    async with asyncio.timeout(20):
        while (state := await Systemctl("user").state(unit)).active != "failed":
            await asyncio.sleep(0.1)
    assert why_down(state)[0] in ("start_limit", "boot")
    assert state.restarts <= 4
    host.release("2", fault="")
    ghost = Runtime(
        kind="gateway", profile="default", pid=2**22, start_time=1, home=host.root, supervisor="systemd", unit=unit, unit_scope="user"
    )  # fmt: skip
    supervisor = SystemdSupervisor()
    await supervisor.arm(ghost)
    await supervisor.revive(ghost, lambda words: None)
    assert (await host.member()).code == identity("2")


@scene
async def c163_two_services_for_one_home(host: Host) -> None:
    """The second sees a live owner and ends with the code that is not restarted: nobody ends anybody."""
    command = f"{shlex.quote(sys.executable)} -m nedura_cli gateway run"
    paths = shlex.quote(f"PYTHONPATH={ROOT}:{ROOT}/renderers/cli:{ROOT}/renderers/gateway")
    host.unit(command=f"/usr/bin/env {paths} {command}")
    member = await host.member()
    second = host.unit(name="nedura-gateway-twin.service", home=host.root, command=f"/usr/bin/env {paths} {command}", start=False,
                       RestartSec="0.2")  # fmt: skip
    systemctl("start", second, check=False)
    async with asyncio.timeout(20):
        while (state := await Systemctl("user").state(second)).active not in ("failed", "inactive"):
            await asyncio.sleep(0.1)
    assert state.exit_status == 78
    assert state.restarts == 0
    now = await look(host.root)
    assert now is not None
    assert now.pid == member.pid


def main(name: str) -> int:
    asyncio.run(asyncio.wait_for(SCENES[name](new_host()), 105))
    sys.stdout.write(f"scene {name}: done\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
