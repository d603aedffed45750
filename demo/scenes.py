"""What each step does. A scene returns one line about what came out, and raises when something did not hold."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from demo.checks import (
    check_matrix,
    check_members,
    check_receipt,
    check_second,
    check_snapshots,
    only_install,
)
from demo.errors import DemoError, hold
from demo.gateways import PROFILES, Turn, open_turn, read_state, start_gateway
from demo.origin import Origin, make_origin
from demo.portal import start_portal
from demo.signin import EMAIL, sign_in
from demo.world import World
from nedura.records import read_json
from nedura.testing.portal import PortalControl

__all__ = ["SCENES", "Story"]


@attrs.define
class Story:
    """What one step hands to the next."""

    world: World
    origin: Origin | None = None
    portal: PortalControl | None = None
    turns: dict[str, Turn] = attrs.field(factory=dict)
    pids: dict[str, int] = attrs.field(factory=dict)
    matrix: tuple[Mapping[str, Any], ...] = ()
    downtimes: dict[str, int] = attrs.field(factory=dict)
    receipt: str = ""
    pointed: Path | None = None

    def made(self) -> Origin:
        """The origin.

        Raises:
            DemoError: it was not made.
        """
        if self.origin is None:
            raise DemoError("There is no origin.")
        return self.origin


async def install(story: Story) -> str:
    """Step 1: origin, clone, and a sealed install of it by the same code as `./run install`."""
    world = story.world
    story.origin = origin = await make_origin(world.checkout, world.folder)
    world.fact(f"origin holds {origin.head[:8]} and, one commit newer, {origin.newer[:8]}")
    command = [sys.executable, "-m", "nedura_cli", "install"]
    done = await world.command(*command, "--source", origin.source, "--home", world.home, "--json")
    hold(done.code == 0, f"the install exits 0, not {done.code}: {done.stderr}")
    paths = only_install(world)
    story.pointed = paths.pointed()
    hold(story.pointed is not None and story.pointed.name == "000001", "current names generation 000001")
    hold(world.launcher.is_file(), f"the launcher is {world.launcher}")
    return f"generation 000001 at {origin.head[:8]}, launcher {world.launcher}"


async def portal(story: Story) -> str:
    """Step 2: the portal as its own process."""
    control = await start_portal(story.world)
    await asyncio.to_thread(control.account, EMAIL, tier="paid")
    story.portal = control
    return f"{control.url}, approval page {control.url}/device"


async def gateways(story: Story) -> str:
    """Step 3: three profiles, three gateways, three turns."""
    world = story.world
    for profile in PROFILES[1:]:
        made = await world.command(world.launcher, "profile", "create", profile, "--json", show=False)
        hold(made.code == 0, f"profile {profile} is made: {made.stderr}")
    await asyncio.gather(*(start_gateway(world, profile) for profile in PROFILES))
    status = await world.command(world.launcher, "fleet", "status", "--json", show=False)
    hold(status.code == 0, f"fleet status exits 0: {status.stderr}")
    for profile in PROFILES:
        state = read_state(world, profile)
        hold(state["code_sha"] == story.made().head, f"{profile} says that it runs {story.made().head[:8]}")
        story.pids[profile] = int(state["pid"])
        story.turns[profile] = await open_turn(world, profile)
        world.fact(f"{profile}: pid {state['pid']}, generation {state['generation']}, a turn streams")
    return "all three answer and stamp what they run"


async def signin(story: Story) -> str:
    """Step 4: a free-tier identity becomes an account, and its apps move along."""
    if story.portal is None:
        raise DemoError("There is no portal.")
    return await sign_in(story.world, story.portal)


async def update(story: Story) -> str:
    """Step 5: the update of the live fleet, through the installed launcher."""
    world, origin = story.world, story.made()

    def on_record(record: Mapping[str, Any]) -> None:
        if record["kind"] == "drain_waiting" and record.get("profile") in story.turns:
            story.turns[record["profile"]].end()

    started = asyncio.get_running_loop().time()
    done = await world.command(world.launcher, "update", "--json", on_record=on_record, timeout=600)
    finished = done.last("update_finished")
    hold(done.code == 0, f"the update exits 0, not {done.code}: {finished.get('stop_reason')} {done.stderr}")
    hold(
        finished["outcome"] == "success" and finished["changed"], "its outcome is success and the code moved"
    )
    await _turns(story)
    story.matrix = tuple(done.last("matrix")["rows"])
    check_matrix(story.matrix, origin)
    restarted = done.every("member_restarted")
    story.downtimes = {str(event["profile"]): int(event["downtime_ms"]) for event in restarted}
    hold(set(story.downtimes) == set(PROFILES), "each gateway's time without service was measured")
    story.pids = check_members(world, origin, story.pids)
    check_snapshots(world)
    receipt = check_receipt(world, str(finished["run_id"]))
    story.receipt = str(receipt)
    before, story.pointed = story.pointed, only_install(world).pointed()
    hold(story.pointed != before, "current names the new generation")
    world.fact(f"its receipt says {read_json(receipt, 8 << 20)['outcome']}: {receipt.name}")
    seconds = asyncio.get_running_loop().time() - started
    return f"{origin.head[:8]} -> {origin.newer[:8]} in {seconds:.1f} s, first restarted: {restarted[0]['profile']}"


async def _turns(story: Story) -> None:
    """Every turn came to its own end before its gateway went."""
    for profile, turn in story.turns.items():
        if turn.task is not None:
            await asyncio.wait_for(turn.task, 60)
        hold(turn.done and "done after" in turn.text, f"the turn of {profile} finished before the restart")
        story.world.fact(f"{profile}: its turn finished ({turn.text.rsplit('done after ', 1)[-1]})")


async def second(story: Story) -> str:
    """Step 6: nothing left to do."""
    world = story.world
    done = await world.command(world.launcher, "update", "--json", timeout=300)
    check_second(world, done, story.pids, story.pointed)
    return "already up to date, nobody restarted"


SCENES: Final[tuple[Callable[[Story], Awaitable[str]], ...]] = (
    install,
    portal,
    gateways,
    signin,
    update,
    second,
)
