"""One attempt to sign in, step by step. `Attempt.advance` does all work between two states; the generator in `flow` only yields."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import attrs

from nedura.clock import Clock, iso
from nedura.errors import ConfigError, PortalError
from nedura.homes import current_home
from nedura.product import Product
from nedura.signin.accounts import AccountStore
from nedura.signin.addresses import inference_of, same_portal
from nedura.signin.auth_state import AuthState, Saved
from nedura.signin.device import Ask, DeviceCode, Ended, Granted, Lost, Outcome, Reply, Wait, Woke, poll
from nedura.signin.failures import failure_of, state_of_end
from nedura.signin.handoff import drain, handoff_lines, wire_status
from nedura.signin.identity import Kind, account_entry
from nedura.signin.portal import PortalClient, as_reply, choose_inference, choose_portal
from nedura.signin.refresh import ClientFactory
from nedura.signin.saving import SAVE_SECONDS, SLICE, Saving
from nedura.signin.settle import Settled, needs_settling, settle_after_upgrade
from nedura.signin.states import (
    AlreadySignedIn,
    Cancelled,
    Code,
    Completed,
    SignInState,
    Waiting,
)
from nedura.signin.store_files import check_owner
from nedura.signin.tokens import INVOKE_SCOPE, email_of, is_plain, is_usable, scopes_of, subject_of
from nedura.text import Secret, clean
from nedura.trust import Trust, resolve_trust

__all__ = ["Attempt", "LoginOptions", "Parts"]

LAZY_SLICE: Final = 1.0
SUSPENDED_BY: Final = 5.0
"""How far the wall clock must run ahead of the monotonic one to mean that the machine slept."""

ANSWER_GRACE: Final = 2.0
"""Seconds past the end of a code for which an answer to its last poll is still waited."""

DRAIN_SECONDS: Final = 20.0
SETTLE_SECONDS: Final = 30.0
LATE_SECONDS: Final = 10.0

log = logging.getLogger("nedura.signin")

_T = TypeVar("_T")


@attrs.frozen(kw_only=True)
class LoginOptions:
    """What the longer login adds to the plain one.

    Attributes:
        portal_url, inference_url, client_id, oauth_scope: explicit values; empty means the usual ones (#5745).
        insecure: certificates are not checked; None asks what is stored.
        ca_bundle: explicit CA file.
        label: name of the login in lists.
        priority: its order among several.
        replace: sign in although there is an account.
        expect_subject: the account that must sign in; empty takes any.
        command: what a person runs to start again.
    """

    portal_url: str = ""
    inference_url: str = ""
    client_id: str = ""
    oauth_scope: str = ""
    insecure: bool | None = None
    ca_bundle: str = ""
    label: str = ""
    priority: int | None = None
    replace: bool = False
    expect_subject: str = ""
    command: str = "nedura auth upgrade"


class Settle(Protocol):
    """Completes the config after a save."""

    def __call__(
        self,
        home: Path,
        entry: Mapping[str, Any],
        *,
        product: Product,
        environ: Mapping[str, str],
        clock: Clock,
        client_factory: ClientFactory,
    ) -> Awaitable[Settled]:
        """Called once per completion, with no lock held."""
        ...


class Drain(Protocol):
    """Moves connected apps after a save."""

    def __call__(
        self,
        home: Path,
        *,
        product: Product,
        environ: Mapping[str, str],
        clock: Clock,
        client_factory: ClientFactory,
        budget_s: float,
    ) -> Awaitable[Any]:
        """Called once per completion, with no lock held."""
        ...


@attrs.frozen(kw_only=True)
class Parts:
    """Collaborators, looked up when an attempt starts.

    Attributes:
        store: makes the account store of a home.
        settle: completes the config.
        drain: moves connected apps.
        save_seconds: longest save, locks included.
    """

    store: Callable[..., AccountStore] = AccountStore
    settle: Settle = settle_after_upgrade
    drain: Drain = drain
    save_seconds: float = SAVE_SECONDS


class _Stopped(Exception):
    """The user cancelled. Never leaves this module."""


class _Overtaken(Exception):
    """Another sign-in of this home was saved first; its e-mail address is the argument. Never leaves this module."""


@attrs.define(kw_only=True, eq=False)
class Attempt:
    """State of one sign-in between two yields. Arguments as `run_sign_in`."""

    home: Path | None
    product: Product
    timeout: float
    cancelled: Callable[[], bool] | None
    persist_guard: Callable[[], Any] | None
    scope: Callable[[], Any] | None
    client_factory: ClientFactory
    clock: Clock
    environ: Mapping[str, str] = attrs.field(repr=False)
    options: LoginOptions
    parts: Parts

    _next: Callable[[], Coroutine[Any, Any, SignInState]] | None = None
    _place: Path = Path()
    _portal: str = ""
    _trust: Trust = attrs.field(factory=Trust)
    _stored: Mapping[str, Any] | None = attrs.field(default=None, repr=False)
    _code: DeviceCode | None = None
    _steps: Generator[Wait | Ask, Woke | Reply | Lost, Outcome] | None = None
    _step: Wait | Ask | None = None
    _end: float = 0.0
    _wall_end: float = 0.0
    _wall_lead: float = 0.0
    _overslept: bool = False
    _trouble: bool = False
    _granted: Mapping[str, Any] | None = attrs.field(default=None, repr=False)
    _saved: Saved | None = None
    _unsure: bool = False

    async def advance(self) -> SignInState:
        """Work until the next state. Never raises but for the end of the task; a cancel always wins."""
        try:
            if self._next is None:
                return await self._begin()
            return await self._next()
        except _Stopped:
            return Cancelled(replaced=bool(getattr(self.cancelled, "replaced", False)))
        except _Overtaken as first:
            return AlreadySignedIn(email=str(first))
        except Exception as error:  # the generator's border: everything that goes wrong is a state
            return failure_of(error, saved=self._saved is not None)

    async def give_back(self) -> None:
        """Return a grant that nobody will use, best effort (decision 8). Runs after the terminal state was seen."""
        if self._granted is None or self._saved is not None or self._unsure:
            return
        try:
            async with asyncio.timeout(5), self._client() as portal:
                for name in ("refresh_token", "access_token"):
                    token = self._granted.get(name)
                    if isinstance(token, str) and token:
                        await portal.revoke(Secret(token))
                        break
        except Exception as error:  # the border behind the terminal state: nothing may follow that one
            log.info("an unused grant could not be given back: %s", type(error).__name__)

    # Steps, each ending in one state.

    async def _begin(self) -> SignInState:
        self._check()
        state = self._look()
        now = self.clock.time()
        if state.kind(now) is Kind.ACCOUNT and not self.options.replace:
            await self._settle_late(state.entry or {})
            return AlreadySignedIn(email=state.email)
        check_owner(self._place)
        options = self.options
        self._stored = state.entry
        if options.inference_url and not inference_of(options.inference_url, self.product, self.environ):
            raise ConfigError(f"{clean(options.inference_url, 100)} may not be used as the model address.")
        self._portal, warning = choose_portal(options.portal_url, state.entry, self.product, self.environ)
        if warning:
            log.warning("%s", warning)
        self._trust = resolve_trust(
            insecure=options.insecure,
            ca_bundle=options.ca_bundle or None,
            stored=self._stored_bundle(),
            environ=self.environ,
            product=self.product,
        )
        if self._trust.warning:
            log.warning("%s", self._trust.warning)
        self._code = code = await self._watched(self._ask_for_code())
        started = self.clock.monotonic()
        self._steps = poll(code, started)
        self._step = next(self._steps)
        self._end = started + code.expires_in
        self._wall_end = self.clock.time() + code.expires_in
        self._wall_lead = self.clock.time() - started
        self._next = self._wait_begins
        return Code(
            link=code.link_complete or code.link,
            page=code.link,
            code=code.user_code,
            expires_in=code.expires_in,
            interval=code.interval,
            expires_at=iso(self._wall_end),
        )

    async def _wait_begins(self) -> SignInState:
        self._check()
        self._next = self._poll
        return Waiting()

    async def _poll(self) -> SignInState:
        outcome = await self._until_outcome()
        if outcome is None:
            return Waiting(trouble=self._trouble)
        if isinstance(outcome, Ended):
            assert self._code is not None
            return state_of_end(outcome, lifetime=self._code.expires_in, command=self.options.command)
        return await self._finish(outcome)

    async def _finish(self, granted: Granted) -> SignInState:
        self._granted = granted.fields
        self._check()
        entry = await self._account(granted.fields)
        self._saved = await self._save(entry)
        return await self._complete(entry, self._saved)

    async def _complete(self, entry: Mapping[str, Any], saved: Saved) -> SignInState:
        """After the save: settle, then drain, both without any lock (decision 13)."""
        common: dict[str, Any] = {
            "product": self.product,
            "environ": self.environ,
            "clock": self.clock,
            "client_factory": self.client_factory,
        }
        try:
            async with asyncio.timeout(SETTLE_SECONDS):
                settled = await self.parts.settle(self._place, entry, **common)
        except Exception:
            await self._drained(common)  # connected apps move whatever the config says
            raise
        lines, status = await self._drained(common)
        return Completed(
            email=email_of(entry.get("access_token")),
            model=settled.model,
            model_changed=settled.changed,
            handoff=lines,
            handoff_status=status,
            shared=not saved.shared_problem,
        )

    async def _settle_late(self, entry: Mapping[str, Any]) -> None:
        """Finish an earlier sign-in that was killed between its save and its settle."""
        if not needs_settling(self._place, self.product, self.environ):
            return
        try:
            async with asyncio.timeout(LATE_SECONDS):
                await self.parts.settle(
                    self._place,
                    entry,
                    product=self.product,
                    environ=self.environ,
                    clock=self.clock,
                    client_factory=self.client_factory,
                )
        except Exception as error:  # the account is there: this never changes the answer
            log.warning("config not settled: %s", type(error).__name__)

    async def _drained(self, common: Mapping[str, Any]) -> tuple[tuple[str, ...], Mapping[str, Any] | None]:
        """Move connected apps; lines and fields of what became of them."""
        try:
            results = await self.parts.drain(self._place, budget_s=DRAIN_SECONDS, **common)
            return handoff_lines(self._place, results), wire_status(self._place)
        except Exception as error:  # a hand-off never changes a sign-in's outcome (decision 13)
            log.warning("hand-off after the sign-in: %s", type(error).__name__)
            return (), None

    # Work inside the steps.

    def _look(self) -> AuthState:
        """The first look at the stores, inside the caller's scope: no lock, no network."""
        with self.scope() if self.scope is not None else nullcontext():
            self._place = self.home if self.home is not None else current_home(self.environ)
            return self._store().read()

    def _store(self) -> AccountStore:
        return self.parts.store(self._place, environ=self.environ, product=self.product)

    def _stored_bundle(self) -> Mapping[str, Any]:
        """A saved CA file counts again for the portal that it was named for; saved insecurity never does."""
        entry = self._stored or {}
        tls = entry.get("tls")
        same = same_portal(str(entry.get("portal_base_url") or ""), self._portal)
        return {"ca_bundle": tls.get("ca_bundle")} if same and isinstance(tls, Mapping) else {}

    def _client(self) -> AbstractAsyncContextManager[PortalClient]:
        return _Opened(
            self.client_factory(self._trust, timeout=self.timeout, environ=self.environ),
            self._portal,
            self._client_id,
        )

    @property
    def _client_id(self) -> str:
        return self.options.client_id or self.product.client_id

    @property
    def _scope(self) -> str:
        return self.options.oauth_scope or self.product.scope

    async def _ask_for_code(self) -> DeviceCode:
        async with self._client() as portal:
            return await portal.device_code(self._scope)

    async def _until_outcome(self) -> Outcome | None:
        """Drive the poller over one client until it ends, or until there is news about trouble (None)."""
        assert self._steps is not None
        async with self._client() as portal:
            while True:
                step = self._step
                if isinstance(step, Wait):
                    if step.trouble != self._trouble:
                        self._trouble = step.trouble
                        return None
                    sent: Woke | Reply | Lost = await self._sleep(step.until)
                else:
                    sent = await self._watched(self._ask(portal))
                try:
                    self._step = self._steps.send(sent)
                except StopIteration as stop:
                    outcome: Outcome = stop.value
                    return outcome

    async def _ask(self, portal: PortalClient) -> Reply | Lost:
        assert self._code is not None
        left = self._end - self.clock.monotonic()
        answer = await portal.poll(self._code.device_code, min(self.timeout, max(2.0, left + ANSWER_GRACE)))
        if answer is not None and answer.ok and answer.fields.get("access_token"):
            self._granted = answer.fields  # from here on it is ours to keep or to give back
        return as_reply(answer, self.clock.monotonic())

    async def _sleep(self, until: float) -> Woke:
        """Wait in slices: a cancel is seen within one, and so is a wall clock that ran past the deadline (a suspend)."""
        while (now := self.clock.monotonic()) < until:
            self._check()
            if not self._overslept and self._past_wall_end(now):
                self._overslept = True
                return Woke(now=now, suspended=True)
            await self.clock.sleep(min(SLICE if self.cancelled is not None else LAZY_SLICE, until - now))
        self._check()
        return Woke(now=now)

    def _past_wall_end(self, now: float) -> bool:
        wall = self.clock.time()
        return wall >= self._wall_end and wall - now - self._wall_lead > SUSPENDED_BY

    async def _account(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """The account of a token answer; its token must be one that the model route takes (facts/signin.md 3.2 step 7)."""
        if not is_usable(fields["access_token"], self.clock.time()):
            fields = await self._refreshed(fields)
            self._granted = fields
        if INVOKE_SCOPE not in scopes_of(fields["access_token"]):
            raise PortalError("The account has no access to models yet.", error="not_usable")
        expected = self.options.expect_subject
        if expected and subject_of(fields["access_token"]) != expected:
            raise PortalError("Another account was used in the browser.", error="other_account")
        named = self.options.inference_url or fields.get("inference_base_url")
        inference, warning = choose_inference(named, self.product.inference_url, self.product, self.environ)
        if warning:
            log.warning("%s", warning)
        return account_entry(
            fields,
            portal_url=self._portal,
            inference_url=inference,
            client_id=self._client_id,
            scope=self._scope,
            tls=self._trust.remember,
            now=self.clock.time(),
        )

    async def _refreshed(self, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        """Redeem a fresh grant once more when its first token cannot be used; without success the first one stands."""
        refresh = fields.get("refresh_token")
        if not isinstance(refresh, str) or not refresh:
            return fields

        async def redeem() -> Mapping[str, Any]:
            async with self._client() as portal:
                answer = await portal.refresh(Secret(refresh))
            token = answer.fields.get("access_token")
            return {**fields, **answer.fields} if answer.ok and is_plain(token) else fields

        return await self._watched(redeem())

    async def _save(self, entry: Mapping[str, Any]) -> Saved:
        """Save under scope, locks and guard; a save that was called off is a cancel."""
        self._check()
        saving = Saving(
            entry=entry,
            now=self.clock.time(),
            store=self._store,
            stop=self._stop,
            scope=self.scope,
            label=self.options.label,
            priority=self.options.priority,
            seconds=self.parts.save_seconds,
            first_only=not self.options.replace,
        )
        try:
            saved = await saving.run(self.persist_guard() if self.persist_guard is not None else None)
        finally:  # what is on disk counts, whatever a guard or scope raised after it
            self._saved, self._unsure = saving.saved, saving.unsure
        if saving.taken is not None:
            raise _Overtaken(saving.taken.email)
        if saved is None:
            raise _Stopped
        return saved

    def _stop(self) -> bool:
        return self.cancelled is not None and bool(self.cancelled())

    def _check(self) -> None:
        if self._stop():
            raise _Stopped

    async def _watched(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Await work while looking at `cancelled`; a cancel closes the request that is under way."""
        task = asyncio.ensure_future(work)
        try:
            while not task.done():
                await asyncio.wait({task}, timeout=None if self.cancelled is None else SLICE)
                if self._stop():
                    raise _Stopped
            return task.result()
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task}, timeout=1)


class _Opened:
    """An open HTTP client as a portal client."""

    def __init__(self, opening: AbstractAsyncContextManager[Any], base: str, client_id: str) -> None:
        self._opening, self._base, self._client_id = opening, base, client_id

    async def __aenter__(self) -> PortalClient:
        return PortalClient(
            client=await self._opening.__aenter__(), base=self._base, client_id=self._client_id
        )

    async def __aexit__(self, *problem: Any) -> bool | None:
        return await self._opening.__aexit__(*problem)
