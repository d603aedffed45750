"""What the development portal knows: accounts, device grants, refresh families, free-tier identities, connected apps."""

from __future__ import annotations

from typing import Any, Literal

import attrs

from nedura.errors import UsageError
from nedura.testing.portal.tokens import TokenMint, user_code

__all__ = ["Account", "Connection", "DeviceGrant", "Family", "Guest", "Store"]


@attrs.define(kw_only=True)
class Account:
    """A named account. `sub` is its identity everywhere; `tier` free means it pays nothing."""

    email: str
    sub: str
    tier: Literal["paid", "free"] = "paid"
    locked: bool = False
    plan: str = "Dev"


@attrs.define(kw_only=True)
class DeviceGrant:
    """One device login. Times are unix seconds."""

    device_code: str
    user_code: str
    client_id: str
    scope: str
    created: float
    expires: float
    gap: float
    status: Literal["pending", "approved", "declined", "redeemed"] = "pending"
    account: Account | None = None
    last_poll: float | None = None


@attrs.define(kw_only=True)
class Family:
    """One chain of single-use refresh tokens that began with one approval."""

    number: int
    account: Account
    client_id: str
    scope: str
    created: float
    expires: float
    current: str
    spent: set[str] = attrs.field(factory=set)
    redeemed: int = 0
    revoked: str = ""


@attrs.define(kw_only=True)
class Connection:
    """A connected app of one identity. `portable` apps move with a claim, others must be reconnected."""

    connector: str
    connection_id: str
    portable: bool = True
    status: str = "active"


@attrs.define(kw_only=True)
class Guest:
    """A free-tier identity and what became of it."""

    token: str
    user_id: str
    org_id: str
    status: Literal["live", "claimed", "retired", "locked"] = "live"
    claimed_by: str = ""
    challenge_passed: bool = False
    preview: bool | None = None


@attrs.define
class Store:
    """All of it, in memory.

    Attributes:
        reuse: how often a spent refresh token was redeemed, the number every client must keep at 0.
    """

    mint: TokenMint = attrs.field(factory=TokenMint)
    accounts: dict[str, Account] = attrs.field(factory=dict)
    grants: list[DeviceGrant] = attrs.field(factory=list)
    families: list[Family] = attrs.field(factory=list)
    guests: list[Guest] = attrs.field(factory=list)
    connections: dict[str, list[Connection]] = attrs.field(factory=dict)
    reuse: int = 0
    _numbers: int = 0

    def number(self) -> int:
        """The next running number."""
        self._numbers += 1
        return self._numbers

    def account(self, email: str, *, tier: Literal["paid", "free"] = "paid", sub: str = "") -> Account:
        """The account of an e-mail address, made when missing."""
        found = self.accounts.get(email)
        if found is None:
            found = Account(email=email, sub=sub or f"nas_user:{email.partition('@')[0]}", tier=tier)
            self.accounts[email] = found
        return found

    def by_sub(self, sub: str) -> Account | None:
        """The account with this identity."""
        return next((account for account in self.accounts.values() if account.sub == sub), None)

    def add_grant(self, *, client_id: str, scope: str, now: float, life: float, gap: float) -> DeviceGrant:
        """A fresh device code."""
        grant = DeviceGrant(
            device_code=self.mint.opaque("dc_"),
            user_code=user_code(),
            client_id=client_id,
            scope=scope,
            created=now,
            expires=now + life,
            gap=gap,
        )
        self.grants.append(grant)
        return grant

    def grant_for(self, code: str) -> DeviceGrant | None:
        """The grant of a user code, typed in any case and with any punctuation; `latest` is the newest."""
        if code == "latest":
            return self.grants[-1] if self.grants else None
        typed = "".join(filter(str.isalnum, code)).upper()
        return next((g for g in reversed(self.grants) if g.user_code.replace("-", "") == typed), None)

    def add_family(self, account: Account, *, client_id: str, scope: str, now: float, life: float) -> Family:
        """A fresh chain with its first refresh token."""
        family = Family(
            number=self.number(),
            account=account,
            client_id=client_id,
            scope=scope,
            created=now,
            expires=now + life,
            current=self.mint.opaque("nrt_"),
        )
        self.families.append(family)
        return family

    def family_of(self, refresh: str) -> Family | None:
        """The chain a refresh token belongs to, live or spent."""
        return next((f for f in self.families if f.current == refresh or refresh in f.spent), None)

    def add_guest(self, *connectors: str, preview: bool | None = None) -> Guest:
        """A free-tier identity; a connector named `slug:reconnect` does not move with a claim."""
        number = self.number()
        guest = Guest(
            token=self.mint.opaque("anon_"),
            user_id=f"nas_user:g{number}",
            org_id=f"nas_org:g{number}",
            preview=preview,
        )
        self.guests.append(guest)
        for name in connectors:
            self.connect(guest.user_id, name)
        return guest

    def guest_of(self, token: str) -> Guest | None:
        """The identity behind an `anon_` credential."""
        return next((guest for guest in self.guests if guest.token == token), None)

    def connect(self, identity: str, name: str) -> Connection:
        """Connect an app to an identity."""
        slug, _, how = name.partition(":")
        if how not in ("", "reconnect"):
            raise UsageError(f"A connector is `slug` or `slug:reconnect`, not {name!r}.")
        connection = Connection(connector=slug, connection_id=f"conn_{self.number()}", portable=not how)
        self.connections.setdefault(identity, []).append(connection)
        return connection

    def claim(self, guest: Guest, account: Account) -> list[dict[str, str]]:
        """Move a free-tier identity's apps to an account and retire it; the connectors part of the answer."""
        rows = []
        for connection in self.connections.pop(guest.user_id, []):
            if connection.portable:
                self.connections.setdefault(account.sub, []).append(connection)
            rows.append(
                {
                    "connector": connection.connector,
                    "outcome": "moved" if connection.portable else "reconnect",
                }
            )
        guest.status, guest.claimed_by = "claimed", account.sub
        return rows

    def summary(self) -> dict[str, Any]:
        """Everything but the secrets, for tests in other processes."""
        return {
            "accounts": [attrs.asdict(account) for account in self.accounts.values()],
            "grants": [
                {"user_code": g.user_code, "status": g.status, "client_id": g.client_id, "scope": g.scope}
                for g in self.grants
            ],
            "families": [
                {"number": f.number, "sub": f.account.sub, "redeemed": f.redeemed, "revoked": f.revoked}
                for f in self.families
            ],
            "guests": [
                {"user_id": g.user_id, "status": g.status, "claimed_by": g.claimed_by} for g in self.guests
            ],
            "connections": {
                owner: [attrs.asdict(row) for row in rows] for owner, rows in self.connections.items()
            },
            "reuse": self.reuse,
        }
