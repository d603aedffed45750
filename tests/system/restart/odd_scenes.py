"""Units that people have and we would not write: `real-systemd.sh user -n -- python -m tests.system.restart.odd_scenes NAME`."""

from __future__ import annotations

import asyncio
import os
import shlex
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from nedura.fleet.inventory import look
from nedura.fleet.restart_events import RestartEvent
from nedura.fleet.rolling import restart_rest
from tests.integration.restart.daemon import identity
from tests.integration.restart.manual import ROOT, TOY
from tests.system.restart.host import Host, failed, new_host, parts, restart, restarted, systemctl

SCENES: Final[dict[str, Callable[[Host], Awaitable[None]]]] = {}


def scene(function: Callable[[Host], Awaitable[None]]) -> Callable[[Host], Awaitable[None]]:
    SCENES[function.__name__] = function
    return function


async def once(host: Host, profile: str = "default") -> list[RestartEvent]:
    """One restart of a member; nothing of it may take as long as a blunt restart that waits for what never comes."""
    member = await host.member(profile)
    (member.home / "version").write_text("2")
    async with asyncio.timeout(20):
        return await restart([member])


def forked(host: Host) -> str:
    """A command that leaves the gateway behind and ends."""
    script = host.folder / "fork.sh"
    script.write_text(f"#!/bin/sh\n{TOY} gateway run &\nexit 0\n")
    script.chmod(0o755)
    return shlex.quote(str(script))


@scene
async def a_gateway_that_forked_away_from_its_unit(host: Host) -> None:
    """MainPID=0: what the manager says about the unit says nothing about the gateway, so its own answer decides."""
    host.unit("exited", command=forked(host), Type="oneshot", RemainAfterExit="yes", Restart="no",
              RestartForceExitStatus="", SuccessExitStatus="")  # fmt: skip
    host.unit("running", command=forked(host), Type="forking", GuessMainPID="no")
    for profile in ("exited", "running"):
        unit = f"nedura-gateway-{profile}.service"
        assert systemctl("show", unit, "-p", "MainPID", "--value").strip() == "0"
        assert restarted(await once(host, profile))[profile], unit


@scene
async def a_delay_that_never_ends(host: Host) -> None:
    """RestartSec=infinity: a `start` would join a wait without an end."""
    host.unit(RestartSec="infinity")
    assert restarted(await once(host))["default"]


@scene
async def a_unit_that_refuses_orders(host: Host) -> None:
    """Drained, it comes back by its manager alone; where that would not start it again, it is not drained at all."""
    folder = Path(os.environ["HOME"]) / ".config/systemd/user"
    for profile, restart_when in (("a", "always"), ("b", "no")):
        force = "75" if profile == "a" else ""
        unit = host.unit(
            profile, start=False, RestartSec="0.5", Restart=restart_when, RestartForceExitStatus=force
        )
        text = (folder / unit).read_text()
        systemctl("start", unit)
        (folder / unit).write_text(
            text.replace("[Unit]", "[Unit]\nRefuseManualStart=yes\nRefuseManualStop=yes")
        )
    systemctl("daemon-reload")
    assert restarted(await once(host, "a"))["a"]
    before = await host.member("b")
    failure = failed(await once(host, "b"))["b"]
    assert failure.check == "privileges"
    assert "left running" in failure.reason
    now = await look(before.home)
    assert now is not None
    assert now.pid == before.pid


@scene
async def transient_units(host: Host) -> None:
    """`systemd-run`: what has failed is kept and started again; what would be forgotten is left running."""
    for name, more in (("kept", ()), ("gone", ("-p", "SuccessExitStatus=75"))):
        home = host.home(name)
        subprocess.run(
            ["systemd-run", "--user", "-q", f"--unit=nedura-gateway-{name}", *more, "-E", f"NEDURA_HOME={home}",
             "-E", f"PYTHONPATH={ROOT}", *shlex.split(TOY), "gateway", "run"], check=True,
        )  # fmt: skip
    assert restarted(await once(host, "kept"))["kept"]
    before = await host.member("gone")
    failure = failed(await once(host, "gone"))["gone"]
    assert (failure.check, "transient" in failure.reason) == ("missing", True)
    now = await look(before.home)
    assert now is not None
    assert now.pid == before.pid


@scene
async def a_watched_member_that_dies_is_a_failure_and_one_that_is_restarted_on_purpose_is_none(
    host: Host,
) -> None:
    """Both are replaced by their manager within the watch; only the first did not ask for it."""
    stop = "/bin/kill -INT $MAINPID"
    for name in ("a", "b", "c"):
        host.unit(name, RestartSec="0.1", ExecStop=stop)
    before = [await host.member(name) for name in ("a", "b", "c")]
    host.release("2")
    (host.home("b") / "fault").write_text("dies")

    async def on_purpose() -> None:
        while (
            (now := await look(host.home("c"))) is None or now.pid == before[2].pid or now.state != "running"
        ):
            await asyncio.sleep(0.02)
        await asyncio.to_thread(systemctl, "restart", "nedura-gateway-c.service")

    by_hand = asyncio.ensure_future(on_purpose())
    rolled = restart_rest(before, identity("2"), parts=parts(), settle=2.0)
    events = [event async for event in rolled]
    await by_hand
    assert {name: event.check for name, event in failed(events).items()} == {"b": "settle"}
    done = restarted(events)
    assert set(done) == {"a", "c"}
    assert (await host.member("a")).pid == done["a"].pid, "nobody else was touched"
    assert (await host.member("c")).pid != done["c"].pid, "its owner's restart went through"


def main(name: str) -> int:
    asyncio.run(asyncio.wait_for(SCENES[name](new_host()), 105))
    sys.stdout.write(f"scene {name}: done\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
