"""Field reports of the hand-off and the refresh, each by its id. The whole kind is tested, not the instance."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from nedura.http import open_client
from nedura.signin.handoff import drain
from nedura.signin.handoff_copy import result_lines
from nedura.signin.handoff_record import HandoffStore, note_replacement
from nedura.signin.handoff_rules import State, is_due
from nedura.signin.identity import Kind, account_entry, identity_key
from nedura.signin.refresh import Outcome, refresh_account
from nedura.signin.renewal import rotated
from nedura.testing.http import ScriptedTransport, lost, reply
from nedura.testing.portal import Fault, Portal, PortalServer, serve_portal
from nedura.testing.portal.routes_oauth import token_set
from tests.integration.handoff.world import URL, World

ONE_REFRESH = """
import asyncio, sys
from pathlib import Path
from nedura.signin.accounts import AccountStore
from nedura.signin.refresh import refresh_account
home, force = Path(sys.argv[1]), sys.argv[2] == "force"
print("ready", flush=True)
sys.stdin.readline()
result = asyncio.run(refresh_account(AccountStore(home), force=force))
print(result.outcome.value, flush=True)
"""


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / ".nedura")


async def start(home: Path, server: PortalServer, *, force: bool = True) -> asyncio.subprocess.Process:
    """A process that refreshes one profile when it is told to."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", ONE_REFRESH, str(home), "force" if force else "",
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        env={"HOME": str(home.parent), "NEDURA_PORTAL_BASE_URL": server.url, "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert process.stdout is not None
    assert await process.stdout.readline() == b"ready\n"
    return process


async def go(process: asyncio.subprocess.Process) -> str:
    out, _ = await process.communicate(b"\n")
    return out.decode().strip()


def sign_in(portal: Portal, url: str, world: World, *profiles: str) -> dict[str, Any]:
    """One login, saved in several profiles against a portal with a socket."""
    answer = token_set(portal, portal.login(), url)
    entry = account_entry(
        answer, portal_url=url, inference_url="", client_id="hermes-cli", scope="", tls={}, now=time.time()
    )
    for profile in profiles:
        world.store(profile).save_account(entry, renewal=False, now=time.time())
    return entry


async def test_c136_two_processes_with_one_single_use_token(world: World) -> None:
    portal = Portal()
    async with serve_portal(portal) as server:
        portal.knobs.access_ttl = 1
        sign_in(portal, server.url, world, "a", "b")
        portal.knobs.access_ttl = 900
        portal.plant(Fault(route="token.refresh", delay=0.2))
        both = [await start(world.home(name), server, force=False) for name in ("a", "b")]
        await asyncio.sleep(1.2)
        outcomes = sorted(await asyncio.gather(*map(go, both)))
        assert outcomes == ["adopted", "rotated"]
        assert (portal.log.count("token.refresh"), portal.store.reuse) == (1, 0)
        one, other = (world.store(name).read().entry for name in ("a", "b"))
        assert one is not None
        assert other is not None
        assert one["refresh_token"] == other["refresh_token"] == portal.store.families[0].current


async def test_c136_a_refusal_of_the_old_token_changes_nothing_when_a_newer_one_is_there(
    world: World,
) -> None:
    world.sign_in("alice@example.test")
    old = dict(world.store().read().entry or {})
    with world.store("b").transaction() as transaction:
        transaction.adopt(old, world.clock.time())
    world.clock.advance(850)
    assert (await world.refresh()).outcome is Outcome.ROTATED
    assert (await world.refresh("b")).outcome is Outcome.ADOPTED
    assert world.store("b").read().kind(world.clock.time()) is Kind.ACCOUNT
    assert world.portal.store.reuse == 0


async def test_c137_a_kill_between_answer_and_rename_asks_for_one_sign_in(world: World) -> None:
    portal = Portal()
    async with serve_portal(portal) as server:
        sign_in(portal, server.url, world, "a", "b")
        portal.plant(Fault(route="token.refresh", commit=True, delay=20))
        process = await start(world.home("a"), server)
        assert process.stdin is not None
        process.stdin.write(b"\n")
        while not portal.store.families[0].redeemed:
            await asyncio.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        await process.wait()
        portal.faults.clear()
        environ = {**world.environ, "NEDURA_PORTAL_BASE_URL": server.url}

        async def again(name: str) -> str:
            return (await refresh_account(world.store(name), force=True, environ=environ)).outcome.value

        outcomes = [await again(name) for name in ("a", "b", "a")]
        assert set(outcomes) <= {"lost", "fresh", "ended"}
        assert portal.store.reuse == 0, "the token that left is never sent again, by no profile"
        assert not portal.store.families[0].revoked
        sign_in(portal, server.url, world, "a")
        assert await again("a") == "rotated"
        assert await again("b") in ("adopted", "rotated")


async def test_c144_a_renewal_never_puts_a_free_tier_over_an_account(world: World) -> None:
    world.sign_in()
    entry = {"auth_method": "anonymous", "anon_token": "anon_1", "portal_base_url": URL, "access_token": "x"}
    world.store("b").save_guest(entry, renewal=True, now=world.clock.time())
    assert identity_key(world.store().read().held) == ("account", "nas_user:alice")
    for _ in range(24):
        world.clock.advance(3600)
        await world.refresh()
        world.store("b").save_guest(entry, renewal=True, now=world.clock.time())
    assert identity_key(world.store().read().held) == ("account", "nas_user:alice")
    assert world.store().read().subject == "nas_user:alice"


async def test_c144_a_record_is_bound_to_its_account_and_rechecked(world: World) -> None:
    world.guest("gmail")
    world.sign_in("alice@example.test")
    world.portal.plant(Fault(route="anon.claim", drop=True))
    await world.drain()
    world.sign_in("bob@example.test")
    world.clock.advance(60)
    await world.drain()
    assert [record.account_sub for record in world.records()] == ["nas_user:alice"]
    assert [entry.status for entry in world.portal.log.on("anon.claim")] == [0], (
        "nothing was sent for the other account"
    )


C146 = [
    (
        reply({"status": "claimed", "connectors": [{"connector": "gmail", "outcome": "moved"}]}),
        State.CLAIMED,
        0,
    ),
    (reply({"status": "claimed"}), State.CLAIMED, 0),
    (reply({"error": "unknown_token"}, 404), State.GONE, 0),
    (reply({"error": "already_retired"}, 409), State.GONE, 0),
    (reply({"error": "client_not_allowed"}, 403), State.FAILED, 0),
    (reply({"error": "account_locked"}, 403), State.FAILED, 0),
    (reply({"error": "invalid_request"}, 400), State.FAILED, 0),
    (reply({"error": "invalid_token"}, 401), State.PENDING, 60),
    (reply({"error": "not_found"}, 404), State.PENDING, 60),
    (reply(b"<h1>Not Found</h1>", 404), State.PENDING, 60),
    (reply({"error": "temporarily_disabled"}, 503), State.PENDING, 60),
    (reply({"error": "slow"}, 429, retry_after="120"), State.PENDING, 120),
    (reply({"error": "never_seen_before"}, 418), State.PENDING, 60),
    (reply(b"hello", 200), State.PENDING, 60),
    (reply(b"", 200), State.PENDING, 60),
    (lost(), State.PENDING, 60),
]


@pytest.mark.parametrize(("answer", "state", "wait"), C146, ids=lambda value: str(value)[:60])
async def test_c146_answers_are_told_apart_by_their_code(
    world: World, answer: Any, state: State, wait: float
) -> None:
    world.guest("gmail")
    world.sign_in()
    transport = ScriptedTransport(
        {"/api/anonymous/claim": [answer], "/api/oauth/token": [reply({"error": "busy"}, 503)]}
    )

    def client(trust: object, **options: Any) -> Any:
        return open_client(transport=transport, environ={}, timeout=options["timeout"])

    (result,) = await drain(world.home(), environ=world.environ, clock=world.clock, client_factory=client)
    (record,) = world.records()
    assert record.state is state
    assert result.retrying == (state is State.PENDING)
    if state is State.PENDING:
        assert record.next_attempt_at == world.clock.time() + wait
    text = " ".join(result.lines).lower()
    for word in (
        "404",
        "401",
        "503",
        "unknown_token",
        "not_found",
        "temporarily",
        "http",
        "nothing moved",
        "error",
    ):
        assert word not in text


async def test_c146_an_unknown_token_after_an_earlier_try_was_probably_moved(world: World) -> None:
    world.guest("gmail")
    world.sign_in()
    world.portal.plant(Fault(route="anon.claim", commit=True, status=502, body="html"))
    await world.drain()
    world.clock.advance(60)
    (result,) = await world.drain()
    assert (result.state, "probably moved" in result.lines[0]) == ("gone", True)


async def test_c147_done_is_only_noted_on_a_claimed_answer(world: World) -> None:
    guest = world.guest("gmail")
    world.sign_in()
    world.portal.plant(Fault(route="anon.claim", delay=3600))
    run = asyncio.create_task(world.drain())
    while not world.clock.slept:
        await asyncio.sleep(0.005)
    run.cancel()  # stopped between the request and its answer: no answer, so the ladder's first minute
    with pytest.raises(asyncio.CancelledError):
        await run
    (record,) = world.records()
    assert (record.state, record.attempts) == (State.PENDING, 1)
    assert not is_due(record, world.clock.time())
    world.clock.advance(60)
    assert [result.state for result in await world.drain()] == ["claimed"]
    assert guest.status == "claimed"


async def test_c149_the_credential_is_on_disk_before_the_account_takes_its_place(world: World) -> None:
    guest = world.guest("gmail", "slack")
    store = HandoffStore(world.home())
    seen: list[str] = []

    def note(home: Path, **fields: Any) -> None:
        note_replacement(home, **fields)
        entry = world.store().read().entry
        seen.append(str((entry or {}).get("auth_method")))
        raise KeyboardInterrupt  # the crash: after the record, before the account

    interrupted = type(world.store())(world.home(), environ=world.environ, note=note)
    with pytest.raises(KeyboardInterrupt):
        interrupted.save_account(world.login(), renewal=False, now=world.clock.time())
    assert seen == ["anonymous"]
    (record,) = store.read()
    assert record.token is not None
    assert record.token.reveal() == guest.token
    assert await world.drain() == (), "harmless until the account is there"
    world.sign_in()
    (result,) = await world.drain()
    assert result.state == "claimed"
    assert [row.connector for row in world.portal.store.connections["nas_user:alice"]] == ["gmail", "slack"]


async def test_c149_a_crash_right_after_the_save_loses_nothing(world: World) -> None:
    guest = world.guest("gmail", "slack")
    world.sign_in()  # and the process ends here, before its drain
    assert guest.status == "live"
    (result,) = await world.drain()
    assert result.lines == ("These connected apps came along: Gmail and Slack.",)


async def test_c151_a_raw_404_page_never_reaches_a_signed_in_user(world: World) -> None:
    world.guest("gmail")
    world.sign_in()
    world.portal.plant(
        Fault(
            route="anon.claim", times=-1, status=404, body="html", text="<h1>404</h1> https://x nedura guest"
        )
    )
    lines: list[str] = []
    for _ in range(9 * 60):
        lines += [line for result in await world.drain() for line in result.lines]
        world.clock.advance(60)
    assert world.records()[0].state is State.FAILED
    assert len(lines) == 5
    for line in {*lines, *result_lines(world.records()[0])}:
        for word in ("404", "http", "<", "nedura", "guest", "anonymous", "claim"):
            assert word not in line.lower()


async def test_c152_the_credential_is_forgotten_and_empty_fields_replace_nothing(world: World) -> None:
    guest = world.guest("gmail")
    entry = world.sign_in()
    await world.drain()
    assert not any(guest.token in path.read_text() for path in world.root.rglob("*.json"))
    empty = {
        "access_token": entry["access_token"],
        "refresh_token": "",
        "scope": "",
        "token_type": "",
        "inference_base_url": "",
        "email": "",
    }
    fresh = rotated(entry, empty, {}, "")
    assert fresh is not None
    for name in ("refresh_token", "scope", "token_type", "inference_base_url", "portal_base_url"):
        assert fresh[name] == entry[name]


async def test_c153_the_second_record_is_sent_after_a_kill_and_the_first_not_again(world: World) -> None:
    account = world.sign_in()
    guests = [world.portal.store.add_guest("gmail") for _ in range(2)]
    for number, guest in enumerate(guests):
        old = {"auth_method": "anonymous", "anon_token": guest.token, "portal_base_url": URL}
        note_replacement(world.home(), old=old, new=account, now=world.clock.time() + number * 5)
    (first,) = await world.drain()  # only the first is due yet; then the process is killed
    world.clock.advance(5)
    (second,) = await world.drain()
    assert [first.state, second.state] == ["claimed", "claimed"]
    assert first.id != second.id
    assert world.claims() == 2


async def test_c136_the_refresh_of_a_named_profile_goes_through_the_roots_store(world: World) -> None:
    world.sign_in()
    world.clock.advance(850)
    results = await asyncio.gather(world.refresh(), world.refresh("coder"), world.refresh("writer"))
    assert world.portal.log.count("token.refresh") == 1
    assert len({str(result.bearer and result.bearer.reveal()) for result in results}) == 1
