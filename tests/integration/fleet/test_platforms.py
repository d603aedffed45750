"""Messages of chat platforms across drains, restarts and crashes; several profiles in one process; the model route."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import attrs
import pytest

from nedura.errors import StoreError
from nedura.fleet import FleetMember, MemberOptions, ask_now, collect_now, find_socket
from nedura.fleet.drain import DrainSettings
from nedura.homes import current_home
from nedura.signin.accounts import AccountStore
from nedura.signin.identity import account_entry
from nedura.testing.portal.control import PortalControl, portal_process
from nedura_gateway.adapters import Deliver, Inbound
from nedura_gateway.handlers import TurnContext
from nedura_gateway.inbox import Inbox
from nedura_gateway.platform_worker import GIVEN_UP, PlatformWorker
from tests.kits.fleet import gateway, wait_async, wait_for

OPTIONS = MemberOptions(settings=DrainSettings(cron_s=0, grace_s=1), watchdogs=False, signals=False)


@attrs.define
class FakePlatform:
    """A platform with a queue of its own: it sends from its position on, and moves the position when a message was taken."""

    queue: list[tuple[str, str]]
    position: int = 0
    sent: list[tuple[str, str]] = attrs.field(factory=list)
    moves: bool = True
    name: str = "fake"

    async def run(self, deliver: Deliver) -> None:
        at = self.position
        while True:
            while at < len(self.queue):
                ident, text = self.queue[at]
                await deliver(Inbound(adapter=self.name, id=ident, chat="c", text=text))
                at += 1
                if self.moves:
                    self.position = at
            await asyncio.sleep(0.01)

    async def send(self, chat: str, text: str) -> None:
        self.sent.append((chat, text))


async def run_gateway(
    home: Path,
    platform: FakePlatform,
    handler: Callable[[str, TurnContext], AsyncIterator[str]],
    until: Callable[[FleetMember], bool],
) -> int:
    """One life of a gateway: it ends by itself or when `until` says so."""
    async with FleetMember(home, OPTIONS) as member:
        context = TurnContext(home=home, request_restart=member.request_restart)
        worker = PlatformWorker(member, handler, context, {platform.name: platform}, Inbox(home))  # type: ignore[arg-type]
        worker.start()
        await wait_async(
            lambda: member._stopper.stopped.is_set() or until(member), 10, "the end of this life"
        )
        await worker.stop()
    return member.exit_code


async def echo(text: str, context: TurnContext) -> AsyncIterator[str]:
    await asyncio.sleep(0.02)
    yield f"re: {text}"


async def test_every_message_is_answered_once(tmp_path: Path) -> None:
    platform = FakePlatform([(str(number), f"m{number}") for number in range(5)])
    await run_gateway(tmp_path, platform, echo, lambda _: len(platform.sent) == 5)
    await run_gateway(tmp_path, platform, echo, lambda member: time.monotonic() - member._born > 0.3)
    assert platform.sent == [("c", f"re: m{number}") for number in range(5)]


class SlowInbox(Inbox):
    """A disk that takes its time to note an answer."""

    def finish(self, message: Inbound) -> None:
        time.sleep(0.2)
        super().finish(message)


async def test_a_stop_between_an_answer_and_its_note_does_not_answer_twice(tmp_path: Path) -> None:
    platform = FakePlatform([("1", "m")])
    async with FleetMember(tmp_path, OPTIONS) as member:
        context = TurnContext(home=tmp_path, request_restart=member.request_restart)
        worker = PlatformWorker(member, echo, context, {"fake": platform}, SlowInbox(tmp_path))  # type: ignore[arg-type]
        worker.start()
        await wait_async(lambda: bool(platform.sent), 10, "the answer")
        await worker.stop()
    assert not Inbox(tmp_path).pending
    await run_gateway(tmp_path, platform, echo, lambda member: time.monotonic() - member._born > 0.3)
    assert platform.sent == [("c", "re: m")]


async def test_a_handlers_mistake_is_said_and_the_next_message_works(tmp_path: Path) -> None:
    async def moody(text: str, context: TurnContext) -> AsyncIterator[str]:
        if text == "bad":
            raise ValueError("no")
        yield text

    platform = FakePlatform([("1", "bad"), ("2", "good")])
    await run_gateway(tmp_path, platform, moody, lambda _: len(platform.sent) == 2)
    assert [text for _, text in platform.sent] == ["Something went wrong with this message.", "good"]


async def test_a_message_that_ends_the_process_is_given_up(tmp_path: Path) -> None:
    """It was begun twice and never finished: the third life does not try again."""
    box = Inbox(tmp_path)
    message = Inbound(adapter="fake", id="1", chat="c", text="poison")
    assert box.accept(message)
    box.begin(message)
    Inbox(tmp_path).begin(message)
    platform = FakePlatform([])
    await run_gateway(tmp_path, platform, echo, lambda _: bool(platform.sent))
    assert platform.sent == [("c", GIVEN_UP)]


def test_a_message_is_on_disk_before_it_counts_as_taken(tmp_path: Path) -> None:
    box = Inbox(tmp_path)
    message = Inbound(adapter="a", id="1", chat="c", text="t")
    assert box.accept(message)
    assert not Inbox(tmp_path).accept(message)
    assert [item.message for item in Inbox(tmp_path).pending] == [message]
    box.finish(message)
    assert not Inbox(tmp_path).pending
    assert not Inbox(tmp_path).accept(message), "an answered id stays known"


def test_an_inbox_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "gateway_inbox.json").write_text("{torn")
    with pytest.raises(StoreError):
        Inbox(tmp_path)


async def home_of_turn(text: str, context: TurnContext) -> AsyncIterator[str]:
    yield f"{context.home}|{current_home()}|{os.environ['NEDURA_HOME']}"


def profiles(root: Path, *names: str) -> list[Path]:
    homes = [root / "profiles" / name for name in names]
    for home in homes:
        home.mkdir(parents=True, exist_ok=True)
    return homes


HOME_HANDLER = "tests.integration.fleet.test_platforms:home_of_turn"


def test_one_process_serves_several_profiles(tmp_path: Path) -> None:
    root = tmp_path / "root"
    a, b = profiles(root, "a", "b")
    (root / "config.yaml").write_text("gateway:\n  multiplex_profiles: true\n")
    with gateway(root, handler=HOME_HANDLER) as daemon:
        wait_for(lambda: (daemon.identify() or {}).get("served_profiles") == ["a", "b"])
        for home in (root, a, b):
            (delta, done) = attrs.evolve(daemon, home=home).chat("where")
            assert delta["delta"] == f"{home}|{home}|{root}", "bound per activity; the environment stays"
            assert done == {"done": True}
        fleet = collect_now(root)
        assert [(row.profile, row.served_profiles) for row in fleet.runtimes] == [("default", ("a", "b"))]
        (c,) = profiles(root, "c")
        answer = ask_now(root, "rescan-profiles", timeout=8)
        assert answer is not None
        assert (answer["multiplex"], answer["added"], answer["served_profiles"]) == (
            True,
            ["c"],
            ["a", "b", "c"],
        )
        (root / "profiles" / ".deleted").mkdir()
        (root / "profiles" / ".deleted" / "b").touch()
        answer = ask_now(root, "rescan-profiles", timeout=8)
        assert answer is not None
        assert (answer["removed"], answer["served_profiles"]) == (["b"], ["a", "c"])
        assert find_socket(b, "chat", os.environ) is None
        with gateway(a, handler=HOME_HANDLER, ready=False) as second:
            assert second.wait() == 78
            assert "serves profile a already" in second.said()
        with gateway(c, "--force", handler=HOME_HANDLER):
            pass
        daemon.signal(signal.SIGUSR1)
        assert daemon.wait() == 75
    assert find_socket(a, "chat", os.environ) is None


@pytest.mark.parametrize(
    ("allow", "served"), [("[a]", ["a"]), ("[]", []), ("oops", []), ("null", ["a", "b"])]
)
def test_the_allow_list(tmp_path: Path, allow: str, served: list[str]) -> None:
    root = tmp_path / "root"
    profiles(root, "a", "b")
    (root / "config.yaml").write_text(
        f"gateway:\n  multiplex_profiles: true\n  multiplex_profile_allowlist: {allow}\n"
    )
    with gateway(root) as daemon:
        assert (daemon.identify() or {})["served_profiles"] == served


def test_a_profile_with_a_gateway_of_its_own_is_left_to_it(tmp_path: Path) -> None:
    root = tmp_path / "root"
    a, _ = profiles(root, "a", "b")
    (root / "config.yaml").write_text("gateway:\n  multiplex_profiles: true\n")
    with gateway(a) as own, gateway(root) as daemon:
        assert (daemon.identify() or {})["served_profiles"] == ["b"]
        rows = {row.profile: row.pid for row in collect_now(root).runtimes}
        assert rows == {"default": daemon.pid, "a": own.pid}


def signed_in(home: Path, portal: PortalControl, inference_url: str) -> str:
    """Save a fresh login; returns its access token."""
    home.mkdir()
    entry = account_entry(
        portal.login(),
        portal_url=portal.url,
        inference_url=inference_url,
        client_id="hermes-cli",
        scope="inference:invoke",
        tls={},
        now=time.time(),
    )
    AccountStore(home).save_account(entry, renewal=False, now=time.time())
    return str(entry["access_token"])


def test_the_model_answers_with_the_accounts_token(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with portal_process(tmp_path) as portal:
        token = signed_in(home, portal, f"{portal.url}/v1")
        (home / "config.yaml").write_text("model:\n  default: some/model\n")
        with gateway(home, handler="", environ={"NEDURA_PORTAL_BASE_URL": portal.url}) as daemon:
            lines = daemon.chat("hello there")
            assert "".join(line.get("delta", "") for line in lines) == "You said: hello there"
            assert lines[-1] == {"done": True}
            assert token not in daemon.said()
            assert token not in (home / "gateway_state.json").read_text()
            assert token not in json.dumps(ask_now(home, "status"))


def test_a_token_is_never_sent_to_another_host(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with portal_process(tmp_path) as portal:
        signed_in(home, portal, "https://inference-api.example.test/v1")
        (home / "config.yaml").write_text(f"model:\n  default: m\n  base_url: {portal.url}/v1\n")
        with gateway(home, handler="") as daemon:
            (answer,) = daemon.chat("hello")
            assert answer["error"] == "config"
        assert portal.log("chat") == []
