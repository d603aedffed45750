"""Profiles of one root: what one of them meets must not strand the others."""

from __future__ import annotations

from typing import Any

from nedura.signin.adoption import Reconciled, reconcile
from nedura.signin.free_tier import FreeTier
from nedura.signin.identity import Kind
from nedura.signin.refresh import Outcome
from nedura.testing.portal import Fault
from tests.integration.handoff.world import World


def common(world: World) -> dict[str, Any]:
    return {"environ": world.environ, "clock": world.clock, "client_factory": world.client}


async def test_a_damaged_shared_store_is_put_aside_and_does_not_strand_the_siblings(world: World) -> None:
    world.sign_in(profile="a")
    world.home("b")
    with world.store("b").transaction() as transaction:
        held = transaction.state.held
        assert held is not None
        transaction.adopt(held, world.clock.time())
    world.clock.advance(4000)
    shared = world.store("a").shared_path
    shared.write_text("{")
    found = [(await world.refresh(name)).outcome for name in "aba"]
    assert found == [Outcome.ROTATED, Outcome.ADOPTED, Outcome.FRESH]
    assert [path.read_text() for path in shared.parent.glob("nous_auth.json.corrupt*")] == ["{"]


async def test_a_free_tier_does_not_follow_a_login_whose_refresh_was_lost(world: World) -> None:
    world.home("b")
    world.guest("slack", profile="b")
    world.sign_in()
    world.clock.advance(4000)
    world.portal.plant(Fault(route="token.refresh", drop=True, commit=True))
    assert (await world.refresh()).outcome is Outcome.LOST
    assert await reconcile(world.home("b"), **common(world)) is Reconciled.NOTHING
    assert world.store("b").read().kind(world.clock.time()) is Kind.GUEST
    assert world.records("b") == ()
    world.sign_in()
    assert await reconcile(world.home("b"), **common(world)) is Reconciled.ACCOUNT


async def test_an_empty_profile_neither_follows_a_lost_login_nor_puts_a_free_tier_in_its_place(
    world: World,
) -> None:
    world.sign_in(profile="a")
    world.clock.advance(4000)
    world.portal.plant(Fault(route="token.refresh", drop=True, commit=True))
    assert (await world.refresh("a")).outcome is Outcome.LOST
    options = common(world) | {"environ": world.environ | {"NEDURA_GUEST_ONBOARDING": "1"}}
    tier = FreeTier(home=world.home("b"), memos={}, **options)
    found = await tier.provision(force=True)
    assert (found.ready, found.code) == (False, "relogin_required")
    assert world.store("b").read().entry is None
    assert world.portal.log.count("anon.create") == 0
    world.sign_in(profile="a")
    assert (await tier.provision()).account


async def test_a_free_tier_is_not_put_over_an_ended_account(world: World) -> None:
    world.home("b")
    world.sign_in("alice@example.test", "a")
    world.sign_in("bob@example.test", "b")
    world.clock.advance(4000)
    world.portal.store.families[0].revoked = "x"
    assert (await world.refresh("a")).outcome is Outcome.ENDED
    options = common(world) | {"environ": world.environ | {"NEDURA_GUEST_ONBOARDING": "1"}}
    found = await FreeTier(home=world.home("a"), memos={}, **options).provision(force=True)
    assert (found.ready, found.code) == (False, "relogin_required")
    assert "sign in again" in found.copy.lower()
    assert world.store("a").read().kind(world.clock.time()) is Kind.DEAD


def share(world: World, source: str, *others: str) -> None:
    world.sign_in(profile=source)
    for name in others:
        world.home(name)
        with world.store(name).transaction() as transaction:
            held = transaction.state.held
            assert held is not None
            transaction.adopt(held, world.clock.time())


async def test_a_new_sign_in_heals_every_profile_of_an_ended_account(world: World) -> None:
    share(world, "a", "b", "c")
    world.clock.advance(4000)
    world.portal.store.families[0].revoked = "x"
    for name in "abcabc":
        assert (await world.refresh(name)).outcome in (Outcome.ENDED, Outcome.LOST)
    assert world.portal.log.count("token.refresh") == 1
    world.clock.advance(60)
    world.sign_in(profile="b")
    for name in "ac":
        assert (await world.refresh(name)).outcome is Outcome.ADOPTED
        state = world.store(name).read()
        assert state.kind(world.clock.time()) is Kind.ACCOUNT
        assert state.entry is not None
        assert not {"last_auth_error", "account_sub"} & set(state.entry)
        assert state.entry["agent_key"] == state.entry["access_token"]
    assert world.portal.store.reuse == 0


async def test_signing_an_ended_profile_out_leaves_the_siblings_login_held(world: World) -> None:
    share(world, "a", "b")
    world.clock.advance(4000)
    world.portal.store.families[0].revoked = "x"
    assert (await world.refresh("a")).outcome is Outcome.ENDED
    world.sign_in(profile="b")
    with world.store("a").transaction() as transaction:
        transaction.forget(world.clock.time())
    assert world.store("b").read().held is not None


def test_half_written_stores_of_killed_writers_go_with_the_next_transaction(world: World) -> None:
    world.guest("gmail")
    shared = world.store().shared_folder
    left = [
        folder / f".{name}.tmp.1.0123456789ab"
        for folder, name in (
            (world.home(), "auth.json"), (world.home(), "guest_handoff.json"), (shared, "nous_auth.json"),
        )
    ]  # fmt: skip
    for path in left:
        path.write_text("anon_secret")
    other = world.home() / ".mine.tmp.1.0123456789ab"
    other.write_text("mine")
    world.sign_in()
    assert not [path for path in left if path.exists()]
    assert other.exists()
