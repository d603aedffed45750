"""A small world for sign-ins: a portal in the process, a clock that jumps, a home, and what was called."""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import attrs

from nedura.http import Client, open_client
from nedura.locks import locked
from nedura.signin import AccountStore, Parts, Settled, SignInState, run_sign_in
from nedura.testing.clock import FakeClock
from nedura.testing.http import PortalTransport
from nedura.testing.portal import Knobs, Portal

URL = "https://portal.example"


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


@attrs.define
class World:
    """One home and one portal.

    Attributes:
        home: the profile's home.
        portal: the portal behind `URL`.
        clock: shared by both.
    """

    home: Path
    clock: FakeClock = attrs.field(factory=FakeClock)
    portal: Portal = attrs.field()
    environ: dict[str, str] = attrs.field(
        factory=lambda: {"NEDURA_PORTAL_BASE_URL": URL, "HOME": "/nonexistent"}
    )
    opened: int = 0
    closed: int = 0

    @portal.default
    def _portal(self) -> Portal:
        return Portal(knobs=Knobs(auto_approve="alice@example.test"), clock=self.clock)

    def client(self, trust: Any = None, **given: Any) -> AbstractAsyncContextManager[Client]:
        """The client factory: no socket, counts what is open."""

        @asynccontextmanager
        async def opened() -> AsyncIterator[Client]:
            self.opened += 1
            try:
                async with open_client(trust, transport=PortalTransport(self.portal), **given) as client:
                    yield client
            finally:
                self.closed += 1

        return opened()

    def flow(self, **given: Any) -> Any:
        """A sign-in in this world."""
        arguments: dict[str, Any] = {
            "home": self.home, "environ": self.environ, "clock": self.clock, "client_factory": self.client,
        }  # fmt: skip
        return run_sign_in(**(arguments | given))

    async def states(
        self, on: Callable[[SignInState], None] | None = None, **given: Any
    ) -> list[SignInState]:
        """Run a sign-in to its end."""
        seen: list[SignInState] = []
        async with aclosing(self.flow(**given)) as states:
            async for state in states:
                seen.append(state)
                if on is not None:
                    on(state)
        assert [state.terminal for state in seen] == [False] * (len(seen) - 1) + [True]
        return seen

    async def last(self, **given: Any) -> SignInState:
        """The terminal state of a sign-in."""
        return (await self.states(**given))[-1]

    def store(self) -> AccountStore:
        """The stores of this home."""
        return AccountStore(self.home, environ=self.environ)

    def files(self) -> dict[str, bytes]:
        """Every file of the home but locks."""
        return {
            str(path.relative_to(self.home)): path.read_bytes()
            for path in self.home.rglob("*")
            if path.is_file() and path.suffix != ".lock"
        }

    def routes(self) -> list[str]:
        """What was asked of the portal, in order."""
        return [entry.route for entry in self.portal.log.entries]

    def guest(self, *connectors: str) -> str:
        """Put a free-tier identity with connected apps on disk; returns its credential."""
        guest = self.portal.store.add_guest(*connectors)
        entry = {
            "auth_method": "anonymous", "account_tier": "anonymous", "anon_token": guest.token, "client_id": "nas-anonymous",
            "portal_base_url": URL, "user_id": guest.user_id, "org_id": guest.org_id, "idle_ttl_days": 14,
        }  # fmt: skip
        self.store().save_guest(entry, renewal=False, now=self.clock.time())
        return guest.token


def read(path: Path) -> Any:
    """A JSON file."""
    return json.loads(path.read_text())


@contextmanager
def auth_lock_held(home: Path) -> Iterator[None]:
    """Somebody else holds the lock of a home's accounts for as long as the block runs."""
    ready, done = threading.Event(), threading.Event()

    def hold() -> None:
        with locked(home / "auth.lock"):
            ready.set()
            done.wait(20)

    thread = threading.Thread(target=hold)
    thread.start()
    assert ready.wait(5)
    try:
        yield
    finally:
        done.set()
        thread.join()
