"""The one moment in which a sign-in saves: guards, scope, locks, stores that hang, settle and drain after it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from nedura.errors import StoreError
from nedura.homes import current_home, home_override
from nedura.signin import (
    AccountStore,
    Cancelled,
    Completed,
    Failed,
    Kind,
    LoginOptions,
    Parts,
    Settled,
)
from nedura.signin.handoff_record import HandoffStore
from tests.integration.signin.world import Calls, World, auth_lock_held, read


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


async def test_a_lock_that_never_frees_is_failed_and_names_the_holder(world: World) -> None:
    with auth_lock_held(world.home):
        failed = await world.last(parts=Parts(store=lambda *a, **k: AccountStore(*a, **k, lock_timeout=0.3)))
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
