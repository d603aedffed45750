"""Making, keeping and giving up a free tier against the portal."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from nedura.records import write_bytes
from nedura.signin.adoption import Reconciled, reconcile
from nedura.signin.free_tier import FreeTier, FreeTierState
from nedura.signin.free_tier_rules import Challenge
from nedura.signin.identity import Kind
from nedura.testing.portal import Fault
from tests.integration.signin.world import World, read
from tests.unit.signin.tokens import account


@pytest.fixture
def free(world: World) -> World:
    world.environ["NEDURA_GUEST_ONBOARDING"] = "1"
    return world


def tier(world: World, home: Path | None = None, **more: Any) -> FreeTier:
    return FreeTier(
        home=home or world.home, environ=world.environ, clock=world.clock, client_factory=world.client,
        memos=more.pop("memos", {}), **more,
    )  # fmt: skip


async def test_a_mint_is_saved_and_exchanged(free: World) -> None:
    assert await tier(free).provision() == FreeTierState(ready=True)
    entry = read(free.store().path)["providers"]["nous"]
    assert entry["auth_method"] == "anonymous"
    assert entry["anon_token"].startswith("anon_")
    assert entry["inference_base_url"] == "https://welcome-api.nousresearch.com/v1"
    assert "refresh_token" not in entry
    assert free.routes() == ["anon.create", "anon.exchange"]
    assert free.store().read().document["active_provider"] is None
    assert read(free.store().shared_path)["anon_token"] == entry["anon_token"]


async def test_a_second_call_asks_nobody(free: World) -> None:
    await tier(free).provision()
    assert (await tier(free).provision()).ready
    assert free.routes() == ["anon.create", "anon.exchange"]


@pytest.mark.parametrize("value", ["", "0", "true", "yes", "11", " 1x"])
async def test_the_switch_is_exactly_one(world: World, value: str) -> None:
    world.environ["NEDURA_GUEST_ONBOARDING"] = value
    assert await tier(world).provision() == FreeTierState()
    assert world.routes() == []


@pytest.mark.parametrize("config", [b"nous:\n  guest: false\n", b"nous: [\n", b"nous:\n  guest: maybe\n"])
async def test_a_config_that_says_no_or_cannot_be_read_is_off(free: World, config: bytes) -> None:
    write_bytes(free.home / "config.yaml", config)
    assert await tier(free).provision() == FreeTierState()
    assert free.routes() == []


async def test_the_credential_is_on_disk_before_its_first_exchange(free: World) -> None:
    free.portal.plant(Fault(route="anon.exchange", drop=True))
    state = await tier(free).provision()
    assert (state.ready, state.code) == (False, "anon_unreachable")
    assert read(free.store().path)["providers"]["nous"]["anon_token"].startswith("anon_")
    assert (await tier(free).provision(force=True)).ready
    assert free.routes().count("anon.create") == 1


async def test_two_profiles_of_one_root_mint_once(free: World) -> None:
    homes = [free.home, *(free.home / "profiles" / name for name in "abc")]
    for home in homes[1:]:
        home.mkdir(parents=True, mode=0o700)
    states = await asyncio.gather(*(tier(free, home).provision() for home in homes))
    assert all(state.ready for state in states)
    assert free.routes().count("anon.create") == 1


@pytest.mark.parametrize(
    ("gate", "code"),
    [("closed", "anon_gate_closed"), ("paused", "anon_gate_paused"), ("secret", "anon_gate_closed")],
)
async def test_a_gate_that_is_not_open(free: World, gate: Any, code: str) -> None:
    free.portal.knobs.anon_gate = gate
    memos: dict[str, Any] = {}
    state = await tier(free, memos=memos).provision()
    assert (state.ready, state.code) == (False, code)
    again = await tier(free, memos=memos).provision()
    assert again.code == code
    assert free.routes().count("anon.create") == 1  # the memo answers


async def test_the_shared_secret_opens_the_gate(free: World) -> None:
    free.portal.knobs.anon_gate = "secret"
    free.environ["NEDURA_ANON_API_SECRET"] = "dev-secret"
    assert (await tier(free).provision()).ready


async def test_a_dead_credential_is_replaced_once_and_silently(free: World) -> None:
    await tier(free).provision()
    old = free.portal.store.guest_of(read(free.store().path)["providers"]["nous"]["anon_token"])
    assert old is not None
    old.status = "retired"
    free.clock.advance(3600)
    assert (await tier(free).provision()).ready
    assert free.routes().count("anon.create") == 2
    assert read(free.store().path)["providers"]["nous"]["anon_token"] != old.token


async def test_a_locked_identity_is_never_replaced(free: World) -> None:
    await tier(free).provision()
    guest = free.portal.store.guest_of(read(free.store().path)["providers"]["nous"]["anon_token"])
    assert guest is not None
    guest.status = "locked"
    free.clock.advance(3600)
    state = await tier(free).provision()
    assert state.code == "anon_account_locked"
    assert free.routes().count("anon.create") == 1


async def test_an_account_is_never_overridden(free: World) -> None:
    await free.last()
    before = free.files()
    assert await tier(free).provision() == FreeTierState(ready=True, account=True)
    assert free.files() == before
    coder = free.home / "profiles" / "coder"
    coder.mkdir(parents=True, mode=0o700)
    assert (await tier(free, coder).provision()).account
    assert "anon.create" not in free.routes()


async def test_a_sign_in_during_the_mint_wins(free: World) -> None:
    def sign_in(entry: Any) -> None:
        if entry.route == "anon.create":
            free.store().save_account(account("acct:9"), renewal=False, now=free.clock.time())

    free.portal.log.listener = sign_in
    state = await tier(free).provision()
    assert state.account
    assert free.store().read().subject == "acct:9"


async def test_a_check_is_shown_waited_for_and_passed(free: World) -> None:
    free.portal.knobs.challenge = "required"
    shown: list[Challenge] = []

    def show(challenge: Challenge) -> None:
        shown.append(challenge)
        for guest in free.portal.store.guests:
            guest.challenge_passed = True

    assert (await tier(free, show=show).provision()).ready
    assert [check.url.split("?")[0] for check in shown] == ["https://portal.example/check"]


async def test_a_check_nobody_passes_ends_in_two_minutes_and_then_fails_fast(free: World) -> None:
    free.portal.knobs.challenge = "required"
    shown: list[Challenge] = []
    start = free.clock.monotonic()
    state = await tier(free, show=shown.append).provision()
    assert (state.code, state.check_url.split("?")[0]) == (
        "anon_challenge_required",
        "https://portal.example/check",
    )
    assert 119 <= free.clock.monotonic() - start <= 125
    start = free.clock.monotonic()
    await tier(free, show=shown.append).provision(force=True)
    assert free.clock.monotonic() - start < 1
    assert len(shown) == 1


async def test_a_background_caller_never_waits_for_a_check(free: World) -> None:
    free.portal.knobs.challenge = "required"
    start = free.clock.monotonic()
    assert (await tier(free, background=True).provision()).code == "anon_challenge_required"
    assert free.clock.monotonic() - start < 1


async def test_connectors_are_never_checked_and_have_their_own_slot(free: World) -> None:
    await tier(free).provision()
    free.portal.knobs.challenge = "required"
    bearer = await tier(free).bearer("connectors")
    assert bearer is not None
    entry = read(free.store().path)["providers"]["nous"]
    assert entry["connectors_token"]["access_token"] == bearer.reveal()
    assert entry["access_token"] != bearer.reveal()
    assert "connectors_token" not in read(free.store().shared_path)


async def test_an_expired_token_is_exchanged_again(free: World) -> None:
    await tier(free).provision()
    first = await tier(free).bearer()
    free.clock.advance(3600)
    second = await tier(free).bearer()
    assert first is not None
    assert second is not None
    assert first != second
    assert free.routes().count("anon.exchange") == 2


@pytest.mark.parametrize("body", ["html", "array", "deep", "huge", "gzip_bomb", "empty"])
async def test_a_portal_that_answers_nonsense_is_a_server_error(free: World, body: Any) -> None:
    free.portal.plant(Fault(route="anon.create", status=200, body=body))
    assert (await tier(free).provision()).code == "anon_server_error"
    assert free.files() == {}


async def test_a_free_tier_adopts_the_account_of_a_sibling_settles_and_moves_its_apps(free: World) -> None:
    coder = free.home / "profiles" / "coder"
    coder.mkdir(parents=True, mode=0o700)
    await tier(free, coder).provision()
    config = b"model:\n  default: nous/welcome\n"
    write_bytes(coder / "config.yaml", config)
    await free.last()
    common = {"environ": free.environ, "clock": free.clock, "client_factory": free.client}
    assert await reconcile(coder, **common) is Reconciled.ACCOUNT  # type: ignore[arg-type]
    assert await reconcile(coder, **common) is Reconciled.NOTHING  # type: ignore[arg-type]
    assert read(coder / "auth.json")["providers"]["nous"]["refresh_token"]
    assert b"nous/welcome" not in (coder / "config.yaml").read_bytes()
    assert "anon.claim" in free.routes()


async def test_nobody_else_is_switched_by_a_reconcile(free: World) -> None:
    coder = free.home / "profiles" / "coder"
    coder.mkdir(parents=True, mode=0o700)
    await free.last()
    common: dict[str, Any] = {"environ": free.environ, "clock": free.clock, "client_factory": free.client}
    assert await reconcile(coder, **common) is Reconciled.NOTHING
    assert not (coder / "auth.json").exists()
    assert free.store().read().kind(free.clock.time()) is Kind.ACCOUNT
