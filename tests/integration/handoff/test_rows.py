"""The renewal rules of the shared store, row by row (facts/signin.md 7.8), each write by a process of its own."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
from collections.abc import AsyncIterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import attrs
import pytest

from nedura.testing.portal import Portal, PortalServer, serve_portal
from nedura.testing.portal.routes_oauth import token_set
from tests.soak.disk import Seen, home_of, look
from tests.soak.operations import Request, child
from tests.soak.run import PortalClock

ALICE, BOB = "alice@example.test", "bob@example.test"


@attrs.define(kw_only=True)
class Root:
    """Profiles p1 and p2 of one root, and a portal with a socket."""

    path: Path
    server: PortalServer
    clock: PortalClock

    async def act(self, name: str, profile: str, answer: dict[str, Any] | None = None) -> str:
        """Let a process do something and wait for its end."""
        home = home_of(self.path, profile)
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        environ = {"HOME": str(self.path.parent), "NEDURA_PORTAL_BASE_URL": self.server.url}
        request = Request(
            name=name,
            home=home,
            environ=environ,
            now=self.clock.now,
            answer=answer or {},
            force=name == "refresh",
        )
        return await asyncio.to_thread(_run, request)

    async def sign_in(self, profile: str, email: str) -> str:
        portal = self.server.portal
        return await self.act("sign_in", profile, token_set(portal, portal.login(email), self.server.url))

    async def mint(self, profile: str, *apps: str) -> str:
        guest = self.server.portal.store.add_guest(*apps)
        await self.act(
            "mint", profile, {"token": guest.token, "user_id": guest.user_id, "org_id": guest.org_id}
        )
        return guest.token

    def shared(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.path / "shared" / "nous_auth.json").read_text())
        return found

    def look(self) -> Seen:
        seen = look(self.path)
        assert seen.broken == ()
        return seen


def _run(request: Request) -> str:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.soak.operations"])
    ours, theirs = context.Pipe()
    process = context.Process(target=child, args=(theirs, request))
    process.start()
    theirs.close()
    return _outcome(ours, process)


def _outcome(connection: Connection, process: Any) -> str:
    connection.send("go")
    outcome: dict[str, str] = connection.recv()
    process.join(10)
    connection.close()
    return outcome.get("done", str(outcome))


@pytest.fixture
async def root(tmp_path: Path) -> AsyncIterator[Root]:
    clock = PortalClock()
    async with serve_portal(Portal(clock=clock)) as server:
        yield Root(path=tmp_path / ".nedura", server=server, clock=clock)


async def test_row_1_a_sign_in_decides_what_the_root_holds_and_notes_the_guest(root: Root) -> None:
    token = await root.mint("p1", "gmail")
    assert root.look().held.who == ("guest", token)
    assert await root.sign_in("p2", ALICE) == "saved, claimed"
    seen = root.look()
    assert seen.held.who == ("account", "nas_user:alice")
    assert [profile for profile, _ in seen.records] == ["p2"]
    assert await root.sign_in("p1", BOB) == "saved, gone", "a sibling's record ends without alarm"
    assert root.look().held.who == ("account", "nas_user:bob")


async def test_row_2_a_refresh_of_the_held_account_overwrites_its_tokens(root: Root) -> None:
    await root.sign_in("p1", ALICE)
    before = root.look().held.refresh
    assert await root.act("refresh", "p1") == "rotated"
    seen = root.look()
    assert before != seen.held.refresh == seen.logins["p1"].refresh
    assert seen.held.who == ("account", "nas_user:alice")


async def test_row_3_a_refresh_never_replaces_another_profiles_guest(root: Root) -> None:
    await root.sign_in("p1", ALICE)
    token = await root.mint("p2", "gmail")
    assert await root.act("refresh", "p1") == "rotated"
    seen = root.look()
    assert seen.held.who == ("guest", token)
    assert root.shared()["renewal"]["nas_user:alice"]["refresh_token"] == seen.logins["p1"].refresh
    assert seen.records == {}
    assert root.server.portal.log.count("anon.claim") == 0


async def test_row_4_a_refresh_never_switches_a_profile_on_another_account(root: Root) -> None:
    await root.sign_in("p1", ALICE)
    await root.sign_in("p2", BOB)
    assert await root.act("refresh", "p1") == "rotated"
    assert await root.act("refresh", "p2") == "rotated"
    assert await root.act("refresh", "p1") == "rotated"
    seen = root.look()
    assert seen.held.who == ("account", "nas_user:bob")
    assert (seen.logins["p1"].name, seen.logins["p2"].name) == ("nas_user:alice", "nas_user:bob")
    assert set(root.shared()["renewal"]) == {"nas_user:alice"}


async def test_row_6_a_sibling_reads_its_next_single_use_token_there(root: Root) -> None:
    await root.sign_in("p1", ALICE)
    await root.sign_in("p2", ALICE)
    await root.sign_in("p3", BOB)
    root.clock.now += 2000
    outcomes = await asyncio.gather(*(root.act("tick", name) for name in ("p1", "p2", "p3")))
    assert (
        sorted(outcomes) == ["adopted, ", "rotated, ", "rotated, "]
        or sorted(outcomes).count("rotated, ") == 3
    )
    assert root.server.portal.store.reuse == 0
    seen = root.look()
    assert seen.logins["p1"].refresh == seen.logins["p2"].refresh


async def test_row_8_the_end_of_one_account_leaves_the_others(root: Root) -> None:
    await root.sign_in("p1", ALICE)
    await root.sign_in("p2", BOB)
    for family in root.server.portal.store.families:
        family.revoked = "test" if family.account.email == ALICE else ""
    assert await root.act("refresh", "p1") == "ended"
    seen = root.look()
    assert (seen.logins["p1"].kind, seen.held.who) == ("dead", ("account", "nas_user:bob"))
    assert await root.act("refresh", "p2") == "rotated"


async def test_row_9_a_sign_in_supersedes_the_renewal_beside_it(root: Root) -> None:
    await root.sign_in("p1", ALICE)
    await root.sign_in("p2", BOB)
    await root.act("refresh", "p1")
    await root.sign_in("p1", ALICE)
    assert set(root.shared().get("renewal", {})) == {"nas_user:bob"}
    assert root.look().held.refresh == root.look().logins["p1"].refresh
