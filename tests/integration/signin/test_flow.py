"""The sign-in from its first look to its terminal state."""

from __future__ import annotations

from contextlib import aclosing
from typing import Any

import pytest

from nedura.config import read_config
from nedura.http import open_client
from nedura.records import write_bytes
from nedura.signin import (
    AlreadySignedIn,
    Code,
    Completed,
    Failed,
    Kind,
    LoginOptions,
    Parts,
    TimedOut,
    Waiting,
    settle_after_upgrade,
)
from nedura.signin.identity import quarantined
from nedura.testing.portal import Fault
from tests.integration.signin.world import URL, Calls, World, read
from tests.unit.signin.tokens import account


async def test_code_then_waiting_then_completed_and_nothing_on_disk_before(world: World) -> None:
    files: list[dict[str, bytes]] = []
    states = await world.states(lambda state: files.append(world.files()))
    assert [type(state) for state in states] == [Code, Waiting, Completed]
    assert files[:2] == [{}, {}]
    assert sorted(files[2]) == ["auth.json", "shared/nous_auth.json"]
    code = states[0]
    assert isinstance(code, Code)
    assert code.link == f"{URL}/device?user_code={code.code}"
    assert code.page == f"{URL}/device"
    assert (code.expires_in, code.interval) == (600, 5)
    assert code.expires_at.startswith("2027-01-15T08:10:00")
    assert states[2] == Completed(email="alice@example.test")
    assert world.routes() == ["device_code", "token.device"]
    assert world.store().read().kind(world.clock.time()) is Kind.ACCOUNT


async def test_a_free_tier_on_disk_gives_way_and_its_apps_come_along(world: World) -> None:
    token = world.guest("gmail", "notion:reconnect")
    done = await world.last()
    assert isinstance(done, Completed)
    assert done.handoff == ("These connected apps came along: Gmail.", "Please reconnect: Notion.")
    assert done.handoff_status is not None
    assert done.handoff_status["state"] == "claimed"
    assert done.handoff_status["lines"] == list(done.handoff)
    assert world.routes() == ["device_code", "token.device", "anon.claim"]
    for content in world.files().values():
        assert token.encode() not in content


async def test_an_account_is_left_alone_and_the_portal_is_not_asked(world: World) -> None:
    await world.last()
    before, asked = world.files(), len(world.routes())
    assert await world.states() == [AlreadySignedIn(email="alice@example.test")]
    assert world.files() == before
    assert len(world.routes()) == asked


async def test_a_dead_account_gets_a_direct_grant(world: World) -> None:
    store = world.store()
    dead = quarantined(account(), code="invalid_grant", message="m", reason="refresh", now=0)
    with store.transaction() as transaction:
        transaction.edit(lambda document: document["providers"].update(nous=dead), 0)
    assert isinstance(await world.last(), Completed)
    assert world.routes() == ["device_code", "token.device"]
    assert "last_auth_error" not in read(store.path)["providers"]["nous"]


async def test_a_config_on_the_welcome_route_moves_once(world: World) -> None:
    config = b"# mine\nmodel:\n  default: nous/welcome # start\n  base_url: https://welcome-api.nousresearch.com/v1\n"
    write_bytes(world.home / "config.yaml", config)
    done = await world.last()
    assert done == Completed(email="alice@example.test", model="nous/hermes-4-405b", model_changed=True)
    after = read_config(world.home)
    assert after.get("model.base_url") == "https://inference-api.nousresearch.com/v1"
    assert b"# mine" in (world.home / "config.yaml").read_bytes()


async def test_a_drain_that_fails_changes_nothing(world: World) -> None:
    calls = Calls(drain_error=RuntimeError("boom"))
    assert isinstance(await world.last(parts=calls.parts()), Completed)


async def test_a_decline_has_its_own_words(world: World) -> None:
    world.portal.knobs.auto_approve = ""

    def on(state: Any) -> None:
        if isinstance(state, Waiting):
            world.portal.decline()

    failed = (await world.states(on))[-1]
    assert isinstance(failed, Failed)
    assert failed.reason == "access_denied"
    assert "declined" in failed.copy


async def test_nobody_comes_and_it_times_out(world: World) -> None:
    world.portal.knobs.auto_approve = ""
    start = world.clock.monotonic()
    end = await world.last()
    assert isinstance(end, TimedOut)
    assert 590 < world.clock.monotonic() - start <= 601
    assert "CAPTCHA" in end.copy_terminal
    assert world.files() == {}


@pytest.mark.parametrize(
    "fault",
    [
        {"status": 429}, {"status": 429, "error": "too_many"}, {"status": 429, "headers": {"retry-after": "9"}},
        {"status": 429, "body": "empty"}, {"status": 503, "body": "html"}, {"status": 500}, {"status": 502, "body": "html"},
        {"status": 403, "body": "html", "headers": {"x-vercel-mitigated": "challenge"}}, {"drop": True},
        {"status": 400, "error": "slow_down"}, {"status": 408}, {"status": 504, "body": "huge"},
    ],
    ids=str,
)  # fmt: skip
async def test_no_blip_of_the_token_endpoint_ends_a_login(world: World, fault: dict[str, Any]) -> None:
    world.portal.plant(Fault(route="token.device", times=3, **fault))
    assert isinstance(await world.last(), Completed)
    assert world.routes().count("token.device") == 4


async def test_an_outage_is_said_once_and_taken_back(world: World) -> None:
    world.portal.knobs.auto_approve = ""
    world.portal.plant(Fault(route="token.device", times=3, status=503))
    polls = 0

    def look(state: Any) -> None:
        nonlocal polls
        if state == Waiting() and (polls := polls + 1) == 2:
            world.portal.approve()

    states = await world.states(look)
    assert states[1:] == [Waiting(), Waiting(trouble=True), Waiting(), states[-1]]
    assert isinstance(states[-1], Completed)


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ({"status": 429, "headers": {"retry-after": "90"}}, "anon_rate_limited"),
        ({"status": 503}, "anon_gate_paused"),
        ({"status": 500, "body": "html"}, "anon_server_error"),
        ({"drop": True}, "anon_unreachable"),
        ({"status": 400, "error": "invalid_client"}, "invalid_client"),
        ({"status": 401, "error": "strange_code", "text": "see https://x at line 5"}, ""),
        ({"status": 404, "body": "html"}, "malformed"),
        ({"status": 200, "body": "html"}, "malformed"),
        ({"status": 200, "body": "array"}, "malformed"),
        ({"status": 200, "body": "deep"}, "malformed"),
        ({"status": 200, "body": "huge"}, "malformed"),
        ({"status": 200, "body": "gzip_bomb"}, "malformed"),
        ({"status": 200, "body": "empty"}, "malformed"),
        ({"status": 302, "headers": {"location": "https://evil.example/"}}, "malformed"),
    ],
    ids=str,
)  # fmt: skip
async def test_a_device_endpoint_that_does_not_work_is_named(
    world: World, fault: dict[str, Any], reason: str
) -> None:
    world.portal.plant(Fault(route="device_code", **fault))
    states = await world.states()
    assert len(states) == 1
    failed = states[0]
    assert isinstance(failed, Failed)
    assert failed.reason == reason
    assert world.files() == {}


@pytest.mark.parametrize("body", ["html", "array", "deep", "huge", "gzip_bomb", "empty", "text"])
@pytest.mark.parametrize("status", [200, 400, 404])
async def test_a_token_answer_without_sense_ends_it_with_honest_words(
    world: World, body: Any, status: int
) -> None:
    world.portal.plant(Fault(route="token.device", status=status, body=body, times=3))
    failed = await world.last()
    assert isinstance(failed, Failed)
    assert failed.reason == "malformed"
    assert world.files() == {}


@pytest.mark.parametrize("body", ["html", "array", "empty", "text"])
async def test_one_page_of_something_in_between_loses_no_approval(world: World, body: Any) -> None:
    world.portal.plant(Fault(route="token.device", status=200, body=body, times=2))
    assert isinstance(await world.last(), Completed)


async def test_a_token_without_the_right_is_refreshed_once_and_then_refused(world: World) -> None:
    world.portal.knobs.granted_scope = "profile"
    failed = await world.last()
    assert isinstance(failed, Failed)
    assert failed.reason == "not_usable"
    assert world.routes() == ["device_code", "token.device", "token.refresh", "revoke"]
    assert world.files() == {}
    assert world.portal.store.reuse == 0


async def test_a_short_lived_token_is_good_enough(world: World) -> None:
    world.portal.knobs.access_ttl = 60
    assert isinstance(await world.last(), Completed)
    assert world.routes() == ["device_code", "token.device", "token.refresh"]


async def test_a_portal_of_the_environment_beats_a_stored_one_and_a_foreign_stored_one_is_ignored(
    world: World,
) -> None:
    foreign = quarantined(account(), code="x", message="", reason="", now=0) | {
        "portal_base_url": "https://evil.example"
    }
    with world.store().transaction() as transaction:
        transaction.edit(lambda document: document["providers"].update(nous=foreign), 0)
    assert isinstance(await world.last(), Completed)
    assert read(world.store().path)["providers"]["nous"]["portal_base_url"] == URL
    assert {entry.host for entry in world.portal.log.entries} == {"portal.example"}


@pytest.mark.parametrize(
    "url", ["http://portal.example", "https://u:p@portal.example", "ftp://x", "https://portal.example?x=1"]
)
async def test_a_portal_that_cannot_be_one_is_refused(world: World, url: str) -> None:
    world.environ["NEDURA_PORTAL_BASE_URL"] = url
    failed = await world.last()
    assert isinstance(failed, Failed)
    assert "portal" in failed.copy_terminal
    assert world.routes() == []


async def test_an_inference_address_elsewhere_is_healed(world: World) -> None:
    world.portal.knobs.inference_url = "https://evil.example/v1"
    await world.last()
    entry = read(world.store().path)["providers"]["nous"]
    assert entry["inference_base_url"] == "https://inference-api.nousresearch.com/v1"


async def test_a_malformed_ca_file_fails_before_the_wire(world: World) -> None:
    bad = world.home / "bad.pem"
    bad.write_bytes(b"rubbish")
    world.environ["NEDURA_CA_BUNDLE"] = str(bad)
    failed = await world.last(client_factory=open_client)
    assert isinstance(failed, Failed)
    assert (failed.reason, failed.saved) == ("", False)
    assert "bad.pem" in failed.copy_terminal


async def test_a_slow_renderer_makes_no_early_poll(world: World) -> None:
    world.portal.knobs.strict_gap = True
    async with aclosing(world.flow()) as states:
        async for _ in states:
            await world.clock.sleep(3.3)
    assert [e.error for e in world.portal.log.entries if e.route == "token.device"] == [""]


async def test_options_of_the_longer_login(world: World) -> None:
    await world.last()
    options = LoginOptions(
        replace=True, label="work", priority=2, client_id="other", oauth_scope="inference:invoke tool:invoke"
    )
    assert isinstance(await world.last(options=options), Completed)
    document = read(world.store().path)
    assert document["providers"]["nous"]["client_id"] == "other"
    assert document["providers"]["nous"]["scope"] == "inference:invoke tool:invoke"
    assert (
        document["credential_pool"]["nous"][0] | {"label": "work", "priority": 2}
        == document["credential_pool"]["nous"][0]
    )


async def test_after_a_suspend_one_poll_decides(world: World) -> None:
    world.portal.knobs.auto_approve = ""

    def on(state: Any) -> None:
        if state == Waiting():
            world.clock.suspend(3600)

    assert isinstance((await world.states(on))[-1], TimedOut)
    assert world.routes().count("token.device") == 1
    assert world.clock.monotonic() < 1100


async def test_a_wall_clock_that_is_set_forward_ends_nothing(world: World) -> None:
    world.portal.clock = type(world.clock)()  # the server's clock is right
    world.portal.knobs.auto_approve = ""

    def on(state: Any) -> None:
        if state == Waiting():
            world.clock.set_wall(world.clock.time() + 7200)
            world.portal.approve()

    assert isinstance((await world.states(on))[-1], Completed)


def test_settle_is_the_default_part() -> None:
    assert Parts().settle is settle_after_upgrade
