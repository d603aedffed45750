"""Take over the account that another profile of this root signed in with: offered, never done unasked (facts/signin.md 6)."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from nedura.clock import Clock, SystemClock
from nedura.errors import NeduraError, StoreError
from nedura.http import open_client
from nedura.product import NEDURA, Product
from nedura.signin.accounts import AccountStore
from nedura.signin.authfile import PROVIDER, entry_of
from nedura.signin.background import Gate, until_called_off
from nedura.signin.failures import failure_of
from nedura.signin.handoff import drain, handoff_lines, wire_status
from nedura.signin.handoff_record import HandoffStore
from nedura.signin.handoff_rules import Record
from nedura.signin.identity import Entry, Kind, is_guest, kind_of
from nedura.signin.refresh import ClientFactory, Outcome, refresh_account
from nedura.signin.settle import settle_after_upgrade
from nedura.signin.states import Completed, Failed
from nedura.signin.tokens import email_of

__all__ = ["ImportOffer", "import_shared", "offer_shared"]

log = logging.getLogger("nedura.signin")


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
        taken = await _taken(store, clock)
        proved = False
        try:
            result = await refresh_account(store, force=True, **common)
            proved = result.outcome in (Outcome.ROTATED, Outcome.ADOPTED) and result.entry is not None
        finally:
            if not proved:
                await asyncio.to_thread(_put_back, store, taken, clock.time())
        if not proved or result.entry is None:
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


@attrs.frozen(kw_only=True)
class _Taken:
    """What an import changed, for taking it back.

    Attributes:
        entry: the identity that was taken over.
        before: the profile's auth.json as it was.
        records, noted: hand-off records before and after.
    """

    entry: Entry = attrs.field(repr=False)
    before: Mapping[str, Any] = attrs.field(repr=False)
    records: tuple[Record, ...]
    noted: tuple[Record, ...]


def _records(store: AccountStore) -> tuple[Record, ...]:
    try:
        return HandoffStore(store.home).read()
    except StoreError:
        return ()  # unreadable: nothing of it is taken back


async def _taken(store: AccountStore, clock: Clock) -> _Taken:
    """Adopt, unless the task is cancelled first; what was adopted while it was cancelled is put back."""
    done: list[_Taken] = []

    def take(gate: Gate) -> _Taken:
        done.append(_take(store, gate, clock.time()))
        return done[0]

    try:
        return await until_called_off(take)
    except asyncio.CancelledError:
        if done:
            await asyncio.to_thread(_put_back, store, done[0], clock.time())
        raise


def _take(store: AccountStore, gate: Gate, now: float) -> _Taken:
    with store.transaction() as transaction:
        if not gate.enter():
            raise NeduraError("The import was called off.")
        before, records = transaction.state.document, _records(store)
        held = transaction.state.held
        if held is None or is_guest(held):
            raise NeduraError("The other profile has signed out meanwhile.")
        transaction.adopt(held, now)
        return _Taken(entry=held, before=before, records=records, noted=_records(store))


def _put_back(store: AccountStore, taken: _Taken, now: float) -> None:
    """Undo an import that was not proved, unless another sign-in or rotation has taken its place meanwhile."""
    old = entry_of(taken.before)

    def change(document: dict[str, Any]) -> None:
        for name in ("providers", "credential_pool"):
            part = dict(document.get(name, {}))
            part.pop(PROVIDER, None)
            if PROVIDER in taken.before.get(name, {}):
                part[PROVIDER] = taken.before[name][PROVIDER]
            document[name] = part
        document["active_provider"] = taken.before.get("active_provider")

    with store.transaction() as transaction:
        if not _still(entry_of(transaction.state.document), taken.entry):
            return
        transaction.edit(change, now)
        _withdraw(store, taken, old)


def _still(current: Entry | None, taken: Entry) -> bool:
    """Whether an entry is the taken one, as it was or without the tokens that a refusal took from it."""
    names = ("access_token", "refresh_token")
    return (
        current is not None
        and not is_guest(current)
        and all(current.get(name) in (None, "", taken.get(name)) for name in names)
    )


def _withdraw(store: AccountStore, taken: _Taken, old: Entry | None) -> None:
    """Take the hand-off back that the import noted, when nobody has tried it yet: its free tier is in force again."""
    fresh = [record for record in taken.noted if record not in taken.records]
    if not fresh or old is None or not is_guest(old):
        return
    earlier = {record.id: record for record in taken.records}

    def decide(records: tuple[Record, ...]) -> tuple[Record, ...]:
        kept = [earlier.get(record.id) if record in fresh else record for record in records]
        return tuple(record for record in kept if record is not None)

    try:
        HandoffStore(store.home).change(decide)
    except StoreError as error:
        log.warning("the hand-off of an import could not be withdrawn: %s", error.message)
