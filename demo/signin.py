"""Step 4: the sign-in of the demo's home, approved by a stand-in person on the portal's own page."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from typing import Any, Final

from demo.errors import DemoError, hold
from demo.person import approve
from demo.world import World
from nedura import run_sign_in
from nedura.config import edit_config, read_config, set_value
from nedura.product import NEDURA
from nedura.signin import AccountStore, Code, Completed
from nedura.testing.portal import PortalControl

__all__ = ["EMAIL", "sign_in"]

EMAIL: Final = "alice@example.test"
APPS: Final = ("gmail", "notion:reconnect")


async def sign_in(world: World, control: PortalControl) -> str:
    """Turn a free-tier identity with two connected apps into an account.

    Raises:
        DemoError: something did not hold.
    """
    await asyncio.to_thread(_free_tier, world, control)
    world.fact("a free tier with two connected apps is on disk, the default model is its welcome model")
    last: Any = None
    async with aclosing(run_sign_in(home=world.home, environ=world.environ())) as states:
        async for state in states:
            world.tell(state)
            last = state
            if isinstance(state, Code):
                await asyncio.to_thread(approve, state.link, state.code, EMAIL)
                world.fact(f"the stand-in person approved {state.code} on the page")
    if not isinstance(last, Completed):
        raise DemoError(f"The sign-in ended with {last.kind}: {last.copy_terminal}")
    return await asyncio.to_thread(_verify, world, control, last)


def _free_tier(world: World, control: PortalControl) -> None:
    """What the first start of a free-tier install leaves behind: identity, apps, welcome model."""
    guest = control.guest(*APPS)
    entry = {
        "auth_method": "anonymous",
        "anon_token": guest["token"],
        "user_id": guest["user_id"],
        "org_id": guest["org_id"],
        "portal_base_url": world.portal_url,
    }
    AccountStore(world.home, environ=world.environ()).save_guest(entry, renewal=False, now=time.time())

    def welcome(content: Any) -> None:
        set_value(content, "model.default", "nous/welcome")
        set_value(content, "model.base_url", NEDURA.welcome_url)

    edit_config(world.home, welcome)


def _verify(world: World, control: PortalControl, done: Completed) -> str:
    """Store, portal and config agree with what the last state says.

    Raises:
        DemoError: they do not.
    """
    state = AccountStore(world.home, environ=world.environ()).read()
    hold(done.email == EMAIL == state.email, f"the account {EMAIL} is saved")
    model = read_config(world.home).get("model.default")
    hold(
        done.model_changed and done.model == model != "nous/welcome",
        "the default model settled, in the config too",
    )
    seen = control.state()
    moved = [guest for guest in seen["guests"] if guest["claimed_by"]]
    hold(len(moved) == 1, "the portal handed the apps to the account")
    hold(any("Gmail" in line for line in done.handoff), f"the last state names the apps, not {done.handoff}")
    return f"{EMAIL}, model {done.model}, {'; '.join(done.handoff)}"
