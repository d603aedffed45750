"""A build that fails on one profile alone, after the first member: the update stands, and that gateway is owed (decision 34)."""

from __future__ import annotations

import time
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
APP = "renderers/gateway/nedura_gateway/app.py"
PRODUCT = "nedura/product.py"


def replaced(name: str, old: str, new: str) -> str:
    """One of our files with one place of it changed."""
    source = own_files()[name]
    assert isinstance(source, bytes)
    assert source.decode().count(old) == 1, old
    return source.decode().replace(old, new)


def bad_at_one() -> str:
    """A gateway that does not start on one profile's home."""
    line = "    set_up_logging(verbose=bool(args.verbose))\n"
    fault = f"    if os.environ.get('NEDURA_HOME', '').endswith('/{FAULTY}'):\n        raise SystemExit(9)\n"
    return replaced(GATEWAY, line, line + fault)


def dies_at_one() -> str:
    """A gateway that serves on one profile's home and ends a moment later."""
    line = "            member.ready()\n"
    fault = (
        f"            if str(home).endswith('/{FAULTY}') and not options.probe:\n"
        "                asyncio.get_running_loop().call_later(0.8, os._exit, 3)\n"
    )
    return replaced(APP, line, line + fault)


def watching(seconds: float) -> dict[str, Content]:
    """This code, with a short watch over every member that was restarted."""
    settle = "settle_seconds: float = 12.0"
    return quick_tree({PRODUCT: replaced(PRODUCT, settle, f"settle_seconds: float = {seconds}")})


@pytest.mark.timeout(120)
@pytest.mark.parametrize("layout", [world, checkout_world], ids=["sealed", "checkout"])
def test_a_member_that_dies_after_it_served_is_owed_and_the_others_are_verified(
    layout: Callable[..., AbstractContextManager[World]],
) -> None:
    with layout(watching(1.5)) as here:
        here.start(*PROFILES)
        before = here.pids(PROFILES)
        new = here.site.origin.commit({APP: dies_at_one()}, f"ends soon at {FAULTY}")
        code, events = here.update("--no-backup")
        assert code == 0, events[-1]
        failed = [event for event in events if event["kind"] == "member_failed"]
        assert [(event["profile"], event["check"]) for event in failed] == [(FAULTY, "settle")]
        receipt: dict[str, Any] = here.latest()
        assert (receipt["outcome"], receipt["exit_code"]) == ("success", 0)
        assert receipt["post_update"]["sha"] == new
        assert [row["step"] for row in receipt["followups"]] == ["gateway_restart"]
        assert FAULTY in receipt["followups"][0]["reason"]
        outcomes = {row["profile"]: row["outcome"] for row in receipt["runtime_outcomes"]}
        assert outcomes == {"default": "restarted", "alpha": "restarted", FAULTY: "failed"}
        assert {row["profile"]: row["state"] for row in receipt["fleet"]} == {
            "default": "current", "alpha": "current", FAULTY: "down",
        }  # fmt: skip
        after = here.pids([name for name in PROFILES if name != FAULTY])
        assert all(after[name] != before[name] for name in after)
        assert len(list((here.folder / "locks").glob("host-update-restart-*"))) == 1, "it stays owed"


@pytest.mark.timeout(120)
@pytest.mark.parametrize("layout", [world, checkout_world], ids=["sealed", "checkout"])
def test_a_member_that_fails_after_the_first_is_owed_and_the_others_are_verified(
    layout: Callable[..., AbstractContextManager[World]],
) -> None:
    with layout(quick_tree()) as here:
        here.start(*PROFILES)
        before = here.pids(PROFILES)
        new = here.site.origin.commit({GATEWAY: bad_at_one()}, f"does not boot at {FAULTY}")
        start = time.monotonic()
        code, events = here.update("--no-backup")
        assert code == 0, events[-1]
        assert time.monotonic() - start < 60, (
            "nobody starts it any more: the two minutes for one that may come are not waited"
        )
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
