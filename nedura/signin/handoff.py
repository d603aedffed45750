"""The guest hand-off's runner: one attempt for each due record of a profile, outside the auth locks (facts/signin.md 7.4).

It only moves connected apps; the config's own completion stays with the sign-in that saved the account.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from nedura.clock import Clock, SystemClock
from nedura.errors import ConfigError, NeduraError, PortalError, StoreError
from nedura.http import Client, open_client, resolve_trust
from nedura.locks import FileLock
from nedura.product import NEDURA, Product
from nedura.signin.accounts import AccountStore
from nedura.signin.addresses import portal_of, same_portal
from nedura.signin.background import in_thread
from nedura.signin.handoff_copy import public_view, result_lines
from nedura.signin.handoff_record import HandoffStore
from nedura.signin.handoff_rules import Record, Reply, State, abandon, is_due, read_reply, renewed
from nedura.signin.handoff_sending import Sending
from nedura.signin.refresh import ClientFactory, Outcome, Refresh, refresh_account
from nedura.text import Secret, clean

__all__ = ["CLAIM_SECONDS", "DrainResult", "drain", "handoff_lines", "latest_record", "wire_status"]

CLAIM_SECONDS: Final = 20.0
"""Deadline of one request, well inside the lease."""

log = logging.getLogger("nedura.signin.handoff")


@attrs.frozen(kw_only=True)
class DrainResult:
    """What one attempt did.

    Attributes:
        id: the record.
        state: its state afterwards: pending, claimed, gone or failed.
        retrying: whether it is tried again on its own.
        lines: what to tell people.
    """

    id: str
    state: str
    retrying: bool
    lines: tuple[str, ...] = ()


async def drain(
    home: Path,
    *,
    product: Product = NEDURA,
    environ: Mapping[str, str] | None = None,
    clock: Clock | None = None,
    client_factory: ClientFactory = open_client,
    budget_s: float | None = None,
    records: HandoffStore | None = None,
) -> tuple[DrainResult, ...]:
    """Attempt every due record of a profile once. Never raises on purpose, and never changes who is signed in.

    Each attempt is counted and leased on disk before its request leaves. A record whose account is not the profile's is not sent.

    Args:
        home: the profile's home.
        product: names.
        environ: the real environment.
        clock: time.
        client_factory: opens HTTP clients.
        budget_s: seconds for everything; what is unanswered then counts as a lost answer (decision 14).
        records: where the records live; the profile's own file by default.
    """
    environ = os.environ if environ is None else environ
    run = _Drain(
        store=HandoffStore(home) if records is None else records,
        accounts=AccountStore(home, environ=environ, product=product),
        product=product,
        environ=environ,
        clock=clock or SystemClock(),
        client_factory=client_factory,
    )
    try:
        async with asyncio.timeout(budget_s):
            await run.all()
    except TimeoutError:  # what was under way has been settled as unanswered
        log.info("hand-off of %s: out of time", clean(home.name, 80))
    except NeduraError as error:
        log.warning("hand-off of %s: %s", clean(home.name, 80), error.message)
    return tuple(run.results)


def latest_record(home: Path) -> Record | None:
    """The record that changed last, None when there is none or it cannot be told."""
    try:
        records = HandoffStore(home).read()
    except StoreError as error:
        log.warning("hand-off record: %s", error.message)
        return None
    return max(records, key=lambda record: record.updated_at, default=None)


def wire_status(home: Path) -> dict[str, Any] | None:
    """The latest record as fields, for a surface that renders the result itself; None when there is none."""
    record = latest_record(home)
    return None if record is None else public_view(record)


def handoff_lines(home: Path, results: tuple[DrainResult, ...] = ()) -> tuple[str, ...]:
    """What to tell people after a drain: what it did, else how a move that is under way stands; old results are not repeated."""
    if results:
        return tuple(line for result in results for line in result.lines)
    record = latest_record(home)
    return result_lines(record) if record is not None and record.open else ()


@attrs.define(kw_only=True)
class _Drain:
    store: HandoffStore
    accounts: AccountStore
    product: Product
    environ: Mapping[str, str] = attrs.field(repr=False)
    clock: Clock
    client_factory: ClientFactory
    subject: str = ""
    portal: str = ""
    renew: bool = False
    results: list[DrainResult] = attrs.field(factory=list)
    sending: Sending = attrs.field(init=False)
    judged: dict[tuple[str, str], str] = attrs.field(factory=dict)

    def __attrs_post_init__(self) -> None:
        self.sending = Sending(
            store=self.store, clock=self.clock, may_send=lambda record: not self._foreign(record)
        )

    async def all(self) -> None:
        """Send what is due; `results` then holds what is settled on disk, whichever way this ends."""
        records = self.store.read()  # one small file; there is none in nearly every home
        now = self.clock.time()
        if not any(is_due(record, now) or record.renewal_owed for record in records):
            return
        sender = FileLock(self.store.sender_path, "the hand-off")
        if not sender.try_acquire():
            return  # another run is at it
        try:
            try:
                await self._send_due()
            finally:
                await self._close()
        finally:
            sender.release()

    async def _send_due(self) -> None:
        account = await refresh_account(
            self.accounts,
            product=self.product,
            environ=self.environ,
            clock=self.clock,
            client_factory=self.client_factory,
        )
        if not account.subject:
            return  # nobody is signed in: the records wait, uncounted
        self.subject = account.subject
        self.portal = portal_of(account.entry or {}, self.product, self.environ)
        records = self.store.read()
        self.renew = any(record.renewal_owed and record.account_sub == self.subject for record in records)
        if any(record.open and self._foreign(record) for record in records):
            self.results += map(_result, await in_thread(self._abandon_foreign))
        if account.bearer is None:
            await self._unsent()
            return
        try:
            await self._send(account, account.bearer)
        except NeduraError:
            await self._renew(account.bearer)
            raise
        await self._renew(account.bearer)

    async def _send(self, account: Refresh, bearer: Secret) -> None:
        trust = resolve_trust(
            stored=(account.entry or {}).get("tls"), environ=self.environ, product=self.product
        )
        async with self.client_factory(trust, timeout=CLAIM_SECONDS, environ=self.environ) as client:
            await self.sending.run(functools.partial(self._claim, client, bearer))

    async def _close(self) -> None:
        """Settle what left and give back what did not. Its thread finishes even when this is cancelled."""
        try:
            await asyncio.shield(in_thread(self.sending.close))
        except NeduraError as error:  # told here: another way out may be under way already
            log.warning("hand-off of %s: %s", clean(self.store.home.name, 80), error.message)
        finally:
            self.results += map(_result, self.sending.settled)

    def _foreign(self, record: Record) -> str:
        """Why a record may not be sent for this account; empty when it may."""
        key = record.account_sub, record.portal_base_url
        if key not in self.judged:
            self.judged[key] = self._judge(record)
        return self.judged[key]

    def _judge(self, record: Record) -> str:
        if not record.account_sub or record.account_sub != self.subject:
            return "other_account"
        try:
            issuer = portal_of({"portal_base_url": record.portal_base_url}, self.product, self.environ)
        except ConfigError:
            return "other_portal"
        return "" if same_portal(issuer, self.portal) else "other_portal"

    def _abandon_foreign(self) -> tuple[Record, ...]:
        """Close what may never be sent: nobody's apps go to a third account.

        Under the auth locks: a sign-in writes its record a moment before its account, and must not be taken for a foreign one.
        """
        closed: list[Record] = []

        def decide(records: tuple[Record, ...]) -> tuple[Record, ...]:
            closed.clear()
            result = []
            for record in records:
                reason = self._foreign(record) if record.open else ""
                if reason:
                    record = abandon(record, reason, self.clock.time())
                    closed.append(record)
                result.append(record)
            return tuple(result)

        with self.accounts.transaction() as transaction:
            if transaction.state.subject == self.subject:
                self.store.change(decide)
        return tuple(closed)

    async def _unsent(self) -> None:
        """No bearer can be had: the attempts count as transport failures (facts/signin.md 7.4)."""

        async def no_bearer(record: Record) -> Reply:
            return Reply(code="no_bearer")

        await self.sending.run(no_bearer)

    async def _claim(self, client: Client, bearer: Secret, record: Record) -> Reply:
        secret = self.product.setting(self.environ, "ANON_API_SECRET")
        headers = {"x-anonymous-api-secret": Secret(secret)} if secret else {}
        try:
            answer = await client.request(
                "POST",
                f"{self.portal}/api/anonymous/claim",
                headers=headers,
                json={"token": record.token},
                bearer=bearer,
            )
        except PortalError as error:
            return Reply(code=error.error or "portal", retry_after=error.retry_after)
        except NeduraError as error:
            return Reply(code=error.code)
        if answer.status == 401:
            self.renew = True  # our clock may think the token good: the next attempt needs another one
        reply = read_reply(answer.body, answer.retry_after)
        log.info("hand-off %s attempt %d: %d %s", record.id, record.attempts, answer.status, reply.code)
        return reply

    async def _renew(self, bearer: Secret) -> None:
        """The account joined the preview cohort and its token must say so, or its bearer was refused. A failure changes nothing.

        What is owed is on disk until it is done: the end of this run, or a portal that is away, leaves it to the next one.
        """
        if not (self.renew or any(record.renewal_owed for record in self.sending.settled)):
            return
        done = await refresh_account(
            self.accounts,
            force=True,
            rejected=bearer,
            product=self.product,
            environ=self.environ,
            clock=self.clock,
            client_factory=self.client_factory,
        )
        if done.outcome is not Outcome.LATER:
            now = self.clock.time()
            await in_thread(
                lambda: self.store.change(lambda records: tuple(renewed(record, now) for record in records))
            )


def _result(record: Record) -> DrainResult:
    return DrainResult(
        id=record.id,
        state=record.state.value,
        retrying=record.state is State.PENDING,
        lines=result_lines(record),
    )
