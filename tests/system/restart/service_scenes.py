"""The service verbs under a real user manager: `real-systemd.sh user -n -- python -m tests.system.restart.service_scenes NAME`."""

from __future__ import annotations

import asyncio
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import attrs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nedura.errors import FleetError, NeduraError, RefusedError, UsageError
from nedura.fleet.inventory import look
from nedura.fleet.service.definition import Wanted, unit_text
from nedura.fleet.service.place import Account, ServicePlace, account_named
from nedura.fleet.service.real import gateway_services
from nedura.fleet.service.verbs import Services
from nedura.fleet.supervisors.systemctl import Systemctl
from tests.integration.restart.manual import ROOT, TOY
from tests.system.restart.host import systemctl

BEGIN: Final = time.monotonic()
SCENES: Final[dict[str, Callable[[Path], Awaitable[None]]]] = {}


def scene(function: Callable[[Path], Awaitable[None]]) -> Callable[[Path], Awaitable[None]]:
    SCENES[function.__name__] = function
    return function


def me() -> Account:
    """This account, with the home that the manager here has."""
    return attrs.evolve(account_named("root"), home=Path(os.environ["HOME"]))


def place(**more: Any) -> ServicePlace:
    values = {
        "platform": "linux",
        "account": me(),
        "euid": os.geteuid(),
        "user_units": Path(os.environ["HOME"]) / ".config/systemd/user",
        **more,
    }
    return ServicePlace(**values)


def make_home(folder: Path) -> Path:
    """A root home with a launcher that starts the toy."""
    (folder / "bin").mkdir(parents=True)
    launcher = folder / "bin" / "nedura"
    launcher.write_text(f'#!/bin/sh\nexec env PYTHONPATH={shlex.quote(str(ROOT))} {TOY} "$@"\n')
    launcher.chmod(0o755)
    folder.chmod(0o700)
    return folder


def native() -> Path:
    return Path(os.environ["HOME"]) / ".nedura"


def services(home: Path, **more: Any) -> Services:
    return gateway_services(home, place=place(**more))


async def told(stream: AsyncIterator[Any]) -> list[Any]:
    events = []
    async for event in stream:
        sys.stdout.write(f"{time.monotonic() - BEGIN:6.2f} {event.copy_terminal}\n")
        events.append(event)
    return events


def changes(events: list[Any]) -> list[tuple[str, str]]:
    return [(event.name, event.change) for event in events if event.kind == "service_changed"]


async def serving(home: Path) -> int:
    async with asyncio.timeout(15):
        while (found := await look(home)) is None or found.state != "running":
            await asyncio.sleep(0.05)
    return found.pid


@scene
async def the_whole_life_of_a_service(folder: Path) -> None:
    home = make_home(native())
    verbs = services(home)
    events = await told(verbs.install())
    assert changes(events) == [("nedura-gateway.service", "installed"), ("nedura-gateway.service", "started")]
    pid = await serving(home)
    (row,) = await told(verbs.status())
    assert (row.state, row.pid, row.enabled, row.outdated) == ("active", pid, True, ())
    assert changes(await told(verbs.install())) == [("nedura-gateway.service", "unchanged")]
    keys = (
        "Type",
        "Restart",
        "KillMode",
        "TimeoutStopUSec",
        "RestartForceExitStatus",
        "RestartPreventExitStatus",
    )
    shown = {key: systemctl("show", row.name, "-p", key, "--value").strip() for key in keys}
    assert shown == {
        "Type": "notify", "Restart": "always", "KillMode": "mixed", "TimeoutStopUSec": "1min 45s",
        "RestartForceExitStatus": "75", "RestartPreventExitStatus": "78",
    }  # fmt: skip
    assert "--replace" not in Path(row.path).read_text()
    assert changes(await told(verbs.stop())) == [("nedura-gateway.service", "stopped")]
    assert systemctl("show", row.name, "-p", "Result,ActiveState", "--value").split() == [
        "success",
        "inactive",
    ]
    assert changes(await told(verbs.start())) == [("nedura-gateway.service", "started")]
    assert await serving(home) != pid
    assert changes(await told(verbs.uninstall())) == [("nedura-gateway.service", "removed")]
    assert not Path(row.path).exists()
    assert (await told(verbs.status()))[0].state == "not installed"
    assert await look(home) is None


@scene
async def a_plain_systemctl_stop_is_a_planned_one(folder: Path) -> None:
    home = make_home(native())
    await told(services(home).install())
    await serving(home)
    systemctl("stop", "nedura-gateway.service")
    assert systemctl("show", "nedura-gateway.service", "-p", "Result", "--value").strip() == "success"


@scene
async def c080_a_scratch_home_never_touches_the_production_service(folder: Path) -> None:
    home = make_home(native())
    await told(services(home).install())
    pid = await serving(home)
    scratch = make_home(folder / "scratch")
    verbs = services(scratch)
    assert verbs.managers[0].name_for(scratch) != "nedura-gateway.service"
    assert changes(await told(verbs.uninstall())) == [(verbs.managers[0].name_for(scratch), "unchanged")]
    await told(verbs.stop(everyone=True))
    with pytest.raises(RefusedError, match="no service"):
        await told(verbs.start())
    # the same name on purpose: a home that a link makes look native is still judged by the definition
    unit = place().user_units / "nedura-gateway.service"
    unit.write_text(unit.read_text().replace(str(home), str(folder / "elsewhere")))
    systemctl("daemon-reload")
    for stream in (
        services(home).install(),
        services(home).uninstall(),
        services(home).start(),
        services(home).stop(),
    ):
        with pytest.raises(RefusedError, match="another home"):
            await told(stream)
    assert unit.exists()
    assert await serving(home) == pid
    rows = await told(services(home).listing())
    assert [row.ours for row in rows] == [False]


@scene
async def temporary_homes_are_refused(folder: Path) -> None:
    home = make_home(folder / "tmp" / "home")
    with pytest.raises(RefusedError, match="temporary"):
        await told(services(home, temporary=(Path(os.path.realpath(folder / "tmp")),)).install())
    with pytest.raises(RefusedError, match="temporary"):
        await told(gateway_services(Path(tempfile.mkdtemp())).install())
    assert not place().user_units.exists() or not list(place().user_units.iterdir())


@scene
async def c082_an_existing_definition_keeps_its_home(folder: Path) -> None:
    """Elevation or an empty environment must not move a service to another home."""
    custom = make_home(folder / "custom")
    verbs = services(custom)
    (installed, _) = changes(await told(verbs.install()))
    name = installed[0]
    assert name.startswith("nedura-gateway-")
    stripped = make_home(native())
    assert changes(await told(services(stripped).install(start=False)))[0][0] == "nedura-gateway.service"
    assert str(custom) in (place().user_units / name).read_text()
    rows = {row.name: row for row in await told(services(stripped).listing())}
    assert not rows[name].ours
    assert rows[name].home == str(custom)


@scene
async def c083_drop_ins_stay_and_only_meaning_counts(folder: Path) -> None:
    home = make_home(native())
    verbs = services(home)
    await told(verbs.install())
    unit = place().user_units / "nedura-gateway.service"
    extra = unit.with_name(unit.name + ".d")
    extra.mkdir()
    drop_in = extra / "10-local.conf"
    drop_in.write_text(f"[Service]\nExecStart=\nExecStart={home}/bin/nedura gateway run\nEnvironment=FOO=1\n")
    systemctl("daemon-reload")
    text = unit.read_text()
    unit.write_text(text.replace("/usr/sbin:/usr/bin", "/usr/bin:/usr/sbin"))
    assert changes(await told(verbs.install())) == [("nedura-gateway.service", "unchanged")], (
        "PATH order is no meaning"
    )
    unit.write_text(
        text.replace("RestartSec=5", "RestartSec=60").replace("RestartPreventExitStatus=78\n", "")
    )
    (row,) = await told(verbs.status())
    assert row.outdated == ("RestartPreventExitStatus", "RestartSec")
    assert changes(await told(verbs.install()))[0] == ("nedura-gateway.service", "refreshed")
    assert "RestartSec=5" in unit.read_text()
    assert "FOO=1" in drop_in.read_text()
    assert "FOO=1" in systemctl("show", unit.name, "-p", "Environment", "--value")


@scene
async def every_profile_with_all(folder: Path) -> None:
    root = make_home(native())
    for name in ("a", "b"):
        home = root / "profiles" / name
        home.mkdir(parents=True, mode=0o700)
        await told(services(home).install())
        await serving(home)
    await told(services(root).install())
    stopped = changes(await told(services(root).stop(everyone=True)))
    assert (
        sorted(stopped) == [(f"nedura-gateway{end}.service", "stopped") for end in ("", "-a", "-b")]
        or len(stopped) == 3
    )
    (root / "profiles" / "a" / "fault").write_text("boot")
    events = await told(services(root).start(everyone=True))
    started = {name for name, change in changes(events) if change == "started"}
    assert started == {"nedura-gateway.service", "nedura-gateway-b.service"}
    notes = [event for event in events if event.kind == "service_note"]
    assert any("nedura-gateway-a.service" in event.copy and event.failed for event in notes)
    # a restart's other half, too: the broken one in the middle keeps nobody from coming back
    await told(services(root).stop(everyone=True))
    events = await told(services(root).revive(everyone=True))
    assert {name for name, change in changes(events) if change == "started"} == started
    assert any(
        "nedura-gateway-a.service" in event.copy and event.failed
        for event in events
        if event.kind == "service_note"
    )


@scene
async def a_unit_of_another_name_is_stopped_through_its_manager(folder: Path) -> None:
    """Its process alone would be back after RestartSec."""
    home = make_home(native())
    units = place().user_units
    units.mkdir(parents=True, exist_ok=True)
    (units / "my-bot.service").write_text(
        f"[Service]\nType=notify\nNotifyAccess=all\nExecStart={home}/bin/nedura gateway run\nRestart=always\nRestartSec=0.2\n"
        f"Environment=NEDURA_HOME={home}\n"
    )
    systemctl("daemon-reload")
    systemctl("start", "my-bot.service")
    await serving(home)
    assert changes(await told(services(home).stop())) == [("my-bot.service", "stopped")]
    await asyncio.sleep(1)
    assert await look(home) is None
    assert systemctl("is-active", "my-bot.service", check=False).strip() == "inactive"


@scene
async def a_start_that_fails_says_why(folder: Path) -> None:
    home = make_home(native())
    (home / "fault").write_text("config")
    with pytest.raises(FleetError, match="refuses its configuration"):
        await told(services(home).install())
    await asyncio.sleep(0.3)
    (row,) = await told(services(home).status())
    assert row.state == "failed"
    assert "configuration" in row.reason


@scene
async def no_launcher_no_service(folder: Path) -> None:
    home = native()
    home.mkdir(mode=0o700)
    with pytest.raises(RefusedError, match="no launcher"):
        await told(services(home).install())


@scene
async def rights_and_containers(folder: Path) -> None:
    home = make_home(native())
    with pytest.raises(RefusedError, match="container"):
        await told(services(home, container=True).install())
    stranger = attrs.evolve(me(), uid=4242, name="stranger")
    with pytest.raises(NeduraError, match="another user"):
        await told(services(home, account=stranger).install())
    os.chown(home, 4242, 4242)
    for stream in (
        services(home).install(), services(home).uninstall(), services(home).start(), services(home).stop(),
        services(home, account=stranger).install(), services(home).revive(),
    ):  # fmt: skip
        with pytest.raises((RefusedError, UsageError)):
            await told(stream)
    for path in home.rglob("*"):
        assert path.stat().st_mtime < time.time()
    assert not (home / "logs").exists()


@scene
async def legacy_names_are_migrated(folder: Path) -> None:
    home = make_home(native())
    units = place().user_units
    units.mkdir(parents=True, exist_ok=True)
    (units / "nedura.service").write_text(
        f"[Service]\nExecStart={home}/bin/nedura gateway run\nEnvironment=NEDURA_HOME={home}\n"
    )
    (units / "hermes.service").write_text(
        "[Service]\nExecStart=/usr/bin/python -m hermes_cli.main gateway run\n"
    )
    systemctl("daemon-reload")
    events = await told(services(home).migrate_legacy(dry_run=True))
    assert changes(events) == [("nedura.service", "would_remove")]
    assert (units / "nedura.service").exists()
    events = await told(services(home).migrate_legacy())
    assert changes(events) == [("nedura.service", "removed")]
    assert any("hermes.service" in event.copy for event in events)
    assert (units / "hermes.service").exists()
    assert not (units / "nedura.service").exists()


@scene
async def c158_the_service_of_a_profile_that_goes(folder: Path) -> None:
    """Its own service is stopped and removed; the default's stays, whatever NEDURA_HOME says."""
    root = make_home(native())
    home = root / "profiles" / "b"
    home.mkdir(parents=True, mode=0o700)
    for one in (root, home):
        await told(services(one).install())
    pid = await serving(root)
    await serving(home)
    assert changes(await told(services(home).uninstall())) == [("nedura-gateway-b.service", "removed")]
    assert await look(home) is None
    await asyncio.sleep(0.5)
    assert await look(home) is None, "nobody starts it again"
    assert await serving(root) == pid
    assert (place().user_units / "nedura-gateway.service").exists()


async def value_to_unit_to_systemd(folder: Path) -> None:
    """Property: whatever a home or PATH holds, the real manager reads the same value back, and no new setting."""
    units = place().user_units
    units.mkdir(parents=True, exist_ok=True)
    unit = units / "nedura-gateway-x.service"
    text = st.text(
        st.characters(exclude_categories=("Cs", "Cc", "Zl", "Zp"), exclude_characters="/\x00"),
        min_size=1,
        max_size=12,
    ).filter(lambda value: value not in (".", ".."))
    special = st.sampled_from(
        [
            'a"b',
            "a\\",
            "%h",
            "$HOME",
            "a b ",
            "x;y",
            "#c",
            "\\x41",
            "'q'",
            "${X}",
            "[Unit]",
            "%%",
            "=",
            "~",
            "-",
        ]
    )

    @settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(st.one_of(text, special), st.one_of(text, special))
    def check(name: str, path: str) -> None:
        wanted = Wanted(
            launcher=Path("/usr/bin/true"), home=folder / name, profile="work", account=me(), path=path
        )
        unit.write_text(unit_text(wanted))
        verify = subprocess.run(
            ["systemd-analyze", "--user", "verify", str(unit)], capture_output=True, text=True, check=False
        )
        assert verify.returncode == 0, verify.stderr
        assert "nedura-gateway-x" not in verify.stderr, verify.stderr
        systemctl("daemon-reload")
        (state,) = asyncio.run(Systemctl("user").show(unit.name))
        assert state.environment == {
            "PATH": path,
            "NEDURA_HOME": str(folder / name),
            "NEDURA_SUPERVISED_CHILD": "1",
        }
        folder_shown = systemctl("show", unit.name, "-p", "WorkingDirectory", "--value").rstrip("\n")
        assert folder_shown in (str(folder / name), f"{folder / name}"), folder_shown

    await asyncio.to_thread(check)


SCENES["value_to_unit_to_systemd"] = value_to_unit_to_systemd


def main(name: str) -> int:
    folder = Path(tempfile.mkdtemp(prefix="s-", dir=os.environ["XDG_RUNTIME_DIR"]))
    asyncio.run(asyncio.wait_for(SCENES[name](folder), 105))
    sys.stdout.write(f"scene {name}: done\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
