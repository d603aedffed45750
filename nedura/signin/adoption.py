"""Bring a profile in line with its root: a free tier gives way to the identity that the root holds (facts/signin.md 2.4).

A profile with an account of its own is never switched, and a free tier is never put over one.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from enum import Enum
from pathlib import Path

from nedura.clock import Clock, SystemClock
from nedura.http import open_client
from nedura.product import NEDURA, Product
from nedura.signin.accounts import AccountStore
from nedura.signin.auth_state import AuthState
from nedura.signin.background import in_thread
from nedura.signin.handoff import drain
from nedura.signin.identity import Entry, Kind, identity_key, is_guest, kind_of
from nedura.signin.refresh import ClientFactory
from nedura.signin.settle import settle_after_upgrade
from nedura.signin.spent import SpentTokens
from nedura.signin.tokens import fingerprint

__all__ = ["Reconciled", "identity_to_adopt", "reconcile"]


class Reconciled(Enum):
    """What a reconcile did."""

    NOTHING = "nothing"
    ACCOUNT = "account"
    FREE_TIER = "free_tier"


def identity_to_adopt(state: AuthState, now: float, spent: Iterable[str] = ()) -> Entry | None:
    """The root's identity when this profile should take it over; None when it keeps its own.

    Args:
        state: the stores.
        now: unix seconds.
        spent: fingerprints of refresh tokens that were sent: a login that ends with its access token is worth less than a free tier.
    """
    held = state.held
    if held is not None and fingerprint(str(held.get("refresh_token") or "")) in set(spent):
        return None
    if (
        held is None
        or state.kind(now) is not Kind.GUEST
        or kind_of(held, now) not in (Kind.ACCOUNT, Kind.GUEST)
    ):
        return None  # an account keeps its own, and a profile that nobody signed in is never seeded (#60035)
    key = identity_key(held)
    return held if key is not None and key != identity_key(state.entry) else None


async def reconcile(
    home: Path,
    *,
    product: Product = NEDURA,
    environ: Mapping[str, str] | None = None,
    clock: Clock | None = None,
    client_factory: ClientFactory = open_client,
) -> Reconciled:
    """Adopt, then settle the config (decision 13) and move connected apps, all after the locks are released.

    Args:
        home: the profile's home.
        product: names.
        environ: the real environment.
        clock: time.
        client_factory: opens HTTP clients.

    Raises:
        StoreError: the stores cannot be read or written.
    """
    environ = os.environ if environ is None else environ
    clock = clock or SystemClock()
    store = AccountStore(home, environ=environ, product=product)
    if identity_to_adopt(store.read(), clock.time()) is None:
        return Reconciled.NOTHING  # nearly always: no lock, no write

    def adopt() -> Entry | None:
        with store.transaction() as transaction:
            spent = SpentTokens(store.shared_folder).read()
            found = identity_to_adopt(transaction.state, clock.time(), spent)
            if found is not None:
                transaction.adopt(found, clock.time())
            return found

    adopted = await in_thread(adopt)
    if adopted is None:
        return Reconciled.NOTHING
    if is_guest(adopted):
        return Reconciled.FREE_TIER
    await settle_after_upgrade(
        home, adopted, product=product, environ=environ, clock=clock, client_factory=client_factory
    )
    await drain(home, product=product, environ=environ, clock=clock, client_factory=client_factory)
    return Reconciled.ACCOUNT
