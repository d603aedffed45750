"""Services that do not go with what runs: `real-systemd.sh user -n -- python -m tests.system.restart.stray_scenes NAME`."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import pytest

from nedura.errors import FleetError, NeduraError, RefusedError
from nedura.fleet.inventory import collect, look
from nedura.fleet.supervisors.listing import list_services
from tests.integration.restart.daemon import identity
from tests.system.restart.host import systemctl
from tests.system.restart.service_scenes import changes, make_home, native, place, services, serving, told

SCENES: Final[dict[str, Callable[[Path], Awaitable[None]]]] = {}
STARTED: Final[list[subprocess.Popen[bytes]]] = []
"""Kept, so that nobody misses them; they end with the namespace."""
UNIT: Final = "nedura-gateway.service"


def scene(function: Callable[[Path], Awaitable[None]]) -> Callable[[Path], Awaitable[None]]:
    SCENES[function.__name__] = function
    return function


def drop_in(unit: str, *lines: str) -> None:
    folder = place().user_units / f"{unit}.d"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "local.conf").write_text("[Service]\n" + "".join(f"{line}\n" for line in lines))
    systemctl("daemon-reload")


async def sub_state(unit: str, wanted: str) -> None:
    async with asyncio.timeout(10):
        while systemctl("show", unit, "-p", "SubState", "--value").strip() != wanted:
            await asyncio.sleep(0.02)


async def by_hand(home: Path) -> int:
    """A gateway that a person started, in no unit."""
    with (home / "by-hand.log").open("wb") as log:
        STARTED.append(
            subprocess.Popen(
            [home / "bin" / "nedura", "gateway", "run"], env={**os.environ, "NEDURA_HOME": str(home)},
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        ))  # fmt: skip
    return await serving(home)


@scene
async def a_unit_that_waits_for_its_next_start_is_stopped(folder: Path) -> None:
    """Between two starts it has no process, and it is anything but stopped."""
    home = make_home(native())
    await told(services(home).install())
    await serving(home)
    drop_in(UNIT, "ExecStart=", "ExecStart=/bin/false", "RestartSec=60")
    for everyone in (False, True):
        systemctl("restart", UNIT, check=False)
        await sub_state(UNIT, "auto-restart")
        assert changes(await told(services(home).stop(everyone=everyone))) == [(UNIT, "stopped")]
        assert systemctl("show", UNIT, "-p", "ActiveState", "--value").strip() in ("inactive", "failed")


@scene
async def a_masked_unit_beside_a_gateway_by_hand(folder: Path) -> None:
    """What somebody turned off is the unit; the gateway that runs is restarted and stopped as ever."""
    home = make_home(native())
    place().user_units.mkdir(parents=True, exist_ok=True)
    (place().user_units / UNIT).symlink_to("/dev/null")
    systemctl("daemon-reload")
    with pytest.raises(RefusedError, match="masked"):
        await told(services(home).stop())
    await by_hand(home)
    assert await told(services(home).revive(skip=[home])) == []
    (row,) = await told(services(home).status())
    assert (row.state, row.ours) == ("masked", True)
    events = await told(services(home).stop())
    assert changes(events) == [("default", "stopped")]
    assert "masked" in events[-1].copy
    assert await look(home) is None


@scene
async def a_foreign_unit_beside_a_gateway_by_hand(folder: Path) -> None:
    """The unit that has our name stays as it is; our process is ours."""
    home = make_home(native())
    place().user_units.mkdir(parents=True, exist_ok=True)
    (place().user_units / UNIT).write_text(
        "[Service]\nExecStart=/bin/sleep 99\nEnvironment=NEDURA_HOME=/srv/other\n"
    )
    systemctl("daemon-reload")
    systemctl("start", UNIT)
    await by_hand(home)
    assert await told(services(home).revive(skip=[home])) == []
    events = await told(services(home).stop())
    assert changes(events) == [("default", "stopped")]
    assert "/srv/other" in events[-1].copy
    assert systemctl("is-active", UNIT).strip() == "active"
    with pytest.raises(RefusedError, match="another home"):
        await told(services(home).stop())


@scene
async def no_service_starts_beside_a_gateway_by_hand(folder: Path) -> None:
    """It would fail and be started again for ever; a stop ends both."""
    home = make_home(native())
    pid = await by_hand(home)
    for _ in range(2):  # when it is installed, and when it is there
        with pytest.raises(FleetError, match=rf"process {pid} \(started by hand\) serves this home"):
            await told(services(home).install())
    with pytest.raises(FleetError, match=f"process {pid}"):
        await told(services(home).start())
    assert systemctl("show", UNIT, "-p", "ActiveState", "--value").strip() == "inactive"
    systemctl("start", UNIT, check=False)  # somebody does it all the same: now it fails again and again
    assert (await serving(home)) == pid
    assert {name for name, _ in changes(await told(services(home).stop()))} == {UNIT, "default"}
    assert await look(home) is None
    assert changes(await told(services(home).start())) == [(UNIT, "started")]


@scene
async def the_service_of_a_folder_that_is_gone(folder: Path) -> None:
    """Removed by hand, a profile leaves a unit that fails for ever: it is named, stopped and removed."""
    root = make_home(native())
    home = root / "profiles" / "b"
    home.mkdir(parents=True, mode=0o700)
    await told(services(home).install())
    await serving(home)
    shutil.rmtree(home)
    unit = "nedura-gateway-b.service"
    (row,) = await told(services(root).listing())
    assert (row.name, row.ours, row.reason) == (unit, True, "its home is gone")
    assert changes(await told(services(root).stop(everyone=True))) == [(unit, "stopped")]
    assert systemctl("show", unit, "-p", "MainPID", "--value").strip() == "0"
    for stream in (services(root).start(everyone=True), services(root).revive(everyone=True)):
        (note,) = await told(stream)
        assert "is gone" in note.copy
        assert f"NEDURA_HOME={home} nedura gateway uninstall" in note.advice
    assert changes(await told(services(home).uninstall())) == [(unit, "removed")]
    with pytest.raises(RefusedError, match="no home"):
        await told(services(home).uninstall())
    assert not home.exists()


@scene
async def a_start_while_it_ends(folder: Path) -> None:
    """A service that is being stopped is not one that runs: a start waits for the end."""
    home = make_home(native())
    await told(services(home).install())
    pid = await serving(home)
    drop_in(UNIT, "ExecStop=/bin/sleep 1")
    stopping = asyncio.ensure_future(told(services(home).stop()))
    async with asyncio.timeout(10):
        while systemctl("show", UNIT, "-p", "ActiveState", "--value").strip() != "deactivating":
            await asyncio.sleep(0.02)
    assert changes(await told(services(home).start())) == [(UNIT, "started")]
    with pytest.raises(
        FleetError, match=r"cancell?ed"
    ):  # the later order counts, and the earlier one says so
        await stopping
    assert await serving(home) != pid


@scene
async def a_unit_that_just_starts_is_no_other_product(folder: Path) -> None:
    """Between fork and exec its process is neither the manager nor our program."""
    home = make_home(native())
    await told(services(home).install())
    await serving(home)
    states = set()
    for _ in range(12):
        restart = subprocess.Popen(["systemctl", "--user", "restart", "--no-block", UNIT])
        for _ in range(12):
            fleet = await collect(
                home, install_id=identity("1").install_id, services=(await list_services()).services
            )
            states.add(len(fleet.gateways))
            assert fleet.foreign == (), fleet.foreign
        restart.wait()
    assert 0 in states, "no look fell into a start"


@scene
async def a_legacy_unit_in_a_folder_with_a_blank(folder: Path) -> None:
    home = make_home(Path(os.environ["HOME"]) / "my bots" / ".nedura")
    place().user_units.mkdir(parents=True, exist_ok=True)
    (place().user_units / "nedura.service").write_text(
        f'[Service]\nType=notify\nNotifyAccess=all\nExecStart="{home}/bin/nedura" gateway run\nEnvironment="NEDURA_HOME={home}"\n'
    )
    systemctl("daemon-reload")
    systemctl("start", "nedura.service")
    await serving(home)
    for dry_run, change in ((True, "would_remove"), (False, "removed")):
        events = await told(services(home).migrate_legacy(dry_run=dry_run))
        assert changes(events) == [("nedura.service", change)]
        assert "nedura gateway install" in events[-1].advice
    assert await look(home) is None


@scene
async def a_definition_that_the_manager_does_not_read_is_taken_back(folder: Path) -> None:
    """Written where its manager does not look, half a service would be taken for one by every later verb."""
    home = make_home(native())
    units = folder / "elsewhere"
    with pytest.raises(NeduraError, match=r"systemctl enable failed: [^.]*[^.]\.service does not exist\.$"):
        await told(services(home, user_units=units).install())
    assert list(units.iterdir()) == []


def main(name: str) -> int:
    with tempfile.TemporaryDirectory(dir=os.environ["XDG_RUNTIME_DIR"]) as folder:
        asyncio.run(asyncio.wait_for(SCENES[name](Path(folder)), 105))
    sys.stdout.write(f"scene {name}: done\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
