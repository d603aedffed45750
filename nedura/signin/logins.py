"""What `nedura auth list` and `nedura auth logout` do: the stored logins by name, and their end."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar, final

import attrs

from nedura.clock import Clock, SystemClock
from nedura.errors import NeduraError, RecordCorrupt
from nedura.http import open_client
from nedura.product import NEDURA, Product
from nedura.signin.accounts import AccountStore
from nedura.signin.addresses import portal_of
from nedura.signin.auth_state import AuthState, Saved
from nedura.signin.authfile import POOL_SOURCE, PROVIDER
from nedura.signin.background import Gate, until_called_off
from nedura.signin.identity import Kind
from nedura.signin.portal import PortalClient
from nedura.signin.refresh import ClientFactory
from nedura.signin.tokens import is_usable
from nedura.text import Secret, clean
from nedura.trust import resolve_trust

__all__ = ["Login", "SignedOut", "list_logins", "log_out"]

log = logging.getLogger("nedura.signin")


@attrs.frozen(kw_only=True)
class Login:
    """One stored login, without its secrets.

    Attributes:
        provider: provider id.
        source: where it came from.
        label: its name; may be empty.
        email: as its token says.
        priority: order among several; None when it has none.
        active: whether it is the provider in use.
        usable: whether its token can be used now; a login with a refresh token renews itself.
    """

    provider: str = attrs.field(converter=clean)
    source: str = attrs.field(default="", converter=clean)
    label: str = attrs.field(default="", converter=clean)
    email: str = attrs.field(default="", converter=clean)
    priority: int | None = None
    active: bool = False
    usable: bool = False


def list_logins(
    home: Path, *, product: Product = NEDURA, environ: Mapping[str, str] | None = None, now: float
) -> tuple[Login, ...]:
    """Every login of a profile, by provider and priority. Reads only, and asks nobody.

    Args:
        home: the profile's home.
        product: names.
        environ: the real environment.
        now: unix seconds.

    Raises:
        RecordUnreadable, RecordCorrupt, UnsafePath: the store cannot be read.
    """
    state = AccountStore(home, environ=environ, product=product).read()
    if state.damaged:
        raise RecordCorrupt(
            "auth.json is damaged.",
            advice=f"Sign in again; the damaged file is kept: {product.command} auth upgrade",
        )
    rows = [*_own(state, now), *_pooled(state, now), *_others(state)]
    return tuple(sorted(rows, key=lambda row: (row.provider, row.priority is None, row.priority or 0)))


def _own(state: AuthState, now: float) -> Iterator[Login]:
    kind, entry = state.kind(now), state.entry
    if entry is None or kind is Kind.NONE:
        return
    device = "default profile" if state.inherited else "device login"
    yield Login(
        provider=PROVIDER,
        source="free tier" if kind is Kind.GUEST else device,
        label=str(entry.get("label") or ""),
        email=state.email,
        active=state.document.get("active_provider") == PROVIDER or state.inherited,
        usable=kind is not Kind.DEAD,
    )


def _pooled(state: AuthState, now: float) -> Iterator[Login]:
    for provider, pool in state.document.get("credential_pool", {}).items():
        for row in pool if isinstance(pool, list) else ():
            if not isinstance(row, Mapping) or (provider == PROVIDER and row.get("source") == POOL_SOURCE):
                continue  # ours is shown by the entry that it is derived from
            priority = row.get("priority")
            yield Login(
                provider=provider,
                source=str(row.get("source") or "unknown"),
                label=str(row.get("label") or ""),
                priority=priority if isinstance(priority, int) else None,
                active=state.document.get("active_provider") == provider,
                usable=is_usable(row.get("access_token"), now),
            )


def _others(state: AuthState) -> Iterator[Login]:
    active = state.document.get("active_provider")
    for provider in state.document.get("providers", {}):
        if provider != PROVIDER:
            yield Login(provider=provider, source="provider", active=active == provider)


@final
@attrs.frozen(kw_only=True)
class SignedOut:
    """The result of a sign-out.

    Attributes:
        changed: whether there was anything to remove.
        inherited: the profile goes on with the default profile's login.
        set_aside: name of the copy of a damaged store; empty when it was sound.
        revoked: whether the portal ended the session too; None when that was not asked, or when there was none.
    """

    kind: ClassVar[str] = "signed_out"

    changed: bool = False
    inherited: bool = False
    set_aside: str = attrs.field(default="", converter=clean)
    revoked: bool | None = None

    @property
    def copy(self) -> str:
        """Chat form."""
        if self.inherited:
            return "This profile goes on with the sign-in of the default profile."
        lines = ["Signed out." if self.changed else "Nobody was signed in."]
        if self.revoked is False:
            lines.append("The service could not be told; the session there ends by itself.")
        return " ".join(lines)

    @property
    def copy_terminal(self) -> str:
        """Terminal form."""
        lines = [self.copy]
        if self.inherited:
            lines.append("Sign out there with: nedura -p default auth logout nous")
        if self.set_aside:
            lines.append(f"The damaged auth.json is kept as {self.set_aside}.")
        return "\n".join(lines)


async def log_out(
    home: Path,
    *,
    revoke: bool = False,
    product: Product = NEDURA,
    environ: Mapping[str, str] | None = None,
    clock: Clock | None = None,
    client_factory: ClientFactory = open_client,
) -> SignedOut:
    """Sign a profile out. Works on a damaged store too.

    Args:
        home: the profile's home.
        revoke: also end the session at the portal, for every profile that lives on it.
        product: names.
        environ: the real environment.
        clock: time.
        client_factory: opens HTTP clients.

    Raises:
        StoreError: the store cannot be read or written.
    """
    environ = os.environ if environ is None else environ
    clock = clock or SystemClock()
    store = AccountStore(home, environ=environ, product=product)
    before = store.read()

    def forget(gate: Gate) -> Saved:
        with store.transaction() as transaction:
            return transaction.forget(clock.time()) if gate.enter() else Saved()

    saved = await until_called_off(forget)
    inherited = store.read().inherited
    revoked: bool | None = None
    if revoke and not before.inherited:
        revoked = await _revoke(before, product, environ, client_factory)
    return SignedOut(
        changed=saved.changed,
        inherited=inherited,
        set_aside=saved.set_aside.name if saved.set_aside else "",
        revoked=revoked,
    )


async def _revoke(
    state: AuthState, product: Product, environ: Mapping[str, str], client_factory: ClientFactory
) -> bool | None:
    entry = state.newest or state.entry or {}
    token = entry.get("refresh_token") or entry.get("access_token")
    if not isinstance(token, str) or not token:
        return None
    try:
        base = portal_of(state.entry or {}, product, environ)
        trust = resolve_trust(stored=(state.entry or {}).get("tls"), environ=environ, product=product)
        async with client_factory(trust, timeout=5.0, environ=environ) as client:
            client_id = str((state.entry or {}).get("client_id") or product.client_id)
            await PortalClient(client=client, base=base, client_id=client_id).revoke(Secret(token))
    except NeduraError as error:
        log.warning("sign-out at the portal: %s", error.message)
        return False
    return True
