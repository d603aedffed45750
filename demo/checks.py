"""What must be true after an update, looked up in the folder rather than believed."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from demo.errors import hold
from demo.gateways import PROFILES, read_state
from demo.origin import Origin
from demo.world import Finished, World
from nedura.installs import InstallPaths, find_installs
from nedura.records import read_json

__all__ = [
    "check_matrix",
    "check_members",
    "check_receipt",
    "check_second",
    "check_snapshots",
    "only_install",
]


def only_install(world: World) -> InstallPaths:
    """The one install of the demo's home.

    Raises:
        DemoError: there is none, or more than one.
    """
    found = find_installs(world.home)
    hold(len(found) == 1, "the home holds one install")
    return found[0]


def check_matrix(rows: Sequence[Mapping[str, Any]], origin: Origin) -> None:
    """Every gateway runs the newer commit.

    Raises:
        DemoError: one does not.
    """
    states = {str(row.get("profile")): row.get("state") for row in rows}
    hold(
        states == dict.fromkeys(PROFILES, "current"), f"the matrix shows three current gateways, not {states}"
    )
    for row in rows:
        hold(row["code_sha"] == origin.newer, f"{row['profile']} runs {origin.newer[:8]}")


def check_members(world: World, origin: Origin, before: Mapping[str, int]) -> dict[str, int]:
    """Every gateway's own state file names the new code and a new process that lives.

    Returns:
        Profile -> pid of now.

    Raises:
        DemoError: one does not.
    """
    now = {}
    for profile in PROFILES:
        state = read_state(world, profile)
        hold(state["code_sha"] == origin.newer, f"{profile}'s state file names {origin.newer[:8]}")
        hold(state["pid"] != before[profile], f"{profile} is a new process")
        os.kill(state["pid"], 0)
        now[profile] = int(state["pid"])
    return now


def check_snapshots(world: World) -> None:
    """Every profile has one snapshot.

    Raises:
        DemoError: one has none.
    """
    for profile in PROFILES:
        folder = world.profile_home(profile) / "state-snapshots"
        made = [path for path in folder.glob("*") if path.is_dir() and not path.name.startswith(".")]
        hold(len(made) == 1, f"{profile} has one snapshot")


def check_receipt(world: World, run_id: str) -> Path:
    """The receipt is on disk under the root home, whole, and says success.

    Raises:
        DemoError: it does not.
    """
    folder = world.home / "logs" / "update_receipts"
    named = [
        path for path in sorted(folder.glob("*.json")) if path.name != "latest.json" and run_id in path.name
    ]
    hold(len(named) == 1, f"one receipt of run {run_id} lies in {folder}")
    receipt = read_json(named[0], 8 << 20)
    hold(receipt.get("outcome") == "success", f"the receipt says success, not {receipt.get('outcome')}")
    hold(not receipt.get("followups"), f"the receipt owes nothing, not {receipt.get('followups')}")
    return named[0]


def check_second(world: World, second: Finished, pids: Mapping[str, int], pointed: Path | None) -> None:
    """The second run changed nothing and restarted nobody.

    Raises:
        DemoError: it did.
    """
    hold(second.code == 0, f"the second update exits 0, not {second.code}: {second.stderr}")
    hold(second.last("prepared")["changed"] is False, "it is already up to date")
    hold(not second.every("member_restarted"), "nobody was restarted")
    hold(only_install(world).pointed() == pointed, "current was not touched")
    for profile in PROFILES:
        hold(read_state(world, profile)["pid"] == pids[profile], f"{profile} is still the same process")
