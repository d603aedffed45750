"""`/login` in a chat: who may, what is pushed, and that it neither holds up a gateway nor loses an account."""

from __future__ import annotations

import asyncio
import functools
import json
import os
import time
from pathlib import Path
from typing import Any

import attrs
import pytest

from nedura.fleet import FleetMember, MemberOptions, bind_socket, find_socket
from nedura.fleet.drain import DrainSettings
from nedura.testing.portal import Fault
from nedura_gateway.adapters import Deliver, Inbound
from nedura_gateway.chat_socket import ChatSocket
from nedura_gateway.handlers import TurnContext
from nedura_gateway.inbox import Inbox
from nedura_gateway.login import BUSY, NOT_HERE, NOT_YOU, START, STOPPED, Logins, Sender, is_login
from nedura_gateway.platform_worker import PlatformWorker
from tests.integration.signin.world import World
from tests.kits.fleet import wait_async

OPTIONS = MemberOptions(settings=DrainSettings(cron_s=0, grace_s=1), watchdogs=False, signals=False)
OPERATOR = Sender(platform="fake", chat="c", user="7", private=True)


@attrs.define
class Chat:
    """A platform that delivers what it is given and keeps what it is sent."""

    messages: list[Inbound]
    sent: list[str] = attrs.field(factory=list)
    broken: bool = False
    name: str = "fake"

    async def run(self, deliver: Deliver) -> None:
        for message in self.messages:
            await deliver(message)
        await asyncio.Event().wait()

    async def send(self, chat: str, text: str) -> None:
        if self.broken:
            raise OSError("the platform is away")
        self.sent.append(text)


async def echo(text: str, context: TurnContext) -> Any:
    yield f"re: {text}"


def allow(world: World, *operators: str) -> None:
    (world.home / "config.yaml").write_text(json.dumps({"gateway": {"operators": list(operators)}}))


def logins(world: World) -> Logins:
    return Logins(functools.partial(lambda home, cancelled: world.flow(home=home, cancelled=cancelled)))


async def pushed(world: World, sender: Sender, desk: Logins | None = None) -> list[str]:
    said: list[str] = []

    async def push(line: str) -> None:
        said.append(line)

    await (desk or logins(world)).run(world.home, sender, push)
    return said


async def test_an_operator_signs_the_gateway_in(world: World) -> None:
    allow(world, "fake:7")
    said = await pushed(world, OPERATOR)
    (grant,) = world.portal.store.grants
    assert said[0] == START
    assert said[1].endswith(f"user_code={grant.user_code}")
    assert said[2] == grant.user_code
    assert "share it with nobody" in said[3]
    assert said[4:] == ["Signed in as alice@example.test."]
    assert world.store().read().email == "alice@example.test"
    assert await pushed(world, OPERATOR) == [START, "Already signed in as alice@example.test."]


@pytest.mark.parametrize(
    ("changes", "operators", "answer"),
    [
        ({}, [], NOT_YOU),
        ({}, ["fake:8", "other:7", "7", "fake:"], NOT_YOU),
        ({"user": ""}, ["fake:", "fake:7"], NOT_YOU),
        ({"private": False}, ["fake:7"], NOT_HERE),
        ({"chat": ""}, ["fake:7"], NOT_HERE),
        ({"platform": "local "}, ["fake:7"], NOT_YOU),
    ],
)
async def test_nobody_else_starts_one_and_the_portal_is_not_asked(
    world: World, changes: dict[str, Any], operators: list[str], answer: str
) -> None:
    allow(world, *operators)
    assert await pushed(world, attrs.evolve(OPERATOR, **changes)) == [answer]
    assert world.routes() == []


@pytest.mark.parametrize(
    "config", ["", "gateway: [\n", "gateway:\n  operators: fake:7\n", "gateway:\n  operators: [7]\n"]
)
async def test_a_config_without_sense_names_no_operator(world: World, config: str) -> None:
    (world.home / "config.yaml").write_text(config)
    assert await pushed(world, OPERATOR) == [NOT_YOU]


async def test_one_at_a_time_and_the_same_person_starts_again(world: World) -> None:
    allow(world, "fake:7", "fake:8")
    world.portal.knobs.auto_approve = ""
    world.clock.autojump = False
    desk = logins(world)
    first = asyncio.create_task(pushed(world, OPERATOR, desk))
    await wait_async(lambda: len(world.portal.store.grants) == 1, 5, "the first code")
    assert await pushed(world, attrs.evolve(OPERATOR, user="8", chat="d"), desk) == [BUSY]
    second = asyncio.create_task(pushed(world, OPERATOR, desk))
    await wait_async(lambda: len(world.portal.store.grants) == 2, 5, "the second code")
    world.clock.advance(1)
    assert (await asyncio.wait_for(first, 5))[-1].startswith("This sign-in was replaced by a newer one")
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    assert not (world.home / "auth.json").exists()


async def test_another_profiles_sign_in_is_not_replaced_by_the_same_chat(
    world: World, tmp_path: Path
) -> None:
    """One process serves several profiles, and the local chat has one name in each."""
    world.portal.knobs.auto_approve = ""
    world.clock.autojump = False
    desk, local = logins(world), Sender(platform="local", chat="local", private=True)
    first = asyncio.create_task(pushed(world, local, desk))
    await wait_async(lambda: len(world.portal.store.grants) == 1, 5, "the first code")
    said: list[str] = []

    async def push(line: str) -> None:
        said.append(line)

    await asyncio.wait_for(desk.run(tmp_path / "other", local, push), 5)
    assert said == [BUSY]
    assert not first.done()
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("/login", True),
        (" /LOGIN\n", True),
        ("/login now", False),
        ("how does /login work", False),
        ("", False),
    ],
)
def test_only_the_bare_command_is_one(text: str, wanted: bool) -> None:
    assert is_login(text) is wanted


def message(text: str, ident: str = "1") -> Inbound:
    return Inbound(adapter="fake", id=ident, chat="c", text=text, user="7", private=True)


async def test_it_runs_beside_the_turns_and_is_not_worked_on_twice(world: World) -> None:
    allow(world, "fake:7")
    world.portal.knobs.auto_approve = ""
    world.clock.autojump = False
    chat = Chat([message("/login"), message("hello", "2"), message("/login")])
    async with FleetMember(world.home, OPTIONS) as member:
        context = TurnContext(home=world.home)
        worker = PlatformWorker(member, echo, context, {"fake": chat}, Inbox(world.home), logins(world))
        worker.start()
        await wait_async(lambda: "re: hello" in chat.sent and len(chat.sent) == 5, 5, "both answers")
        assert len(world.portal.store.grants) == 1
        await wait_async(lambda: Inbox(world.home).pending == (), 5, "an empty inbox")
        start = time.monotonic()
        await worker.stop()
        assert time.monotonic() - start < 2
    assert chat.sent[-1] == STOPPED
    assert not (world.home / "auth.json").exists()


async def test_a_push_that_fails_loses_no_account(world: World) -> None:
    allow(world, "fake:7")
    chat = Chat([message("/login")], broken=True)
    async with FleetMember(world.home, OPTIONS) as member:
        context = TurnContext(home=world.home)
        worker = PlatformWorker(member, echo, context, {"fake": chat}, Inbox(world.home), logins(world))
        worker.start()
        await wait_async(lambda: bool(world.store().read().email), 10, "the account")
        await worker.stop()


async def test_an_inbox_of_an_older_version_has_no_operators(tmp_path: Path) -> None:
    rows = [{"adapter": "fake", "id": "1", "chat": "c", "text": "/login", "tries": 0}]
    (tmp_path / "gateway_inbox.json").write_text(json.dumps({"version": 1, "pending": rows, "seen": []}))
    (item,) = Inbox(tmp_path).pending
    assert (item.message.user, item.message.private) == ("", False)


async def test_the_local_chat_may_sign_in_and_the_gateway_counts_no_turn(world: World) -> None:
    async with FleetMember(world.home, OPTIONS) as member:
        bound = bind_socket(world.home, "chat", os.environ)
        room = ChatSocket(bound, member, echo, TurnContext(home=world.home), logins(world))
        await room.start()
        try:
            path = find_socket(world.home, "chat", os.environ)
            assert path is not None
            reader, writer = await asyncio.open_unix_connection(path)
            writer.write(b'{"text": "/login"}\n')
            said = []
            while not (record := json.loads(await reader.readline())).get("done"):
                said.append(record["delta"].strip())
            writer.close()
        finally:
            await room.stop()
    assert said[0] == START
    assert said[-1] == "Signed in as alice@example.test."


async def test_a_local_chat_that_was_closed_loses_no_account(world: World) -> None:
    """The code was shown; a line that nobody can read any more ends nothing."""
    world.portal.knobs.auto_approve = ""
    world.clock.autojump = False
    flow = logins(world)
    async with FleetMember(world.home, OPTIONS) as member:
        bound = bind_socket(world.home, "chat", os.environ)
        room = ChatSocket(bound, member, echo, TurnContext(home=world.home), flow)
        await room.start()
        try:
            path = find_socket(world.home, "chat", os.environ)
            assert path is not None
            reader, writer = await asyncio.open_unix_connection(path)
            writer.write(b'{"text": "/login"}\n')
            for _ in range(4):
                await reader.readline()
            writer.close()
            await writer.wait_closed()
            world.portal.plant(Fault(route="token.device", status=503, body="html", times=2))
            world.portal.approve()
            world.clock.autojump = True
            world.clock.advance(1)
            await wait_async(lambda: bool(world.store().read().email), 10, "the account")
        finally:
            await room.stop()
