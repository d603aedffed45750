"""A profile, its stores and a portal without a socket, for tests of the hand-off and the refresh."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs

from nedura.http import Client, open_client
from nedura.signin.accounts import AccountStore
from nedura.signin.handoff import DrainResult, drain
from nedura.signin.handoff_record import HandoffStore
from nedura.signin.handoff_rules import Record
from nedura.signin.identity import account_entry
from nedura.signin.refresh import Refresh, refresh_account
from nedura.testing.clock import FakeClock
from nedura.testing.http import PortalTransport
from nedura.testing.portal import Guest, Portal
from nedura.testing.portal.routes_oauth import token_set
from nedura.trust import Trust

URL = "http://127.0.0.1:9"


@attrs.define
class World:
    """One root with profiles, one portal, one clock."""

    root: Path
    clock: FakeClock = attrs.field(factory=lambda: FakeClock(autojump=False))
    portal: Portal = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.portal = Portal(clock=self.clock)
        self.portal.knobs.family_ttl = 10 * 365 * 86400

    @property
    def environ(self) -> dict[str, str]:
        return {"HOME": str(self.root.parent), "NEDURA_PORTAL_BASE_URL": URL}

    @asynccontextmanager
    async def client(self, trust: Trust, **options: Any) -> AsyncIterator[Client]:
        options.pop("environ", None)
        async with open_client(
            trust, transport=PortalTransport(self.portal), environ={}, **options
        ) as client:
            yield client

    def home(self, name: str = "") -> Path:
        home = self.root / "profiles" / name if name else self.root
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        return home

    def store(self, name: str = "") -> AccountStore:
        return AccountStore(self.home(name), environ=self.environ)

    def guest(self, *apps: str, profile: str = "") -> Guest:
        """A free-tier identity, saved in a profile as a mint does."""
        guest = self.portal.store.add_guest(*apps)
        entry = {
            "auth_method": "anonymous",
            "account_tier": "anonymous",
            "anon_token": guest.token,
            "client_id": "nas-anonymous",
            "portal_base_url": URL,
            "user_id": guest.user_id,
            "org_id": guest.org_id,
        }
        self.store(profile).save_guest(entry, renewal=False, now=self.clock.time())
        return guest

    def login(self, email: str = "alice@example.test") -> dict[str, Any]:
        """A fresh account entry, not saved."""
        answer = token_set(self.portal, self.portal.login(email), URL)
        return account_entry(
            answer,
            portal_url=URL,
            inference_url="",
            client_id="hermes-cli",
            scope="inference:invoke",
            tls={},
            now=self.clock.time(),
        )

    def sign_in(self, email: str = "alice@example.test", profile: str = "") -> dict[str, Any]:
        entry = self.login(email)
        self.store(profile).save_account(entry, renewal=False, now=self.clock.time())
        return entry

    async def drain(self, profile: str = "", **options: Any) -> tuple[DrainResult, ...]:
        return await drain(
            self.home(profile), environ=self.environ, clock=self.clock, client_factory=self.client, **options
        )

    async def refresh(self, profile: str = "", **options: Any) -> Refresh:
        parts: dict[str, Any] = {"environ": self.environ, "clock": self.clock, "client_factory": self.client}
        return await refresh_account(self.store(profile), **(parts | options))

    def records(self, profile: str = "") -> tuple[Record, ...]:
        return HandoffStore(self.home(profile)).read()

    def claims(self) -> int:
        return self.portal.log.count("anon.claim")
