"""Take over the account that another profile of this root signed in with: offered, never done unasked (facts/signin.md 6)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from nedura.clock import Clock, SystemClock
from nedura.errors import NeduraError
from nedura.http import open_client
from nedura.product import NEDURA, Product
from nedura.signin.accounts import AccountStore
from nedura.signin.authfile import PROVIDER
from nedura.signin.failures import failure_of
from nedura.signin.handoff import drain, handoff_lines, wire_status
from nedura.signin.identity import Entry, Kind, is_guest, kind_of
from nedura.signin.refresh import ClientFactory, Outcome, refresh_account
from nedura.signin.settle import settle_after_upgrade
from nedura.signin.states import Completed, Failed
from nedura.signin.tokens import email_of

__all__ = ["ImportOffer", "import_shared", "offer_shared"]


@attrs.frozen(kw_only=True)
class ImportOffer:
    """An account that can be taken over.

    Attributes:
        path: the shared store.
        email: its address; may be empty.
    """

    path: Path
    email: str = ""


def offer_shared(
    home: Path,
    *,
    product: Product = NEDURA,
    environ: Mapping[str, str] | None = None,
    clock: Clock | None = None,
) -> ImportOffer | None:
    """The root's account, when this profile has none and the root holds one; a free tier is never offered.

    Args:
        home: the profile's home.
        product: names.
        environ: the real environment.
        clock: time.

    Raises:
        RecordUnreadable, UnsafePath: the stores cannot be read.
    """
    now = (clock or SystemClock()).time()
    store = AccountStore(home, environ=environ, product=product)
    state = store.read()
    held = state.held
    if (
        state.kind(now) is Kind.ACCOUNT
        or held is None
        or is_guest(held)
        or kind_of(held, now) is not Kind.ACCOUNT
    ):
        return None
    return ImportOffer(path=store.shared_path, email=email_of(held.get("access_token")))


async def import_shared(
    home: Path,
    *,
    product: Product = NEDURA,
    environ: Mapping[str, str] | None = None,
    clock: Clock | None = None,
    client_factory: ClientFactory = open_client,
) -> Completed | Failed:
    """Take the root's account into this profile and prove it by a refresh; then settle and drain like every sign-in.

    A refresh that fails leaves the profile as it was; one that ends the session clears the shared copy too.

    Args:
        home: the profile's home.
        product: names.
        environ: the real environment.
        clock: time.
        client_factory: opens HTTP clients.
    """
    environ = os.environ if environ is None else environ
    clock = clock or SystemClock()
    common: dict[str, Any] = {
        "product": product, "environ": environ, "clock": clock, "client_factory": client_factory,
    }  # fmt: skip
    store = AccountStore(home, environ=environ, product=product)
    try:
        before = await asyncio.to_thread(_take, store, clock.time())
        result = await refresh_account(store, force=True, **common)
        if result.outcome not in (Outcome.ROTATED, Outcome.ADOPTED) or result.entry is None:
            await asyncio.to_thread(_put_back, store, before, clock.time())
            return Failed(
                reason="not_usable",
                detail=result.detail or "The other profile's session could not be renewed.",
            )
    except NeduraError as error:
        return failure_of(error)
    try:
        settled = await settle_after_upgrade(home, result.entry, **common)
        lines = handoff_lines(home, await drain(home, **common))
    except NeduraError as error:
        return failure_of(error, saved=True)
    return Completed(
        email=email_of(result.entry.get("access_token")),
        model=settled.model,
        model_changed=settled.changed,
        handoff=lines,
        handoff_status=wire_status(home),
    )


def _take(store: AccountStore, now: float) -> Entry | None:
    with store.transaction() as transaction:
        before = transaction.state.document.get("providers", {}).get(PROVIDER)
        held = transaction.state.held
        if held is None or is_guest(held):
            raise NeduraError("The other profile has signed out meanwhile.")
        transaction.adopt(held, now)
        return before if isinstance(before, Mapping) else None


def _put_back(store: AccountStore, before: Entry | None, now: float) -> None:
    def change(document: dict[str, Any]) -> None:
        providers = dict(document["providers"])
        providers.pop(PROVIDER, None)
        if before is not None:
            providers[PROVIDER] = dict(before)
        document["providers"] = providers
        if document.get("active_provider") == PROVIDER and before is None:
            document["active_provider"] = None

    with store.transaction() as transaction:
        transaction.edit(change, now)
