"""One refresh across processes and profiles: redeemed once under both locks, persisted before anything that can fail, adopted by all.

The whole step runs in a worker thread with an event loop of its own: the locks are held through the request, a stalled or closing loop
of the caller cannot lose an answer that is on its way (#81410), and cancelling the caller leaves the rotation to finish.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from enum import Enum
from typing import Final

import attrs

from nedura.clock import Clock, SystemClock
from nedura.errors import LockTimeout, NeduraError, PortalError, StoreError, Unreachable
from nedura.http import Client, open_client, resolve_trust
from nedura.product import NEDURA, Product
from nedura.signin.accounts import AccountStore, Transaction
from nedura.signin.addresses import inference_of, portal_of
from nedura.signin.background import in_thread
from nedura.signin.identity import Entry, token_times
from nedura.signin.renewal import (
    Meaning,
    Need,
    Plan,
    RefreshReply,
    adopted,
    is_closed,
    next_step,
    read_refresh,
    rotated,
    seconds_left,
    stamped,
)
from nedura.signin.shared import after_write
from nedura.signin.spent import SpentTokens
from nedura.signin.tokens import MIN_LIFE, fingerprint, subject_of
from nedura.text import Secret, clean

__all__ = ["ClientFactory", "Outcome", "Refresh", "refresh_account"]

REQUEST_SECONDS: Final = 15.0
LOCK_SECONDS: Final = REQUEST_SECONDS + 5
"""A lock is waited for as long as a sibling's request may take (facts/signin.md 2.5)."""

ClientFactory = Callable[..., AbstractAsyncContextManager[Client]]
"""Opens a client for a trust: `open_client(trust, timeout=..., environ=...)`."""

log = logging.getLogger("nedura.signin")


class Outcome(Enum):
    """What became of a refresh."""

    FRESH = "fresh"  # nothing had to be done
    ADOPTED = "adopted"  # a sibling had done it
    ROTATED = "rotated"  # we did it
    LATER = "later"  # try again: the server or a lock is busy, the network is away
    LOST = "lost"  # the token left and no answer came: it is never sent again
    ENDED = "ended"  # only a new sign-in helps
    NO_ACCOUNT = "no_account"


@attrs.frozen(kw_only=True)
class Refresh:
    """The result of `refresh_account`.

    Attributes:
        outcome: what happened.
        entry: the login in force now; None without an account.
        detail: cause in one line for a log or a terminal; no secret.
        retry_after: seconds the server asked for.
        usable: whether the access token can still be used.
    """

    outcome: Outcome
    entry: Entry | None = attrs.field(default=None, repr=False)
    detail: str = ""
    retry_after: float | None = None
    usable: bool = False

    @property
    def bearer(self) -> Secret | None:
        """The access token, when it can be used."""
        token = (self.entry or {}).get("access_token")
        return Secret(token) if self.usable and isinstance(token, str) and token else None

    @property
    def subject(self) -> str:
        """The account's `sub`."""
        return subject_of((self.entry or {}).get("access_token"))


async def refresh_account(
    store: AccountStore,
    *,
    force: bool = False,
    rejected: Secret | None = None,
    min_life: float = MIN_LIFE,
    lock_seconds: float = LOCK_SECONDS,
    product: Product = NEDURA,
    environ: Mapping[str, str] | None = None,
    clock: Clock | None = None,
    client_factory: ClientFactory = open_client,
    spent: SpentTokens | None = None,
) -> Refresh:
    """Give a profile's account a token that can be used, refreshing at most once in all processes of this root. Never raises on purpose.

    Args:
        store: the profile's stores.
        force: refresh although the token is good (the account changed at the portal).
        rejected: the bearer that a server just refused; a sibling's different one is adopted instead of refreshing.
        min_life: seconds the token must still live.
        lock_seconds: longest wait for a lock; a sibling's whole request by default.
        product: names.
        environ: the real environment.
        clock: time.
        client_factory: opens HTTP clients.
        spent: the list of tokens that were sent.
    """
    job = _Job(
        store=store,
        force=force,
        rejected=rejected.reveal() if rejected else "",
        min_life=min_life,
        lock_seconds=lock_seconds,
        product=product,
        environ=dict(os.environ if environ is None else environ),
        clock=clock or SystemClock(),
        client_factory=client_factory,
        spent=SpentTokens(store.shared_folder) if spent is None else spent,
    )
    return await asyncio.shield(in_thread(job.run))


_AT_THE_LOCKS: Final = threading.BoundedSemaphore(4)
"""Few threads poll for locks at a time, however many callers there are."""


def _to_its_end(work: Callable[[], Refresh]) -> Refresh:
    """Run what must not be cut off in a thread that the end of the process waits for; waiting for a lock holds nobody up.

    Raises:
        NeduraError: the process is ending already; nothing was begun.
    """
    done: Future[Refresh] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:  # the thread's border: it travels to the one that waits
            done.set_exception(error)

    try:
        threading.Thread(target=run, name="nedura-redeem", daemon=False).start()
    except RuntimeError as error:
        raise NeduraError("The process is ending.") from error
    return done.result()


@attrs.frozen(kw_only=True)
class _Job:
    store: AccountStore
    force: bool
    rejected: str = attrs.field(repr=False)
    min_life: float
    lock_seconds: float
    product: Product
    environ: Mapping[str, str] = attrs.field(repr=False)
    clock: Clock
    client_factory: ClientFactory
    spent: SpentTokens

    def run(self) -> Refresh:
        """The whole refresh, blocking."""
        entry: Entry | None = None
        try:
            state = self.store.read()
            entry = state.entry
            plan = self._plan(entry, state.newest, ())
            if plan.need in (Need.NOTHING, Need.NO_ACCOUNT) or (plan.need is Need.ENDED and is_closed(entry)):
                return self._done(plan)
            with _AT_THE_LOCKS, self.store.transaction(self.lock_seconds) as transaction:
                return _to_its_end(lambda: self._under_locks(transaction))
        except LockTimeout as error:  # another process is at it: never a problem of the credential (#124533)
            return self._result(Outcome.LATER, entry, error.message)
        except NeduraError as error:
            log.warning("refresh: %s", error.message)
            return self._result(Outcome.LATER, entry, error.message)

    def _plan(self, entry: Entry | None, newest: Entry | None, spent: tuple[str, ...]) -> Plan:
        return next_step(
            entry,
            newest,
            spent,
            self.clock.time(),
            force=self.force,
            rejected=self.rejected,
            min_life=self.min_life,
        )

    def _result(
        self, outcome: Outcome, entry: Entry | None, detail: str = "", wait: float | None = None
    ) -> Refresh:
        left = seconds_left(entry, self.clock.time())
        good = left > 0 and (entry or {}).get("access_token") != self.rejected
        return Refresh(outcome=outcome, entry=entry, detail=clean(detail), retry_after=wait, usable=good)

    def _done(self, plan: Plan) -> Refresh:
        if plan.need is Need.NO_ACCOUNT:
            return Refresh(outcome=Outcome.NO_ACCOUNT)
        ended = plan.need is Need.ENDED
        return self._result(
            Outcome.ENDED if ended else Outcome.FRESH, plan.entry, "sign in again" if ended else ""
        )

    def _under_locks(self, transaction: Transaction) -> Refresh:
        state, now = transaction.state, self.clock.time()
        plan = self._plan(state.entry, state.newest, self.spent.read())
        match plan.need:
            case Need.NOTHING | Need.NO_ACCOUNT:
                return self._done(plan)
            case Need.ADOPT:
                entry = adopted(state.entry or {}, plan.entry or {})
                transaction.put_entry(entry, now)
                return self._result(Outcome.ADOPTED, entry)
            case Need.LOST:
                return self._lost(
                    transaction,
                    "its refresh token was used before, and what it was renewed to is not known here",
                )
            case Need.ENDED:
                return self._ended(transaction, "nous_auth_missing_refresh_token")
            case Need.REDEEM:
                return self._redeem(transaction, adopted(state.entry or {}, plan.entry or {}))

    def _redeem(self, transaction: Transaction, entry: Entry) -> Refresh:
        token = str(entry["refresh_token"])
        portal = portal_of(entry, self.product, self.environ)
        self.spent.add(token, self.clock.time())  # durable before dangerous: from here on it counts as sent
        try:
            reply = asyncio.run(self._ask(portal, entry, Secret(token)))
        except NeduraError as error:
            if _certainly_unsent(error):
                self.spent.discard(token)
                return self._result(Outcome.LATER, entry, error.message)
            return self._lost(transaction, error.message)
        log.info("refresh: token %s: %s %s", fingerprint(token), reply.meaning.value, reply.code)
        return self._apply(transaction, entry, reply)

    async def _ask(self, portal: str, entry: Entry, token: Secret) -> RefreshReply:
        trust = resolve_trust(stored=entry.get("tls"), environ=self.environ, product=self.product)
        form = {
            "grant_type": "refresh_token",
            "client_id": str(entry.get("client_id") or self.product.client_id),
        }
        async with self.client_factory(trust, timeout=REQUEST_SECONDS, environ=self.environ) as client:
            answer = await client.request(
                "POST", f"{portal}/api/oauth/token", headers={"x-nous-refresh-token": token}, form=form
            )
        return read_refresh(answer.status, answer.body, answer.retry_after)

    def _apply(self, transaction: Transaction, entry: Entry, reply: RefreshReply) -> Refresh:
        token = str(entry["refresh_token"])
        match reply.meaning:
            case Meaning.LATER:
                self.spent.discard(token)
                return self._result(Outcome.LATER, entry, reply.code, reply.retry_after)
            case Meaning.LOST:
                return self._lost(transaction, reply.code)
            case Meaning.ENDED:
                return self._other_or_ended(transaction, reply.code)
            case Meaning.ROTATED:
                return self._save(transaction, entry, reply)

    def _save(self, transaction: Transaction, entry: Entry, reply: RefreshReply) -> Refresh:
        now = self.clock.time()
        times = token_times(str(reply.fields["access_token"]), reply.fields.get("expires_in"), now)
        address = inference_of(reply.fields.get("inference_base_url"), self.product, self.environ)
        fresh = rotated(entry, reply.fields, times, address)
        if fresh is None:
            return self._lost(transaction, "the answer names another account")
        fresh = stamped(fresh, transaction.state.entry, transaction.state.newest)
        problem = _keep(transaction, fresh, now)
        if problem:  # the pair is good but could not be kept: this process can still use it
            return self._result(Outcome.LATER, fresh, problem)
        if fresh["refresh_token"] == entry["refresh_token"]:
            self.spent.discard(str(entry["refresh_token"]))  # a server that does not rotate
        return self._result(Outcome.ROTATED, fresh)

    def _other_or_ended(self, transaction: Transaction, code: str) -> Refresh:
        """A dead token ends the login unless the other store holds another chain of the same account that was never tried."""
        state = transaction.state
        again = self._plan(state.entry, state.newest, self.spent.read())
        if again.need is Need.REDEEM:
            return self._redeem(transaction, adopted(state.entry or {}, again.entry or {}))
        return self._ended(transaction, code)

    def _lost(self, transaction: Transaction, why: str) -> Refresh:
        log.warning("refresh: the answer was lost (%s); the token is not sent again", clean(why))
        transaction.spent(message=why, now=self.clock.time())
        return self._result(Outcome.LOST, transaction.state.entry, why)

    def _ended(self, transaction: Transaction, code: str) -> Refresh:
        transaction.quarantine(
            code=code, message="The sign-in has ended.", reason="refresh", now=self.clock.time()
        )
        return self._result(Outcome.ENDED, transaction.state.entry, code)


def _keep(transaction: Transaction, fresh: Entry, now: float) -> str:
    """Persist a rotated pair: the shared store first, where every sibling looks; returns why neither store took it."""
    problems = []
    state = transaction.state
    write = after_write(state.shared, fresh, renewal=True, now=now)
    shared = write.document is not None and (not state.shared_problem or state.shared_damaged)
    try:
        if shared and write.document is not None:
            transaction.put_shared(write.document, now)
    except StoreError as error:
        problems.append(error.message)
    try:
        transaction.put_entry(fresh, now)
    except StoreError as error:
        problems.append(error.message)
    for problem in problems:
        log.error("refresh: the new login could not be saved: %s", problem)
    return problems[-1] if len(problems) > shared else ""


def _certainly_unsent(error: NeduraError) -> bool:
    """Whether the server cannot have redeemed the token."""
    match error:
        case Unreachable():
            return not error.sent
        case PortalError():
            return error.error == "redirect"  # a whole answer that did something else
        case _:
            return True  # the request could not even be built
