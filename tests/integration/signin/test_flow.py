"""The sign-in from its first look to its terminal state."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import aclosing, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import attrs
import pytest

from nedura.config import read_config
from nedura.errors import StoreError
from nedura.homes import current_home, home_override
from nedura.http import open_client
from nedura.records import write_bytes
from nedura.signin import (
    AccountStore,
    AlreadySignedIn,
    Cancelled,
    Code,
    Completed,
    Failed,
    Kind,
    LoginOptions,
    Parts,
    Settled,
    TimedOut,
    Waiting,
    settle_after_upgrade,
    sign_in,
)
from nedura.signin.handoff_record import HandoffStore
from nedura.signin.identity import quarantined
from nedura.testing.http import ScriptedTransport, reply
from nedura.testing.portal import Fault
from tests.integration.signin.world import URL, World, read
from tests.unit.signin.tokens import account


@attrs.define
class Calls:
    """Counts settle and drain, and may let them fail."""

    order: list[str] = attrs.field(factory=list)
    settle_error: Exception | None = None
    drain_error: Exception | None = None

    async def settle(self, home: Path, entry: Any, **given: Any) -> Settled:
        self.order.append("settle")
        if self.settle_error is not None:
            raise self.settle_error
        return Settled(model="mine")

    async def drain(self, home: Path, **given: Any) -> tuple[Any, ...]:
        self.order.append("drain")
        if self.drain_error is not None:
            raise self.drain_error
        return ()

    def parts(self, **more: Any) -> Parts:
        return Parts(settle=self.settle, drain=self.drain, **more)


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


async def test_settle_then_drain_once_each_after_the_locks(world: World) -> None:
    calls = Calls()
    done = await world.last(parts=calls.parts())
    assert calls.order == ["settle", "drain"]
    assert isinstance(done, Completed)
    assert (done.model, done.model_changed) == ("mine", False)


async def test_settle_and_drain_run_without_any_lock(world: World) -> None:
    async def settle(home: Path, entry: Any, **given: Any) -> Settled:
        def probe() -> None:
            with AccountStore(home, environ=world.environ, lock_timeout=1).transaction():
                pass

        await asyncio.to_thread(probe)
        return Settled()

    assert isinstance(await world.last(parts=Parts(settle=settle)), Completed)


async def test_a_config_on_the_welcome_route_moves_once(world: World) -> None:
    config = b"# mine\nmodel:\n  default: nous/welcome # start\n  base_url: https://welcome-api.nousresearch.com/v1\n"
    write_bytes(world.home / "config.yaml", config)
    done = await world.last()
    assert done == Completed(email="alice@example.test", model="nous/hermes-4-405b", model_changed=True)
    after = read_config(world.home)
    assert after.get("model.base_url") == "https://inference-api.nousresearch.com/v1"
    assert b"# mine" in (world.home / "config.yaml").read_bytes()


async def test_a_settle_that_fails_is_failed_after_one_save(world: World) -> None:
    calls = Calls(settle_error=RuntimeError("boom https://x"))
    failed = await world.last(parts=calls.parts())
    assert isinstance(failed, Failed)
    assert failed.saved
    assert calls.order == ["settle", "drain"]
    assert "boom" not in failed.copy
    assert world.store().read().kind(world.clock.time()) is Kind.ACCOUNT


async def test_a_save_that_fails_is_failed_and_never_settles(world: World) -> None:
    class Broken(AccountStore):
        def transaction(self, timeout: float | None = None) -> Any:
            raise StoreError("no space left")

    calls = Calls()
    failed = await world.last(parts=calls.parts(store=lambda *a, **k: Broken(*a, **k)))
    assert isinstance(failed, Failed)
    assert (failed.reason, failed.saved) == ("", False)
    assert "no space left" in failed.copy_terminal
    assert "no space left" not in failed.copy
    assert calls.order == []
    assert world.files() == {}
    assert world.portal.store.families[0].revoked  # the grant that nobody holds is given back


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


# Cancel.


@attrs.define
class Stop:
    """A cancel that can be set, and counts how often it was asked."""

    at: int = 10**9
    now: bool = False
    asked: int = 0

    def __call__(self) -> bool:
        self.asked += 1
        return self.now or self.asked >= self.at


async def test_a_cancel_before_the_first_step_asks_nobody(world: World) -> None:
    assert await world.states(cancelled=lambda: True) == [Cancelled()]
    assert world.routes() == []


async def test_a_cancel_between_code_and_waiting_asks_for_no_token(world: World) -> None:
    stop = Stop()

    def on(state: Any) -> None:
        stop.now = isinstance(state, Code)

    assert (await world.states(on, cancelled=stop))[-1] == Cancelled()
    assert world.routes() == ["device_code"]


@pytest.mark.parametrize("at", range(1, 12))
async def test_a_cancel_at_any_look_saves_nothing(world: World, at: int) -> None:
    """Whatever the moment: the state is Cancelled, nothing is on disk, and a grant that was made is given back."""
    world.portal.knobs.interval = 1
    calls = Calls()
    states = await world.states(cancelled=Stop(at=at), parts=calls.parts())
    assert states[-1] == Cancelled()
    assert world.files() == {}
    assert calls.order == []
    assert all(family.revoked for family in world.portal.store.families)


async def test_a_cancel_after_the_token_and_before_the_save_wins(world: World) -> None:
    stop = Stop()
    world.portal.log.listener = lambda entry: setattr(stop, "now", entry.route == "token.device" or stop.now)
    assert await world.last(cancelled=stop) == Cancelled()
    assert world.files() == {}
    assert world.routes()[-1] == "revoke"


@pytest.mark.parametrize("path", ["/api/oauth/device/code", "/api/oauth/token"])
async def test_a_held_request_is_closed_by_a_cancel_at_once(world: World, path: str) -> None:
    held = asyncio.Event()

    async def hold() -> None:
        held.set()
        await asyncio.Event().wait()

    device = {
        "device_code": "d",
        "user_code": "ABCD-EFGH",
        "verification_uri": f"{URL}/device",
        "expires_in": 60,
        "interval": 1,
    }
    answers = {"/api/oauth/device/code": [reply(device)], "/api/oauth/token": [reply({})]}
    answers[path] = [attrs.evolve(answers[path][0], hold=hold)]
    transport = ScriptedTransport(answers)
    stop = Stop()
    loop = asyncio.get_running_loop()
    started = 0.0

    async def cancel_when_held() -> None:
        nonlocal started
        await held.wait()
        stop.now, started = True, loop.time()

    task = asyncio.create_task(cancel_when_held())
    states = await world.states(
        cancelled=stop, client_factory=lambda trust, **given: open_client(trust, transport=transport, **given)
    )
    assert states[-1] == Cancelled()
    assert loop.time() - started < 0.3
    await task
    assert len(asyncio.all_tasks()) == 1


async def test_a_guard_that_refuses_saves_nothing(world: World) -> None:
    calls = Calls()
    assert await world.last(persist_guard=lambda: nullcontext(False), parts=calls.parts()) == Cancelled()
    assert world.files() == {}
    assert calls.order == []
    assert world.routes()[-1] == "revoke"


async def test_a_guard_is_held_around_the_save_alone(world: World) -> None:
    held: list[tuple[bool, bool]] = []

    @contextmanager
    def guard() -> Iterator[bool]:
        before = world.store().path.exists()
        yield True
        held.append((before, world.store().path.exists()))

    calls = Calls()
    done = await world.last(persist_guard=guard, parts=calls.parts())
    assert isinstance(done, Completed)
    assert held == [(False, True)]


async def test_a_guard_may_be_asynchronous(world: World) -> None:
    lock = asyncio.Lock()
    inside: list[bool] = []

    class Guard:
        async def __aenter__(self) -> bool:
            await lock.acquire()
            return True

        async def __aexit__(self, *problem: Any) -> None:
            inside.append(world.store().path.exists())
            lock.release()

    assert isinstance(await world.last(persist_guard=Guard), Completed)
    assert inside == [True]


@pytest.mark.parametrize("where", ["enter", "exit"])
async def test_a_guard_that_breaks_is_failed(world: World, where: str) -> None:
    @contextmanager
    def guard() -> Iterator[bool]:
        if where == "enter":
            raise RuntimeError("boom")
        yield True
        raise RuntimeError("boom")

    failed = await world.last(persist_guard=guard)
    assert isinstance(failed, Failed)
    assert (world.files() == {}) is (where == "enter")


async def test_a_cancel_while_another_process_holds_the_lock_is_seen_at_once(world: World) -> None:
    import threading

    from nedura.locks import locked

    ready, done = threading.Event(), threading.Event()

    def hold() -> None:
        with locked(world.home / "auth.lock"):
            ready.set()
            done.wait(20)

    thread = threading.Thread(target=hold)
    thread.start()
    ready.wait(5)
    loop = asyncio.get_running_loop()
    stop = Stop()

    def listen(entry: Any) -> None:
        if entry.route == "token.device":
            loop.call_later(0.2, setattr, stop, "now", True)

    world.portal.log.listener = listen
    start = loop.time()
    try:
        assert await world.last(cancelled=stop) == Cancelled()
        assert loop.time() - start < 2
    finally:
        done.set()
        thread.join()
    await asyncio.sleep(0.2)
    assert world.files() == {}


async def test_a_lock_that_never_frees_is_failed_and_names_the_holder(world: World) -> None:
    import threading

    from nedura.locks import locked

    ready, done = threading.Event(), threading.Event()

    def hold() -> None:
        with locked(world.home / "auth.lock"):
            ready.set()
            done.wait(20)

    thread = threading.Thread(target=hold)
    thread.start()
    ready.wait(5)
    try:
        failed = await world.last(parts=Parts(store=lambda *a, **k: AccountStore(*a, **k, lock_timeout=0.3)))
    finally:
        done.set()
        thread.join()
    assert isinstance(failed, Failed)
    assert "process" in failed.detail
    assert world.files() == {}


async def test_a_store_that_hangs_is_failed_in_bounded_time(world: World) -> None:
    import threading

    release = threading.Event()

    class Hanging(AccountStore):
        def transaction(self, timeout: float | None = None) -> Any:
            release.wait(20)
            return super().transaction(timeout)

    failed = await world.last(parts=Parts(store=lambda *a, **k: Hanging(*a, **k), save_seconds=0.3))
    assert isinstance(failed, Failed)
    release.set()
    await asyncio.sleep(0.3)
    assert world.files() == {}  # the late thread finds that it was called off


# Scope.


async def test_scope_is_held_around_the_look_and_the_save_alone(world: World) -> None:
    inside: list[str] = []
    depth = 0

    @contextmanager
    def scope() -> Iterator[None]:
        nonlocal depth
        depth += 1
        inside.append("enter")
        with home_override(world.home):
            yield
        depth -= 1

    def outside(state: Any) -> None:
        assert depth == 0
        assert current_home({"HOME": "/x"}) == Path("/x/.nedura")

    world.portal.log.listener = lambda entry: outside(None)
    states = await world.states(outside, scope=scope, home=None)
    assert isinstance(states[-1], Completed)
    assert inside == ["enter", "enter"]
    assert world.store().path.exists()


# The generator itself.


@pytest.mark.parametrize("way", ["close", "throw", "cancel"])
@pytest.mark.parametrize("stop_at", [0, 1])
async def test_the_generator_can_be_left_at_every_yield(world: World, way: str, stop_at: int) -> None:
    states = world.flow()
    for _ in range(stop_at + 1):
        await anext(states)
    match way:
        case "close":
            await states.aclose()
        case "throw":
            with pytest.raises(ValueError, match="mine"):
                await states.athrow(ValueError("mine"))
        case _:
            with pytest.raises(asyncio.CancelledError):
                await states.athrow(asyncio.CancelledError())
    assert world.files() == {}
    assert world.opened == world.closed
    assert len(asyncio.all_tasks()) == 1


@pytest.mark.parametrize("after", [0.0, 0.01, 0.03, 0.06])
async def test_cancelling_the_task_passes_through(world: World, after: float) -> None:
    async def hold() -> None:
        await asyncio.Event().wait()

    held = attrs.evolve(reply({}), hold=hold)
    transport = ScriptedTransport({"": [held]})

    async def run() -> None:
        await world.states(
            client_factory=lambda trust, **given: open_client(trust, transport=transport, **given)
        )

    task = asyncio.create_task(run())
    await asyncio.sleep(after)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert world.files() == {}
    assert len(asyncio.all_tasks()) == 1


async def test_cancelling_the_task_while_it_waits_for_a_lock_saves_nothing(world: World) -> None:
    import threading

    from nedura.locks import locked

    ready, done = threading.Event(), threading.Event()

    def hold() -> None:
        with locked(world.home / "auth.lock"):
            ready.set()
            done.wait(20)

    thread = threading.Thread(target=hold)
    thread.start()
    ready.wait(5)
    task = asyncio.create_task(world.states())
    while "token.device" not in world.routes():
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    done.set()
    thread.join()
    await asyncio.sleep(0.2)
    assert world.files() == {}


async def test_the_owner_closes_for_the_user(world: World) -> None:
    async with sign_in(
        home=world.home, environ=world.environ, clock=world.clock, client_factory=world.client
    ) as states:
        async for state in states:
            assert isinstance(state, Code)
            break
    with pytest.raises(StopAsyncIteration):
        await anext(states)
    assert world.files() == {}


async def test_a_slow_renderer_makes_no_early_poll(world: World) -> None:
    world.portal.knobs.strict_gap = True
    async with aclosing(world.flow()) as states:
        async for _ in states:
            await world.clock.sleep(3.3)
    assert [e.error for e in world.portal.log.entries if e.route == "token.device"] == [""]


async def test_of_several_at_once_the_first_counts_and_the_others_give_their_grant_back(world: World) -> None:
    world.guest("gmail")
    states = await asyncio.gather(*(world.last() for _ in range(3)))
    assert sorted(state.kind for state in states) == ["already_signed_in", "already_signed_in", "completed"]
    assert all(state.copy.endswith("alice@example.test.") for state in states if state.kind != "completed")
    entry = read(world.store().path)["providers"]["nous"]
    shared = read(world.store().shared_path)
    assert entry["refresh_token"] == shared["refresh_token"]
    kept = [family for family in world.portal.store.families if not family.revoked]
    assert [family.current for family in kept] == [entry["refresh_token"]]
    assert world.routes().count("revoke") == 2
    assert len(HandoffStore(world.home).read()) == 1


async def test_a_login_that_may_replace_replaces_what_came_meanwhile(world: World) -> None:
    states = await asyncio.gather(*(world.last(options=LoginOptions(replace=True)) for _ in range(2)))
    assert all(isinstance(state, Completed) for state in states)
    entry = read(world.store().path)["providers"]["nous"]
    assert entry["refresh_token"] == read(world.store().shared_path)["refresh_token"]


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
