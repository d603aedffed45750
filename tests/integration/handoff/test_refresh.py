"""One refresh for a whole root: redeemed once, persisted first, adopted by everybody else."""

from __future__ import annotations

import asyncio
import json
import os

import pytest

from nedura.locks import FileLock
from nedura.signin.identity import Kind, identity_key
from nedura.signin.refresh import Outcome
from nedura.signin.spent import SpentTokens
from nedura.testing.portal import Fault
from nedura.text import Secret
from tests.integration.handoff.world import World


def pair(world: World, profile: str = "") -> tuple[str, str]:
    entry = world.store(profile).read().entry
    assert entry is not None
    return entry["access_token"], entry["refresh_token"]


def adopt(world: World, profile: str) -> None:
    """Give a profile a copy of the root's account of its own."""
    entry = world.store().read().entry
    assert entry is not None
    with world.store(profile).transaction() as transaction:
        transaction.adopt(entry, world.clock.time())


async def test_a_good_token_is_left_alone_without_a_lock(world: World) -> None:
    world.sign_in()
    lock = FileLock(world.home() / "auth.lock")
    assert lock.try_acquire()
    try:
        result = await world.refresh()
    finally:
        lock.release()
    assert (result.outcome, result.usable) == (Outcome.FRESH, True)
    assert len(world.portal.log) == 0


async def test_an_ending_token_is_redeemed_once_and_kept_in_both_stores(world: World) -> None:
    before = world.sign_in()
    world.clock.advance(850)
    result = await world.refresh()
    assert result.outcome is Outcome.ROTATED
    assert result.bearer is not None
    access, refresh = pair(world)
    assert refresh not in ("", before["refresh_token"])
    shared = json.loads(world.store().shared_path.read_text())
    assert (shared["access_token"], shared["refresh_token"]) == (access, refresh)
    (entry,) = world.portal.log.on("token.refresh")
    assert set(entry.carried) == {"refresh"}, "the token travels in the header only"


async def test_many_callers_and_profiles_redeem_once(world: World) -> None:
    world.sign_in()
    names = [f"p{n}" for n in range(6)]
    for name in names:
        adopt(world, name)
    world.clock.advance(2000)
    results = await asyncio.gather(*(world.refresh(name) for name in names for _ in range(5)))
    assert world.portal.log.count("token.refresh") == 1
    assert world.portal.store.reuse == 0
    assert {result.outcome for result in results} <= {Outcome.ROTATED, Outcome.ADOPTED, Outcome.FRESH}
    assert len({pair(world, name) for name in names}) == 1


async def test_a_refused_bearer_is_refreshed_once_for_a_crowd(world: World) -> None:
    old = Secret(world.sign_in()["access_token"])
    results = await asyncio.gather(*(world.refresh(rejected=old) for _ in range(40)))
    assert world.portal.log.count("token.refresh") == 1
    assert all(result.bearer not in (None, old) for result in results)


@pytest.mark.parametrize(
    "fault",
    [
        Fault(route="token.refresh", status=429, error="slow"),
        Fault(route="token.refresh", status=429, body="html", headers={"retry-after": "30"}),
        Fault(route="token.refresh", status=503, body="empty"),
        Fault(route="token.refresh", status=500, error="invalid_grant"),
        Fault(route="token.refresh", status=403, body="html", headers={"x-vercel-mitigated": "deny"}),
        Fault(route="token.refresh", status=401, error="invalid_client"),
        Fault(route="token.refresh", status=307, body="empty", headers={"location": "http://127.0.0.1:2/"}),
    ],
    ids=lambda fault: fault.label,
)
async def test_what_is_not_terminal_ends_nothing_and_the_next_try_works(world: World, fault: Fault) -> None:
    before = world.sign_in()
    world.clock.advance(850)
    world.portal.plant(fault)
    result = await world.refresh()
    assert (result.outcome, result.usable) == (Outcome.LATER, True)
    assert pair(world) == (before["access_token"], before["refresh_token"])
    assert (await world.refresh()).outcome is Outcome.ROTATED
    assert world.portal.store.reuse == 0


@pytest.mark.parametrize(
    "fault",
    [
        Fault(route="token.refresh", commit=True, drop=True),
        Fault(route="token.refresh", drop=True),
        Fault(route="token.refresh", commit=True, status=200, body="html"),
        Fault(route="token.refresh", commit=True, status=200, body="array"),
    ],
    ids=lambda fault: f"{fault.label}-{fault.body}",
)
async def test_a_token_that_left_without_an_answer_is_never_sent_again(world: World, fault: Fault) -> None:
    world.sign_in()
    adopt(world, "b")
    world.clock.advance(850)
    world.portal.plant(fault)
    result = await world.refresh()
    assert (result.outcome, result.usable) == (Outcome.LOST, True)
    for profile in ("", "b", "b"):
        await world.refresh(profile, force=True)
    assert world.portal.log.count("token.refresh") == 1
    assert world.portal.store.reuse == 0
    entry = world.store("b").read().entry
    assert entry is not None
    assert (entry["last_auth_error"]["code"], "refresh_token" in entry) == ("refresh_lost", False)
    world.clock.advance(100)
    assert (await world.refresh("b")).outcome is Outcome.ENDED
    assert world.store("b").read().kind(world.clock.time()) is Kind.DEAD, "a new sign-in must be possible"
    world.sign_in(profile="b")
    assert (await world.refresh("b")).outcome is Outcome.FRESH


async def test_an_unreachable_portal_spends_nothing(world: World) -> None:
    before = world.sign_in()
    world.clock.advance(850)
    environ = world.environ

    def nowhere(trust: object, **options: object) -> object:
        from nedura.http import open_client

        return open_client(environ={}, timeout=2.0)

    result = await world.refresh(client_factory=nowhere)
    assert (result.outcome, result.usable) == (Outcome.LATER, True)
    assert SpentTokens(world.store().shared_folder).read() == ()
    assert pair(world)[1] == before["refresh_token"]
    assert environ == world.environ


@pytest.mark.parametrize("error", ["invalid_grant", "invalid_token", "refresh_token_reused"])
async def test_a_terminal_answer_ends_the_login_once_and_says_so(world: World, error: str) -> None:
    before = world.sign_in()
    adopt(world, "b")
    world.clock.advance(850)
    world.portal.plant(Fault(route="token.refresh", error=error, times=-1))
    assert (await world.refresh()).outcome is Outcome.ENDED
    text = (world.home() / "auth.json").read_text()
    assert before["refresh_token"] not in text
    assert before["access_token"] not in text
    assert error in text
    for _ in range(5):
        assert (await world.refresh(force=True)).outcome is Outcome.ENDED
    await world.refresh("b", force=True)
    assert world.portal.log.count("token.refresh") == 1, "the circuit is open: nobody asks again"


async def test_a_terminal_answer_never_takes_a_siblings_account_away(world: World) -> None:
    world.sign_in("alice@example.test")
    world.sign_in("bob@example.test", profile="b")
    world.clock.advance(850)
    world.portal.plant(Fault(route="token.refresh", error="invalid_grant"))
    assert (await world.refresh()).outcome is Outcome.ENDED
    assert (await world.refresh("b")).outcome is Outcome.ROTATED
    assert world.store("b").read().subject == "nas_user:bob"


async def test_a_held_lock_means_later_and_names_its_holder(world: World) -> None:
    world.sign_in()
    world.clock.advance(850)
    lock = FileLock(world.store().shared_lock)
    assert lock.try_acquire()
    try:
        task = asyncio.create_task(world.refresh(lock_seconds=0.2))
        result = await task
    finally:
        lock.release()
    assert (result.outcome, result.usable) == (Outcome.LATER, True)
    assert str(os.getpid()) in result.detail
    assert len(world.portal.log) == 0


async def test_a_disk_that_takes_nothing_keeps_the_token_at_home(world: World) -> None:
    world.sign_in()
    world.clock.advance(850)
    (world.store().shared_folder / "nous_spent.json").mkdir()
    result = await world.refresh()
    assert (result.outcome, result.usable) == (Outcome.LATER, True)
    assert len(world.portal.log) == 0


async def test_cancelling_the_caller_leaves_the_rotation_to_finish(world: World) -> None:
    before = world.sign_in()
    world.clock.advance(850)
    world.portal.plant(Fault(route="token.refresh", delay=5))
    task = asyncio.create_task(world.refresh())
    while not world.clock.slept:
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    world.clock.advance(5)
    while pair(world)[1] == before["refresh_token"]:
        await asyncio.sleep(0.01)
    assert world.portal.store.reuse == 0


async def test_a_named_profile_that_reads_the_roots_login_writes_back_to_it(world: World) -> None:
    world.sign_in()
    world.clock.advance(850)
    assert (await world.refresh("coder")).outcome is Outcome.ROTATED
    assert not (world.home("coder") / "auth.json").exists()
    assert (await world.refresh()).outcome is Outcome.FRESH


async def test_a_clock_that_was_set_back_does_not_lose_the_rotation(world: World) -> None:
    world.sign_in()
    adopt(world, "b")
    world.clock.advance(850)
    world.clock.set_wall(world.clock.time() - 86400)
    assert (await world.refresh(force=True)).outcome is Outcome.ROTATED
    assert (await world.refresh("b", force=True)).outcome in (Outcome.ROTATED, Outcome.ADOPTED)
    await world.refresh(force=True)
    assert world.portal.store.reuse == 0


async def test_an_answer_for_another_account_is_not_saved(world: World) -> None:
    world.sign_in()
    world.clock.advance(850)
    world.portal.knobs.jwt_claims = {"sub": "nas_user:mallory"}
    result = await world.refresh()
    assert result.outcome is Outcome.LOST
    assert world.store().read().subject == "nas_user:alice"


async def test_no_token_appears_in_a_log(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    world.guest("gmail")
    world.sign_in()
    await world.drain()
    world.clock.advance(850)
    await world.refresh()
    world.portal.plant(Fault(route="token.refresh", error="invalid_grant"))
    await world.refresh(force=True)
    assert len(caplog.records) > 5
    assert not [secret for secret in world.portal.store.mint.issued if secret in caplog.text]


async def test_renewal_rows(world: World) -> None:
    """facts/signin.md 7.8, rows 1 to 4, 6 and 9, with two profiles and two accounts."""
    store = world.store()
    world.sign_in("alice@example.test")
    world.sign_in("bob@example.test", profile="b")  # row 1: a sign-in decides what the root holds
    assert identity_key(store.read().held) == ("account", "nas_user:bob")
    world.clock.advance(850)
    assert (await world.refresh()).outcome is Outcome.ROTATED  # row 4: alice's renewal leaves bob held
    shared = store.read().shared
    assert shared is not None
    assert identity_key(store.read().held) == ("account", "nas_user:bob")
    assert shared["renewal"]["nas_user:alice"]["refresh_token"] == pair(world)[1]
    assert (await world.refresh("b")).outcome is Outcome.ROTATED  # row 2: the held one is overwritten
    held = store.read().held
    assert held is not None
    assert held["refresh_token"] == pair(world, "b")[1]
    world.sign_in("alice@example.test", profile="c")  # row 9: a sign-in supersedes the renewal beside it
    shared = store.read().shared
    assert shared is not None
    assert "nas_user:alice" not in shared.get("renewal", {})
    assert "nas_user:bob" in shared["renewal"], "bob's newest pair stays where his siblings look"
    world.clock.advance(850)
    guest = world.guest("gmail", profile="d")
    assert identity_key(store.read().held) == ("guest", guest.token)
    assert (
        await world.refresh("b")
    ).outcome is Outcome.ROTATED  # row 3: a guest is never replaced by a refresh
    assert identity_key(store.read().held) == ("guest", guest.token)
    assert world.records() == world.records("b") == ()
    assert world.portal.store.reuse == 0


async def test_a_dead_chain_gives_way_to_another_login_of_the_same_account(world: World) -> None:
    world.sign_in("alice@example.test")
    world.sign_in("alice@example.test", profile="b")  # the newest, and the one the root holds
    world.portal.store.families[1].revoked = "test"
    world.clock.advance(850)
    assert (await world.refresh()).outcome is Outcome.ROTATED
    assert (await world.refresh("b")).outcome in (Outcome.ADOPTED, Outcome.ROTATED)
    assert world.portal.store.reuse == 0


SENSELESS = ("html", "empty", "text", "array", "deep", "huge", "gzip_bomb")


@pytest.mark.parametrize("body", SENSELESS)
@pytest.mark.parametrize("status", [200, 400, 500])
async def test_senseless_answers_end_nothing_and_send_nothing_twice(
    world: World, body: str, status: int
) -> None:
    before = world.sign_in()
    world.clock.advance(850)
    world.portal.plant(Fault(route="token.refresh", status=status, body=body, text="x"))  # type: ignore[arg-type]
    result = await world.refresh()
    # Only an answer that can have been a success counts as one that spent the token, however large a refusal is.
    assert result.outcome is (Outcome.LOST if status == 200 else Outcome.LATER)
    assert result.usable
    entry = world.store().read().entry
    assert entry is not None
    assert entry["access_token"] == before["access_token"]
    await world.refresh()
    assert world.portal.store.reuse == 0


async def test_secrets_are_in_the_stores_and_nowhere_else(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    world.guest("gmail")
    world.sign_in()
    world.portal.plant(Fault(route="anon.claim", drop=True))
    results = [await world.drain(), await world.refresh(force=True)]
    stores = {"auth.json", "nous_auth.json", "guest_handoff.json"}
    for secret in world.portal.store.mint.issued:
        assert secret not in repr(results)
        assert secret not in caplog.text
        for path in world.root.rglob("*"):
            assert path.is_dir() or path.name in stores or secret not in path.read_text(), path
    for path in world.root.rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path


async def test_restored_older_stores_never_send_a_spent_token(world: World) -> None:
    """threats.md 6: a snapshot holds the token of its day; the family must survive its return (#15099)."""
    world.sign_in()
    old = (world.home() / "auth.json").read_bytes()
    old_shared = world.store().shared_path.read_bytes()
    world.clock.advance(850)
    assert (await world.refresh()).outcome is Outcome.ROTATED
    (world.home() / "auth.json").write_bytes(old)
    assert (await world.refresh()).outcome in (Outcome.ADOPTED, Outcome.FRESH)
    newest = pair(world)
    (world.home() / "auth.json").write_bytes(old)
    world.store().shared_path.write_bytes(old_shared)
    await world.refresh(force=True)
    assert world.portal.store.reuse == 0
    assert not world.portal.store.families[0].revoked
    assert world.portal.store.families[0].current == newest[1]
