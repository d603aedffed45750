"""A build that fails on one profile alone, after the first member: the update stands, and that gateway is owed (decision 34)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest

from nedura.testing.installs import Content, own_files
from tests.kits.checkout import checkout_world
from tests.kits.site import World, quick_tree, world

PROFILES = ("default", "alpha", "beta")
FAULTY = "beta"
GATEWAY = "renderers/gateway/nedura_gateway/main.py"
LIMIT = "nedura/update/fleet_real.py"


def replaced(name: str, old: str, new: str) -> str:
    """One of our files with one place of it changed."""
    source = own_files()[name]
    assert isinstance(source, bytes)
    assert source.decode().count(old) == 1, old
    return source.decode().replace(old, new)


def tree() -> dict[str, Content]:
    """This code, whose verification gives a gateway that is down 3 seconds instead of 120."""
    return quick_tree({LIMIT: replaced(LIMIT, "FLOOR: Final = 120.0", "FLOOR: Final = 3.0")})


def bad_at_one() -> str:
    """A gateway that does not start on one profile's home."""
    line = "    set_up_logging(verbose=bool(args.verbose))\n"
    fault = f"    if os.environ.get('NEDURA_HOME', '').endswith('/{FAULTY}'):\n        raise SystemExit(9)\n"
    return replaced(GATEWAY, line, line + fault)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("layout", [world, checkout_world], ids=["sealed", "checkout"])
def test_a_member_that_fails_after_the_first_is_owed_and_the_others_are_verified(
    layout: Callable[..., AbstractContextManager[World]],
) -> None:
    with layout(tree()) as here:
        here.start(*PROFILES)
        before = here.pids(PROFILES)
        new = here.site.origin.commit({GATEWAY: bad_at_one()}, f"does not boot at {FAULTY}")
        code, events = here.update("--no-backup")
        assert code == 0, events[-1]
        failed = [event for event in events if event["kind"] == "member_failed"]
        assert [(event["profile"], bool(event["check"]), bool(event["command"])) for event in failed] == [
            (FAULTY, True, True)
        ]
        receipt: dict[str, Any] = here.latest()
        assert (receipt["outcome"], receipt["exit_code"]) == ("success", 0)
        assert receipt["post_update"]["sha"] == new
        assert [row["step"] for row in receipt["followups"]] == ["gateway_restart"]
        assert FAULTY in receipt["followups"][0]["reason"]
        assert {row["profile"]: row["state"] for row in receipt["fleet"]} == {
            "default": "current", "alpha": "current", FAULTY: "down",
        }  # fmt: skip
        good = [name for name in PROFILES if name != FAULTY]
        after = here.pids(good)
        assert all(after[name] != before[name] for name in good)
        assert len(list((here.folder / "locks").glob("host-update-restart-*"))) == 1, "it stays owed"
