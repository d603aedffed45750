"""The hand-off's runner against the development portal, with real files and locks."""

from __future__ import annotations

import asyncio
import json
import os
import time

import pytest

from nedura.locks import FileLock
from nedura.signin.handoff import handoff_lines, wire_status
from nedura.signin.handoff_record import HandoffStore, note_replacement
from nedura.signin.handoff_rules import State
from nedura.testing.portal import Fault
from tests.integration.handoff.world import URL, World


async def test_a_sign_in_over_a_free_tier_moves_its_apps(world: World) -> None:
    guest = world.guest("gmail", "notion:reconnect")
    world.sign_in()
    assert len(world.records()) == 1, "both write seams saw one replacement"
    results = await world.drain()
    assert [result.state for result in results] == ["claimed"]
    assert handoff_lines(world.home(), results) == (
        "These connected apps came along: Gmail.",
        "Please reconnect: Notion.",
    )
    assert (guest.status, guest.claimed_by) == ("claimed", "nas_user:alice")
    assert await world.drain() == ()
    assert world.claims() == 1
    assert handoff_lines(world.home()) == ()
    status = wire_status(world.home())
    assert status is not None
    assert (status["state"], status["moved"], status["reconnect"]) == ("claimed", ["Gmail"], ["Notion"])


async def test_the_credential_is_forgotten_once_the_record_is_closed(world: World) -> None:
    guest = world.guest("gmail")
    world.sign_in()
    assert guest.token in (world.home() / "guest_handoff.json").read_text()
    await world.drain()
    for path in world.root.rglob("*.json"):
        assert guest.token not in path.read_text(), path
        assert path.stat().st_mode & 0o077 == 0


async def test_nothing_is_sent_without_a_record_or_an_account(world: World) -> None:
    assert await world.drain() == ()
    assert list(world.root.rglob("*.lock")) == []
    guest = world.guest("gmail")
    note_replacement(
        world.home(),
        old={"auth_method": "anonymous", "anon_token": guest.token, "portal_base_url": URL},
        new=world.login(),
        now=world.clock.time(),
    )
    assert await world.drain() == (), "the sign-in has not been saved yet"
    assert [record.attempts for record in world.records()] == [0]
    assert len(world.portal.log) == 0


async def test_two_runs_at_once_send_one_request(world: World) -> None:
    world.guest("gmail")
    world.sign_in()
    world.portal.plant(Fault(route="anon.claim", delay=5, status=0))
    runs = [asyncio.create_task(world.drain()) for _ in range(5)]
    while world.portal.log.count("anon.claim") == 0 and not world.clock.slept:
        await asyncio.sleep(0.01)
    world.clock.advance(5)
    results = await asyncio.gather(*runs)
    assert sorted(len(result) for result in results) == [0, 0, 0, 0, 1]
    assert world.claims() == 1


async def test_the_lease_alone_also_keeps_a_second_run_away(world: World) -> None:
    world.guest("gmail")
    world.sign_in()
    world.portal.plant(Fault(route="anon.claim", drop=True))
    await world.drain()
    (record,) = world.records()
    assert (record.attempts, record.state) == (1, State.PENDING)
    world.clock.advance(59)
    assert await world.drain() == ()
    world.clock.advance(1)
    assert [result.state for result in await world.drain()] == ["claimed"]


async def test_a_lost_success_reads_as_probably_moved(world: World) -> None:
    world.guest("gmail")
    world.sign_in()
    world.portal.plant(Fault(route="anon.claim", commit=True, drop=True))
    (first,) = await world.drain()
    assert (first.state, first.retrying) == ("pending", True)
    world.clock.advance(60)
    (second,) = await world.drain()
    assert second.state == "gone"
    assert "probably moved" in second.lines[0]


async def test_the_ladder_is_climbed_to_its_end(world: World) -> None:
    world.guest("gmail")
    world.sign_in()
    world.portal.plant(Fault(route="anon.claim", times=-1, status=503, body="html"))
    start, sent_at = world.clock.time(), []
    for _ in range(8 * 60):
        if await world.drain():
            sent_at.append(world.clock.time() - start)
        world.clock.advance(60)
    assert sent_at == [0, 60, 660, 4260, 25860]
    (record,) = world.records()
    assert (record.state, record.token) == (State.FAILED, None)
    assert world.claims() == 5


async def test_apps_never_go_to_a_third_account(world: World) -> None:
    guest = world.guest("gmail")
    world.sign_in("alice@example.test")
    world.portal.plant(Fault(route="anon.claim", drop=True))
    await world.drain()
    world.sign_in("bob@example.test")
    world.clock.advance(3600)
    (result,) = await world.drain()
    assert result.state == "failed"
    assert (world.claims(), guest.status) == (1, "live")


async def test_a_guest_of_another_portal_is_not_sent_here(world: World) -> None:
    guest = world.portal.store.add_guest("gmail")
    world.sign_in()
    old = {
        "auth_method": "anonymous",
        "anon_token": guest.token,
        "portal_base_url": "https://portal.nousresearch.com",
    }
    note_replacement(world.home(), old=old, new=world.login(), now=world.clock.time())
    (result,) = await world.drain()
    assert (result.state, world.claims()) == ("failed", 0)


async def test_a_carried_cohort_renews_the_accounts_token(world: World) -> None:
    world.portal.knobs.cohort_carried = True
    world.guest("gmail")
    before = world.sign_in()
    await world.drain()
    after = world.store().read().entry
    assert after is not None
    assert after["access_token"] != before["access_token"]
    assert world.portal.log.count("token.refresh") == 1


async def test_a_failed_renewal_after_a_carried_cohort_changes_nothing(world: World) -> None:
    world.portal.knobs.cohort_carried = True
    world.guest("gmail")
    before = world.sign_in()
    world.portal.plant(Fault(route="token.refresh", status=503, body="html"))
    (result,) = await world.drain()
    after = world.store().read().entry
    assert after is not None
    assert (result.state, after["refresh_token"]) == ("claimed", before["refresh_token"])


async def test_an_expired_token_is_refreshed_before_the_hand_off(world: World) -> None:
    world.guest("gmail")
    world.sign_in()
    world.clock.advance(2000)
    assert [result.state for result in await world.drain()] == ["claimed"]


async def test_without_a_bearer_the_attempt_counts(world: World) -> None:
    world.guest("gmail")
    world.sign_in()
    world.clock.advance(2000)
    world.portal.plant(Fault(route="token.refresh", status=503, body="html"))
    (result,) = await world.drain()
    assert (result.state, world.claims()) == ("pending", 0)
    assert world.records()[0].attempts == 1


async def test_a_budget_ends_a_slow_drain_and_the_attempt_counts(world: World) -> None:
    world.guest("gmail")
    world.sign_in()
    world.portal.plant(Fault(route="anon.claim", delay=60))
    (cut,) = await world.drain(budget_s=0.3)
    assert (cut.state, cut.retrying) == ("pending", True)
    status = wire_status(world.home())
    assert status is not None
    assert (status["retrying"], status["attempts"]) == (True, 1)
    assert "retried on its own" in handoff_lines(world.home())[0]
    world.clock.advance(59)
    assert await world.drain() == ()
    world.clock.advance(1)
    assert len(await world.drain()) == 1


async def test_a_profile_that_adopts_the_account_ends_gone_without_alarm(world: World) -> None:
    guest = world.guest("gmail")
    entry = {
        "auth_method": "anonymous",
        "anon_token": guest.token,
        "portal_base_url": URL,
        "user_id": guest.user_id,
    }
    with world.store("b").transaction() as transaction:
        transaction.adopt(entry, world.clock.time())
    account = world.sign_in()
    await world.drain()
    with world.store("b").transaction() as transaction:
        transaction.adopt(account, world.clock.time())
    (result,) = await world.drain("b")
    assert (result.state, "probably" in result.lines[0]) == ("gone", False)
    assert world.claims() == 2


async def test_many_records_are_sent_in_one_run(world: World) -> None:
    account = world.sign_in()
    for number in range(9):
        guest = world.portal.store.add_guest("gmail")
        old = {"auth_method": "anonymous", "anon_token": guest.token, "portal_base_url": URL}
        note_replacement(world.home(), old=old, new=account, now=world.clock.time() + number)
    world.clock.advance(10)
    assert [result.state for result in await world.drain()] == ["claimed"] * 9
    assert len(world.records()) == 5


def test_noting_never_raises_and_never_breaks_a_sign_in(world: World) -> None:
    guest = {"auth_method": "anonymous", "anon_token": "anon_x", "portal_base_url": URL}
    home = world.home()
    (home / "file").touch()
    assert note_replacement(home / "file" / "x", old=guest, new=world.login(), now=1.0) is False
    home.chmod(0o500)
    try:
        if os.geteuid():
            assert note_replacement(home, old=guest, new=world.login(), now=1.0) is False
    finally:
        home.chmod(0o700)
    assert world.records() == ()


def test_a_record_that_cannot_be_written_now_is_noted_aside_and_taken_in_later(world: World) -> None:
    home, lock = world.home(), FileLock(HandoffStore(world.home()).lock_path)
    guest = world.guest("gmail")
    assert lock.try_acquire()
    start = time.monotonic()
    try:
        world.sign_in()  # waits for the leaf lock as long as it may, then goes on
    finally:
        lock.release()
    assert time.monotonic() - start < 3.5  # not once for each of the two seams
    assert world.store().read().subject == "nas_user:alice"
    (note,) = home.glob(".guest_handoff.note.*.json")
    assert note.stat().st_mode & 0o777 == 0o600
    assert [record.state for record in world.records()] == [State.PENDING]  # who only looks sees it too
    assert [result.state for result in asyncio.run(world.drain())] == ["claimed"]
    assert guest.status != "live"
    assert not list(home.glob(".guest_handoff.note.*"))
    assert asyncio.run(world.drain()) == ()


def test_a_note_is_the_same_record_as_the_one_that_was_written(world: World) -> None:
    guest = {"auth_method": "anonymous", "anon_token": "anon_x", "portal_base_url": URL}
    home, path = world.home(), world.home() / "guest_handoff.json"
    account = world.login()
    path.mkdir()  # something that is no file of ours is in its place
    assert note_replacement(home, old=guest, new=account, now=world.clock.time())
    assert note_replacement(home, old=guest, new=account, now=world.clock.time()) is False
    path.rmdir()
    assert len(list(home.glob(".guest_handoff.note.*"))) == 1
    HandoffStore(home).change(lambda records: records)
    assert not list(home.glob(".guest_handoff.note.*"))
    assert note_replacement(home, old=guest, new=account, now=world.clock.time()) is False
    assert [record.state for record in world.records()] == [State.PENDING]


@pytest.mark.parametrize("damage", [b"", b"[]", b'{"record": 5}', b"\x00"])
def test_a_note_that_cannot_be_read_stays_and_stops_nobody(world: World, damage: bytes) -> None:
    torn = world.home() / ".guest_handoff.note.x.1.y.json"
    torn.write_bytes(damage)
    world.guest("gmail")
    world.sign_in()
    assert [result.state for result in asyncio.run(world.drain())] == ["claimed"]
    assert torn.read_bytes() == damage


@pytest.mark.parametrize("damage", [b"", b"[", b"[]", b'{"records": 5}', b"\x00" * 50])
def test_damaged_records_are_kept_aside_and_the_new_one_is_written(world: World, damage: bytes) -> None:
    path = world.home() / "guest_handoff.json"
    path.write_bytes(damage)
    world.guest("gmail")
    world.sign_in()
    assert [record.state for record in world.records()] == [State.PENDING]
    assert (world.home() / "guest_handoff.json.corrupt.1").read_bytes() == damage
    assert wire_status(world.home()) is not None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (None, "account"), ("account", "account"), ("guest", None), ("guest", "other_guest"), ("guest", "guest"), ("account", "guest"),
        ("empty_guest", "account"),
    ],
)  # fmt: skip
def test_only_an_account_over_a_free_tier_is_noted(world: World, old: str | None, new: str | None) -> None:
    kinds = {
        "account": world.login(),
        "guest": {"auth_method": "anonymous", "anon_token": "anon_1"},
        "other_guest": {"auth_method": "anonymous", "anon_token": "anon_2"},
        "empty_guest": {"auth_method": "anonymous"},
    }
    written = note_replacement(world.home(), old=kinds.get(old or ""), new=kinds.get(new or ""), now=1.0)
    assert written is False
    assert not (world.home() / "guest_handoff.json").exists()


def test_keys_of_another_version_are_kept(world: World) -> None:
    world.guest("gmail")
    world.sign_in()
    path = world.home() / "guest_handoff.json"
    document = json.loads(path.read_text())
    document["records"][0]["newer"] = {"x": 1}
    path.write_text(json.dumps(document))
    store = HandoffStore(world.home())
    store.change(lambda records: (*records, *[]))
    assert store.read()[0].extra == {"newer": {"x": 1}}
    asyncio.run(world.drain())
    assert json.loads(path.read_text())["records"][0]["newer"] == {"x": 1}


async def test_a_refused_bearer_is_renewed_for_the_next_attempt(world: World) -> None:
    world.guest("gmail")
    before = world.sign_in()
    world.portal.plant(Fault(route="anon.claim", status=401, error="invalid_token"))
    assert [result.state for result in await world.drain()] == ["pending"]
    after = world.store().read().entry
    assert after is not None
    assert after["access_token"] != before["access_token"]
    world.clock.advance(60)
    assert [result.state for result in await world.drain()] == ["claimed"]


async def test_no_auth_lock_is_held_while_a_request_is_under_way(world: World) -> None:
    world.guest("gmail")
    world.sign_in()
    world.portal.plant(Fault(route="anon.claim", delay=60))
    run = asyncio.create_task(world.drain())
    while not world.clock.slept:
        await asyncio.sleep(0.005)
    store = world.store()
    for path in (store.home / "auth.lock", store.shared_lock, HandoffStore(store.home).lock_path):
        lock = FileLock(path)
        assert lock.try_acquire(), path.name
        lock.release()
    world.clock.advance(60)
    assert [result.state for result in await run] == ["claimed"]


async def test_it_moves_apps_and_touches_nothing_else(world: World) -> None:
    world.guest("gmail")
    config = world.home() / "config.yaml"
    config.write_text("model:\n  default: nous/welcome  # mine\n")
    world.sign_in()
    before = {
        path: path.read_bytes()
        for path in world.root.rglob("*")
        if path.is_file() and "handoff" not in path.name
    }
    await world.drain()
    assert {path: path.read_bytes() for path in before} == before
    assert [entry.route for entry in world.portal.log] == ["anon.claim"]


@pytest.mark.parametrize("body", ["html", "empty", "text", "array", "deep", "huge", "gzip_bomb"])
@pytest.mark.parametrize("status", [200, 404, 500])
async def test_senseless_answers_are_tried_again(world: World, body: str, status: int) -> None:
    world.guest("gmail")
    world.sign_in()
    world.portal.plant(Fault(route="anon.claim", status=status, body=body, text="claimed"))  # type: ignore[arg-type]
    (first,) = await world.drain()
    assert (first.state, first.retrying) == ("pending", True)
    world.clock.advance(60)
    assert [result.state for result in await world.drain()] == ["claimed"]
