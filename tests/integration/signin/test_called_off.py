"""A sign-out and an import that are called off, and what a status says ahead: certificates that hold nothing, a sign-in that ends."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from nedura.locks import FileLock
from nedura.signin import LoginOptions, auth_status, import_shared, log_out
from tests.integration.signin.world import World


async def test_a_cancelled_sign_out_that_waits_for_a_lock_never_happens(world: World) -> None:
    await world.last()
    before = world.files()
    lock = FileLock(world.home / "auth.lock")
    assert lock.try_acquire()
    try:
        run = asyncio.create_task(log_out(world.home, environ=world.environ, clock=world.clock))
        await asyncio.sleep(0.2)
        start = time.monotonic()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        assert time.monotonic() - start < 0.5
    finally:
        lock.release()
    await asyncio.sleep(0.3)
    assert world.files() == before


async def test_a_cancelled_import_that_waits_for_a_lock_never_happens(world: World, tmp_path: Path) -> None:
    await world.last()
    home = world.home / "profiles" / "b"
    home.mkdir(parents=True, mode=0o700)
    lock = FileLock(home / "auth.lock")
    assert lock.try_acquire()
    common: dict[str, Any] = {
        "environ": world.environ, "clock": world.clock, "client_factory": world.client,
    }  # fmt: skip
    try:
        run = asyncio.create_task(import_shared(home, **common))
        await asyncio.sleep(0.2)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
    finally:
        lock.release()
    await asyncio.sleep(0.3)
    assert not (home / "auth.json").exists()


async def test_a_stored_certificate_file_that_holds_none_is_said_and_proves_nothing(
    world: World, tmp_path: Path
) -> None:
    await world.last()
    bundle = tmp_path / "ca.pem"
    bundle.write_text("no certificate\n")
    with world.store().transaction() as transaction:
        entry = {**(transaction.state.entry or {}), "tls": {"insecure": False, "ca_bundle": str(bundle)}}
        transaction.put_entry(entry, world.clock.time())
    found = await auth_status(
        world.home, environ=world.environ, clock=world.clock, client_factory=world.client
    )
    assert (found.state, found.checked) == ("signed_in", False)
    assert any("holds no certificate" in note for note in found.notes)
    assert "not checked just now" in found.copy_terminal


@pytest.mark.parametrize(("days", "told"), [(0, False), (24.9, False), (25.1, True), (29.9, True)])
async def test_the_end_of_a_sign_in_is_said_days_ahead(world: World, days: float, told: bool) -> None:
    """A login dies 30 days after its approval, whatever was renewed meanwhile."""
    await world.last()
    began = world.clock.time()
    common: dict[str, Any] = {
        "environ": world.environ, "clock": world.clock, "client_factory": world.client,
    }  # fmt: skip
    world.clock.advance(days * 86400)
    found = await auth_status(world.home, **common)
    assert (found.state, found.login_ends_at) == ("signed_in", began + 30 * 86400)
    assert any("ends by itself" in note for note in found.notes) == told
    if told:
        await world.last(options=LoginOptions(replace=True))
        again = await auth_status(world.home, **common)
        assert not any("ends by itself" in note for note in again.notes)
        assert again.login_ends_at == world.clock.time() + 30 * 86400
