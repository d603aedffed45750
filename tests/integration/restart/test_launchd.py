from __future__ import annotations

import asyncio
import os
import plistlib
import shlex
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import attrs
import psutil
import pytest

from nedura.errors import FleetError, RefusedError
from nedura.fleet.inventory import collect, look
from nedura.fleet.model import Runtime
from nedura.fleet.restart import RestartParts
from nedura.fleet.restart_events import MemberFailed, MemberRestarted, RestartEvent
from nedura.fleet.rolling import restart_rest
from nedura.fleet.service.launchd import LaunchdManager
from nedura.fleet.service.place import ServicePlace, account_named
from nedura.fleet.service.verbs import Services
from nedura.fleet.supervisors.launchctl import parse_list, parse_print
from nedura.fleet.supervisors.launchd import LaunchdPace, LaunchdSupervisor
from nedura.fleet.supervisors.listing import list_services
from tests.integration.restart.daemon import identity
from tests.integration.restart.launchd import fake_launchd
from tests.integration.restart.manual import add_profile, make_root

PACE = LaunchdPace(respawn=1.5, fresh_pid=5.0, bootstrap=10.0)


def services_for(home: Path, environ: dict[str, str], folder: Path) -> Services:
    account = attrs.evolve(
        account_named("root") if os.getuid() == 0 else account_named(os.environ["USER"]), home=folder
    )
    place = ServicePlace(
        platform="darwin",
        account=account,
        euid=os.geteuid(),
        user_units=folder / "none",
        agents=folder / "LaunchAgents",
    )
    return Services(
        home=home,
        place=place,
        managers=[LaunchdManager(place, environ=environ, pace=PACE)],
        environ=dict(environ),
    )


async def told(stream: AsyncIterator[Any]) -> list[Any]:
    return [event async for event in stream]


async def member(home: Path, *, not_pid: int = 0) -> Runtime:
    async with asyncio.timeout(15):
        while True:
            found = await look(home)
            if found is not None and found.pid != not_pid and found.state == "running":
                return attrs.evolve(found, supervisor="launchd", unit="", unit_scope="")
            await asyncio.sleep(0.02)


def labelled(runtime: Runtime, services: Services) -> Runtime:
    return attrs.evolve(runtime, unit=services.managers[0].name_for(runtime.home))


async def restart(environ: dict[str, str], members: list[Runtime], **more: Any) -> list[RestartEvent]:
    supervisor = LaunchdSupervisor(environ=environ, pace=more.pop("pace", PACE))
    parts = RestartParts(supervisors={"launchd": supervisor}, look=look, tick=0.2, serving_timeout=10, **more)
    return [event async for event in restart_rest(members, identity("2"), parts=parts)]


async def test_keepalive_answers_a_drain_and_nothing_is_kicked(tmp_path: Path) -> None:
    root = make_root(tmp_path)
    async with fake_launchd(tmp_path / "bin") as (launchd, environ):
        services = services_for(root, environ, tmp_path)
        await told(services.install())
        before = labelled(await member(root), services)
        (root / "version").write_text("2")
        calls = len(launchd.log)
        events = await restart(environ, [before])
        (done,) = [event for event in events if isinstance(event, MemberRestarted)]
        assert done.pid != before.pid
        assert not [call for call in launchd.log[calls:] if not call.startswith("print ")]


async def test_a_throttled_label_is_kickstarted_without_k(tmp_path: Path) -> None:
    root = make_root(tmp_path)
    async with fake_launchd(tmp_path / "bin", minimum=30.0) as (launchd, environ):
        services = services_for(root, environ, tmp_path)
        await told(services.install())
        before = labelled(await member(root), services)
        (root / "version").write_text("2")
        events = await restart(environ, [before], pace=attrs.evolve(PACE, respawn=0.3))
        assert [event for event in events if isinstance(event, MemberRestarted)]
        assert f"kickstart {launchd.domain}/{before.unit}" in launchd.log


async def test_force_kills_and_starts(tmp_path: Path) -> None:
    root = make_root(tmp_path)
    async with fake_launchd(tmp_path / "bin") as (launchd, environ):
        services = services_for(root, environ, tmp_path)
        await told(services.install())
        before = labelled(await member(root), services)
        supervisor = LaunchdSupervisor(environ=environ, pace=PACE)
        await supervisor.arm(before)
        await supervisor.force(before, lambda words: None)
        assert f"kickstart -k {launchd.domain}/{before.unit}" in launchd.log
        assert (await member(root)).pid != before.pid


async def test_over_ssh_the_label_is_in_the_other_domain(tmp_path: Path) -> None:
    root = make_root(tmp_path)
    async with fake_launchd(tmp_path / "bin", f"user/{os.getuid()}") as (launchd, environ):
        services = services_for(root, environ, tmp_path)
        await told(services.install())
        before = labelled(await member(root), services)
        (root / "version").write_text("2")
        events = await restart(environ, [before])
        assert [event for event in events if isinstance(event, MemberRestarted)]
        assert launchd.jobs


async def test_a_label_that_is_not_loaded_is_left_running(tmp_path: Path) -> None:
    root = make_root(tmp_path)
    async with fake_launchd(tmp_path / "bin") as (launchd, environ):
        services = services_for(root, environ, tmp_path)
        await told(services.install())
        before = attrs.evolve(labelled(await member(root), services), unit="ai.nedura.gateway-gone")
        events = await restart(environ, [before])
        (failed,) = [event for event in events if isinstance(event, MemberFailed)]
        assert failed.check == "missing"
        assert "launchctl kickstart -k" in failed.command
        assert psutil.pid_exists(before.pid)
        assert len(launchd.jobs) == 1


async def test_one_hanging_label_does_not_hold_up_the_others(tmp_path: Path) -> None:
    root = make_root(tmp_path)
    home = add_profile(root, "a")
    async with fake_launchd(tmp_path / "bin") as (launchd, environ):
        members = []
        for one in (root, home):
            services = services_for(one, environ, tmp_path)
            await told(services.install())
            members.append(labelled(await member(one), services))
        launchd.hang.add(members[0].unit)
        (root / "version").write_text("2")
        supervisor = LaunchdSupervisor(environ=environ, pace=PACE)
        supervisor._launchctl.call = _short(supervisor._launchctl.call)  # type: ignore[method-assign]
        parts = RestartParts(supervisors={"launchd": supervisor}, look=look, serving_timeout=10)
        events = [event async for event in restart_rest(members, identity("2"), parts=parts)]
        (failed,) = [event for event in events if isinstance(event, MemberFailed)]
        assert (failed.unit, failed.check) == (members[0].unit, "manager")
        assert [event.profile for event in events if isinstance(event, MemberRestarted)] == ["a"]


def _short(call: Any) -> Any:
    async def quick(*args: str, timeout: float = 1.0) -> Any:
        return await call(*args, timeout=1.0)

    return quick


async def test_the_life_of_an_agent(tmp_path: Path) -> None:
    """A refresh waits for the asynchronous bootout, and a refused bootstrap (exit 5) is tried again."""
    root = make_root(tmp_path)
    async with fake_launchd(tmp_path / "bin") as (launchd, environ):
        services = services_for(root, environ, tmp_path)
        events = await told(services.install())
        assert events[0].change == "installed"
        first = await member(root)
        plist = tmp_path / "LaunchAgents" / f"{services.managers[0].name_for(root)}.plist"
        definition = plistlib.loads(plist.read_bytes())
        assert definition["KeepAlive"] == {"SuccessfulExit": False}
        assert "--replace" not in definition["ProgramArguments"]
        assert [event.change for event in await told(services.install())] == ["unchanged"]
        definition["ThrottleInterval"] = 99
        plist.write_bytes(plistlib.dumps(definition))
        (row,) = await told(services.status())
        assert (row.outdated, row.pid) == (("ThrottleInterval",), launchd.jobs[row.name].pid)
        assert (await told(services.install()))[0].change == "refreshed"
        second = await member(root, not_pid=first.pid)
        assert second.pid
        assert [event.change for event in await told(services.stop())] == ["stopped"]
        assert await look(root) is None
        await told(services.start())
        await member(root)
        assert [event.change for event in await told(services.uninstall())] == ["removed"]
        assert not plist.exists()
        async with asyncio.timeout(5):
            while launchd.jobs:  # its process has ended; launchd itself tidies up a moment later
                await asyncio.sleep(0.02)


async def test_bootstrap_is_tried_again_while_the_old_job_goes(tmp_path: Path) -> None:
    root = make_root(tmp_path)
    async with fake_launchd(tmp_path / "bin", linger=1.2) as (launchd, environ):
        services = services_for(root, environ, tmp_path)
        await told(services.install())
        await member(root)
        label = services.managers[0].name_for(root)
        supervisor = LaunchdSupervisor(environ=environ, pace=PACE)
        said: list[str] = []
        await supervisor._launchctl.call("bootout", f"{launchd.domain}/{label}")
        await supervisor.bootstrap(launchd.domain, tmp_path / "LaunchAgents" / f"{label}.plist", said.append)
        assert said
        await member(root)
        # loaded already is well
        await supervisor.bootstrap(launchd.domain, tmp_path / "LaunchAgents" / f"{label}.plist", said.append)


async def test_a_refused_configuration_is_not_started_again(tmp_path: Path) -> None:
    """launchd would restart every failure: 78 reaches it as 0."""
    root = make_root(tmp_path)
    (root / "fault").write_text("config")
    async with fake_launchd(tmp_path / "bin", minimum=0.05) as (launchd, environ):
        services = services_for(root, environ, tmp_path)
        await told(services.install(start=False))
        (job,) = launchd.jobs.values()
        async with asyncio.timeout(10):
            while job.last_exit != "0":
                await asyncio.sleep(0.05)
        await asyncio.sleep(0.3)
        assert job.runs == 1


async def test_a_foreign_agent_is_named_and_left_alone(tmp_path: Path) -> None:
    root = make_root(tmp_path)
    (tmp_path / "y").mkdir()
    other = make_root(tmp_path / "y")
    async with fake_launchd(tmp_path / "bin") as (launchd, environ):
        await told(services_for(other, environ, tmp_path).install())
        before = await member(other)
        listing = await list_services(platform="darwin", agents=tmp_path / "LaunchAgents", environ=environ)
        fleet = await collect(root, services=listing.services, install_id="d" * 12)
        assert [(one.what, one.home) for one in fleet.foreign if one.what == "launchd job"] == [
            ("launchd job", other)
        ]
        assert not fleet.runtimes
        services = services_for(root, environ, tmp_path)
        await told(services.uninstall())
        with pytest.raises(RefusedError):
            await told(services.start())
        assert (await member(other)).pid == before.pid
        assert launchd.jobs


async def test_a_stop_waits_for_the_process_that_print_has_forgotten(tmp_path: Path) -> None:
    """bootout is accepted at once and the label unknown at once; the process still drains its turn."""
    root = make_root(tmp_path)
    async with fake_launchd(tmp_path / "bin") as (launchd, environ):
        services = services_for(root, environ, tmp_path)
        await told(services.install())
        before = await member(root)
        os.kill(before.pid, signal.SIGSTOP)  # its end is ours to give, however busy the machine is
        launched = launchd.jobs[services.managers[0].name_for(root)]
        stopped = asyncio.ensure_future(told(services.stop()))
        async with asyncio.timeout(10):
            while not launched.leaving:
                await asyncio.sleep(0.01)
        ran = await LaunchdSupervisor(environ=environ)._launchctl.call(
            "print", f"{launchd.domain}/{launched.label}"
        )
        assert (ran.status, psutil.pid_exists(before.pid)) == (113, True)
        assert not stopped.done()
        os.kill(before.pid, signal.SIGCONT)
        await stopped
        assert (
            not psutil.pid_exists(before.pid) or psutil.Process(before.pid).status() == psutil.STATUS_ZOMBIE
        )


async def test_what_does_not_end_in_its_exit_timeout_is_killed_and_a_refresh_waits_for_it(
    tmp_path: Path,
) -> None:
    root = make_root(tmp_path)
    (root / "fault").write_text("wedge")
    async with fake_launchd(tmp_path / "bin", linger=0.5, exit_timeout=0.7) as (launchd, environ):
        services = services_for(root, environ, tmp_path)
        await told(services.install())
        label = services.managers[0].name_for(root)
        async with asyncio.timeout(15):
            while await look(root) is None:
                await asyncio.sleep(0.05)
        (root / "fault").write_text("")
        assert (await told(services.install(force=True)))[0].change == "refreshed"
        assert (await member(root)).state == "running"
        refused = [call for call in launchd.log if call.startswith("bootstrap ")]
        assert len(refused) >= 2, "exit 5 while the label was still taken"
        assert launchd.jobs[label].runs == 1


async def test_a_job_is_never_booted_out_from_inside_it(tmp_path: Path) -> None:
    """bootout takes the whole coalition along, this command included, and nobody would load the label again (#69098)."""
    root = make_root(tmp_path)
    async with fake_launchd(tmp_path / "bin") as (launchd, environ):
        services = services_for(root, environ, tmp_path)
        await told(services.install())
        before = await member(root)
        label = services.managers[0].name_for(root)
        inside = services_for(root, {**environ, "XPC_SERVICE_NAME": label}, tmp_path)
        for stream in (inside.stop(), inside.uninstall()):
            with pytest.raises(FleetError, match="runs inside"):
                await told(stream)
        assert (await member(root)).pid == before.pid
        assert not [
            call for call in launchd.log if call.startswith("bootout") and call is not launchd.log[0]
        ][1:]


async def test_a_reload_from_inside_the_job_is_done_by_launchd(tmp_path: Path) -> None:
    """A transient job outlives the coalition that bootout ends, loads the label again and removes itself (facts 4.3)."""
    root = make_root(tmp_path)
    (root / "command").write_text(f"setsid sleep 97 & echo $! > {shlex.quote(str(root / 'child'))}")
    async with fake_launchd(tmp_path / "bin", linger=0.3) as (launchd, environ):
        services = services_for(root, environ, tmp_path)
        await told(services.install())
        before = await member(root)
        label = services.managers[0].name_for(root)
        async with asyncio.timeout(5):
            while not (root / "child").exists() or not (root / "child").read_text().strip():
                await asyncio.sleep(0.02)
        child = psutil.Process(int((root / "child").read_text()))
        plist = tmp_path / "LaunchAgents" / f"{label}.plist"
        plist.write_bytes(plist.read_bytes().replace(b"<integer>30</integer>", b"<integer>99</integer>"))
        inside = services_for(root, {**environ, "XPC_SERVICE_NAME": label}, tmp_path)
        (event,) = await told(inside.install())
        assert (event.change, event.keys) == ("handed_over", ("ThrottleInterval",))
        assert "ends this command" in event.copy_terminal
        after = await member(root, not_pid=before.pid)
        async with asyncio.timeout(10):
            while list(launchd.jobs) != [label]:  # the transient job, which is kept alive, has removed itself
                await asyncio.sleep(0.02)
        assert launchd.jobs[label].definition["ThrottleInterval"] == 30
        assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE, (
            "bootout spared the coalition"
        )
        assert (await member(root)).pid == after.pid


async def test_a_reload_that_fails_leaves_the_label_loaded_as_it_was(tmp_path: Path) -> None:
    root = make_root(tmp_path)
    async with fake_launchd(tmp_path / "bin", no_submit=True) as (launchd, environ):
        services = services_for(root, environ, tmp_path)
        await told(services.install())
        before = await member(root)
        label = services.managers[0].name_for(root)
        plist = tmp_path / "LaunchAgents" / f"{label}.plist"
        old = plist.read_bytes().replace(b"<integer>30</integer>", b"<integer>99</integer>")
        plist.write_bytes(old)
        inside = services_for(root, {**environ, "XPC_SERVICE_NAME": label}, tmp_path)
        with pytest.raises(FleetError, match="did not take the reload"):
            await told(inside.install())
        assert (plist.read_bytes(), (await member(root)).pid) == (old, before.pid)
        launchd.refuses = b"<integer>30</integer>"  # the new definition, for whatever reason
        with pytest.raises(FleetError, match="bootstrap failed"):
            await told(services.install())
        assert plist.read_bytes() == old
        assert (await member(root, not_pid=before.pid)).pid == launchd.jobs[label].pid or launchd.jobs[
            label
        ].pid


async def test_a_booted_out_job_takes_its_children_along(tmp_path: Path) -> None:
    """The imitation does what launchd does: a child in a session of its own ends, too."""
    root = make_root(tmp_path)
    (root / "command").write_text(f"setsid sleep 97 & echo $! > {root}/child")
    async with fake_launchd(tmp_path / "bin") as (_, environ):
        services = services_for(root, environ, tmp_path)
        await told(services.install())
        await member(root)
        async with asyncio.timeout(5):
            while not (root / "child").exists() or not (root / "child").read_text().strip():
                await asyncio.sleep(0.02)
        child = psutil.Process(int((root / "child").read_text()))
        await told(services.stop())
        async with asyncio.timeout(5):
            while child.is_running() and child.status() != psutil.STATUS_ZOMBIE:
                await asyncio.sleep(0.02)


async def test_the_answers_are_those_that_were_recorded(tmp_path: Path) -> None:
    """Exit codes and words of facts/platform.md, so that what passes here speaks about launchd and not about our stub."""
    root = make_root(tmp_path)
    async with fake_launchd(tmp_path / "bin") as (launchd, environ):
        services = services_for(root, environ, tmp_path)
        await told(services.install())
        await member(root)
        label = services.managers[0].name_for(root)
        call = LaunchdSupervisor(environ=environ)._launchctl.call
        asked = {
            ("print", f"{launchd.domain}/gone"): (113, "Could not find service"),
            ("print", "gui/4242424/x"): (112, "Could not find domain for user gui: 4242424"),
            ("print", label): (64, "Unrecognized target specifier."),
            ("bootout", f"{launchd.domain}/gone"): (3, "Boot-out failed: 3: No such process"),
            ("kickstart", f"{launchd.domain}/gone"): (113, "Could not find service"),
            ("bootstrap", launchd.domain, str(tmp_path / "LaunchAgents" / f"{label}.plist")): (
                37,
                "already in progress",
            ),
        }
        for argv, (status, words) in asked.items():
            ran = await call(*argv)
            assert (ran.status, words in ran.err) == (status, True), (argv, ran)
        assert parse_list((await call("list")).out)[label] == (launchd.jobs[label].pid, "0")
        job = parse_print((await call("print", f"{launchd.domain}/{label}")).out)
        assert (job.state, job.pid > 0, job.environment["NEDURA_HOME"]) == ("running", True, str(root))
        assert "inherited" not in job.environment["NEDURA_HOME"]
        assert (await call("kill", "SIGKILL", f"{launchd.domain}/{label}")).status == 0
        async with asyncio.timeout(10):
            while launchd.jobs[label].status != -9:
                await asyncio.sleep(0.02)
        job = parse_print((await call("print", f"{launchd.domain}/{label}")).out)
        assert job.last_exit == "signal Killed: 9"
