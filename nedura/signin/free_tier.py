"""The free tier: an identity without an account, made only when somebody asks for it (facts/signin.md 1.7, 2.6).

The credential is saved before its first exchange, so that a failed exchange cannot lose what the portal honours. An account, this
profile's or the root's, always wins: nothing here ever replaces one (#118532).
"""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Final, final

import attrs

from nedura._version import __version__
from nedura.clock import Clock, SystemClock, iso
from nedura.config import read_config
from nedura.errors import ConfigError, PortalError, Unreachable
from nedura.http import Answer, Client, open_client, resolve_trust, user_agent
from nedura.locks import FileLock
from nedura.product import NEDURA, Product
from nedura.records import make_folder
from nedura.signin.accounts import AccountStore, Transaction
from nedura.signin.auth_state import AuthState
from nedura.signin.background import in_thread
from nedura.signin.free_tier_rules import (
    Challenge,
    Memo,
    after_failure,
    may_try,
    read_challenge,
    refusal_code,
)
from nedura.signin.identity import Entry, Kind, is_guest, kind_of, token_times
from nedura.signin.portal import choose_inference, choose_portal
from nedura.signin.refresh import ClientFactory
from nedura.signin.spent import SpentTokens
from nedura.signin.states import Failed
from nedura.signin.tokens import INVOKE_SCOPE, MIN_LIFE, expiry_of, fingerprint, scopes_of
from nedura.text import Secret, clean
from nedura.urls import origin_of

__all__ = ["FreeTier", "FreeTierState", "free_tier_enabled"]

MINT_SECONDS: Final = 5.0
EXCHANGE_SECONDS: Final = 15.0
CHALLENGE_SECONDS: Final = 120.0
CHALLENGE_REST: Final = 30.0
MINT_LOCK_SECONDS: Final = 30.0
CONNECTORS_SCOPE: Final = "connectors:invoke"

ENDED: Final = "relogin_required"
"""An account whose sign-in has ended stays its owner's: no free tier takes its place (decision 13)."""

log = logging.getLogger("nedura.signin.free_tier")


def _address(value: object) -> str:
    return clean(value, 2048)


@final
@attrs.frozen(kw_only=True)
class FreeTierState:
    """How the free tier stands after an attempt.

    Attributes:
        ready: this profile has an identity it can work with (its own free tier, or an account).
        account: that identity is an account.
        code: why not, as a client code; empty when ready or switched off.
        retry_after: seconds until another attempt makes sense.
        check_url: page of a browser check that is asked for.
    """

    kind: ClassVar[str] = "free_tier"

    ready: bool = False
    account: bool = False
    code: str = attrs.field(default="", converter=clean)
    retry_after: float | None = None
    check_url: str = attrs.field(default="", converter=_address)

    @property
    def copy(self) -> str:
        """Chat form."""
        if self.account:
            return "Signed in with an account."
        if self.ready:
            return "The free tier is ready. Sign in any time to use your own account."
        if self.code == ENDED:
            return "The sign-in of this profile has ended. Please sign in again."
        if not self.code:
            return "The free tier is switched off here. Sign in with an account."
        return Failed(reason=self.code, retry_after=self.retry_after).copy

    @property
    def copy_terminal(self) -> str:
        """Terminal form."""
        check = f"\nOpen this page for the check: {self.check_url}" if self.check_url else ""
        return self.copy + check + ("" if self.ready else "\nSign in with: nedura auth upgrade")


def free_tier_enabled(home: Path, environ: Mapping[str, str], product: Product = NEDURA) -> bool:
    """Whether identities may be made here: the variable is exactly 1, and the config does not say no; unreadable means no."""
    if environ.get(product.env("GUEST_ONBOARDING")) != "1":
        return False
    try:
        return read_config(home).flag("nous.guest", True)
    except ConfigError as error:
        log.warning("free tier off: %s", error.message)
        return False


class _Refused(Exception):
    """The portal or the network said no. Never leaves this module."""

    def __init__(
        self, code: str, retry_after: float | None = None, challenge: Challenge | None = None
    ) -> None:
        super().__init__(code)
        self.code, self.retry_after, self.challenge = code, retry_after, challenge


_memos: Final[dict[str, Memo]] = {}
_rests: Final[dict[str, float]] = {}


@attrs.define(kw_only=True)
class FreeTier:
    """The free tier of one profile.

    Attributes:
        home: the profile's home.
        surface: cli, desktop or gateway.
        show: told about a browser check, which is then waited for; None never waits (background, messaging gateway).
        background: three tries at most.
        product, environ, clock, client_factory: as for `run_sign_in`.
        memos: last failures by profile; None means this process's own.
    """

    home: Path
    surface: str = "cli"
    show: Callable[[Challenge], None] | None = None
    background: bool = False
    product: Product = NEDURA
    environ: Mapping[str, str] = attrs.field(factory=lambda: os.environ, repr=False)
    clock: Clock = attrs.field(factory=SystemClock)
    client_factory: ClientFactory = open_client
    memos: dict[str, Memo] = attrs.field(factory=lambda: _memos, repr=False)

    @property
    def _store(self) -> AccountStore:
        return AccountStore(self.home, environ=self.environ, product=self.product)

    async def provision(self, *, force: bool = False) -> FreeTierState:
        """Make sure that this profile has an identity: its own, the root's, or a new one. Never raises for what a portal does.

        Args:
            force: try although the last failure says to wait.

        Raises:
            StoreError: the stores cannot be read or written.
        """
        state = self._store.read()
        if state.kind(self.clock.time()) is Kind.ACCOUNT:
            return FreeTierState(ready=True, account=True)
        if state.kind(self.clock.time()) is Kind.DEAD:
            return FreeTierState(code=ENDED)
        if not free_tier_enabled(self.home, self.environ, self.product):
            return FreeTierState()
        key, now = str(self.home), self.clock.monotonic()
        memo = self.memos.get(key)
        if not force and not may_try(memo, now, background=self.background):
            assert memo is not None
            return FreeTierState(code=memo.code, retry_after=max(0.0, memo.until - now) or None)
        try:
            await self._ensure()
        except _Refused as refused:
            if refused.code == ENDED:
                return FreeTierState(code=ENDED)
            self.memos[key] = after_failure(memo, refused.code, refused.retry_after, self.clock.monotonic())
            return FreeTierState(
                code=refused.code,
                retry_after=refused.retry_after,
                check_url=refused.challenge.url if refused.challenge else "",
            )
        self.memos.pop(key, None)
        account = self._store.read().kind(self.clock.time()) is Kind.ACCOUNT
        return FreeTierState(ready=True, account=account)

    async def bearer(self, purpose: str = "inference", *, rejected: Secret | None = None) -> Secret | None:
        """A token for the model route or the connected apps; None when there is none to be had now.

        Args:
            purpose: `inference` or `connectors`; the latter is never checked in the browser.
            rejected: a token that a server just refused; it is exchanged again although it looks good.
        """
        entry = self._store.read().entry
        if not is_guest(entry) or entry is None:
            return None
        kept = self._kept(entry, purpose)
        if kept is not None and kept != rejected:
            return kept
        try:
            async with self._client(entry) as client:
                fresh = await self._exchange(client, entry, purpose)
        except _Refused as refused:
            log.info("free tier token: %s", refused.code)
            return None
        return self._kept(fresh, purpose)

    def _kept(self, entry: Entry, purpose: str) -> Secret | None:
        holder = entry.get("connectors_token") if purpose == "connectors" else entry
        token = holder.get("access_token") if isinstance(holder, Mapping) else None
        wanted = CONNECTORS_SCOPE if purpose == "connectors" else INVOKE_SCOPE
        expiry = expiry_of(token)
        if expiry is None or expiry - self.clock.time() <= MIN_LIFE or wanted not in scopes_of(token):
            return None
        return Secret(str(token))

    async def _ensure(self) -> None:
        """An identity on disk that the portal still honours. One process of a root at a time makes one."""
        store = self._store
        make_folder(store.shared_folder)
        lock = FileLock(store.shared_folder / "nous_mint.lock", "the free tier")
        await lock.acquire_async(MINT_LOCK_SECONDS)
        try:
            for fresh in (False, True):
                entry = await self._identity(store.read())
                if not is_guest(entry):
                    return
                try:
                    async with self._client(entry) as client:
                        if self._kept(entry, "inference") is None:
                            await self._exchange(client, entry, "inference")
                    return
                except _Refused as refused:
                    if refused.code != "anon_credential_dead" or fresh:
                        raise
                    await in_thread(functools.partial(self._retire, entry))  # re-made once, silently
        finally:
            lock.release()

    async def _identity(self, state: AuthState) -> Entry:
        if state.entry is not None and state.kind(self.clock.time()) in (Kind.GUEST, Kind.ACCOUNT):
            return state.entry
        if state.held is not None and (adopted := await in_thread(self._adopt)) is not None:
            return adopted
        async with self._client(None) as client:
            entry = await self._create(client)
        return await in_thread(lambda: self._keep(entry))

    def _client(self, entry: Entry | None) -> Any:
        trust = resolve_trust(stored=(entry or {}).get("tls"), environ=self.environ, product=self.product)
        agent = user_agent(self.product.user_agent, self.surface)
        return self.client_factory(trust, timeout=EXCHANGE_SECONDS, environ=self.environ, agent=agent)

    def _base(self, entry: Entry | None) -> str:
        return choose_portal("", entry, self.product, self.environ)[0]

    async def _post(
        self, client: Client, base: str, path: str, body: Mapping[str, Any], seconds: float
    ) -> Answer:
        secret = self.product.setting(self.environ, "ANON_API_SECRET")
        headers = {"x-anonymous-api-secret": Secret(secret)} if secret else {}
        try:
            return await client.request(
                "POST", f"{base}/api/anonymous/{path}", headers=headers, json=body, deadline_s=seconds
            )
        except Unreachable as error:
            raise _Refused("anon_unreachable") from error
        except PortalError as error:
            raise _Refused("anon_server_error") from error

    async def _create(self, client: Client) -> dict[str, Any]:
        base = self._base(None)
        preview = {"1": True, "true": True, "0": False, "false": False}.get(
            self.product.setting(self.environ, "PREVIEW_FULL_CONNECTORS").lower()
        )
        body = {} if preview is None else {"preview_full_connectors": preview}
        answer = await self._post(client, base, "create", body, MINT_SECONDS)
        token = answer.fields.get("token")
        if not answer.ok:
            raise _Refused(refusal_code(answer.status, answer.error), answer.retry_after)
        if not isinstance(token, str) or not token.startswith("anon_") or len(token) > 4096:
            raise _Refused("anon_server_error")
        days = answer.fields.get("idle_ttl_days")
        return {
            "auth_method": "anonymous",
            "account_tier": "anonymous",
            "anon_token": token,
            "client_id": "nas-anonymous",
            "portal_base_url": base,
            "user_id": clean(answer.fields.get("user_id"), 120),
            "org_id": clean(answer.fields.get("org_id"), 120),
            "idle_ttl_days": days if isinstance(days, int) and not isinstance(days, bool) else None,
            "obtained_at": iso(self.clock.time()),
        }

    def _keep(self, entry: dict[str, Any]) -> Entry:
        """Save a new identity, unless somebody signed in meanwhile: an account is never overridden."""
        with self._store.transaction() as transaction:
            now = self.clock.time()
            if transaction.state.kind(now) is Kind.ACCOUNT:
                return transaction.state.entry or {}
            held = self._held(transaction, now)
            if held is not None and not is_guest(held):
                transaction.adopt(held, now)
                return held
            transaction.save_guest(entry, renewal=False, now=now)
        return entry

    def _adopt(self) -> Entry | None:
        """The identity to work with when there is one already: this profile's, or the root's; None when one must be made."""
        with self._store.transaction() as transaction:
            now = self.clock.time()
            if transaction.state.kind(now) in (Kind.GUEST, Kind.ACCOUNT):
                return transaction.state.entry
            held = self._held(transaction, now)
            if held is not None:
                transaction.adopt(held, now)
            return held

    def _held(self, transaction: Transaction, now: float) -> Entry | None:
        """The root's identity.

        A login whose refresh token was sent and lost ends with its access token: nobody follows it, and no free tier takes its place.
        """
        held = transaction.state.held
        if held is None or kind_of(held, now) not in (Kind.GUEST, Kind.ACCOUNT):
            return None
        token = held.get("refresh_token")
        if isinstance(token, str) and fingerprint(token) in SpentTokens(self._store.shared_folder).read():
            raise _Refused(ENDED)
        return held

    def _retire(self, entry: Entry) -> None:
        """Forget an identity that the portal no longer knows, pinned to its own credential."""
        with self._store.transaction() as transaction:
            current = transaction.state.entry or {}
            if current.get("anon_token") == entry.get("anon_token"):
                transaction.forget(self.clock.time())

    async def _exchange(self, client: Client, entry: Entry, purpose: str) -> Entry:
        """Trade the credential for a token; a browser check is waited for once where somebody can see it."""
        base = self._base(entry)
        for checked in (False, True):
            answer = await self._post(client, base, "token", self._ask(entry, purpose), EXCHANGE_SECONDS)
            if answer.ok:
                return await in_thread(functools.partial(self._store_token, entry, answer.fields))
            code = refusal_code(answer.status, answer.error)
            origin = origin_of(base)
            challenge = read_challenge(answer.fields, origin) if origin else None
            if (
                code != "anon_challenge_required"
                or challenge is None
                or checked
                or not await self._passed(client, base, entry, challenge)
            ):
                raise _Refused(code, answer.retry_after, challenge)
        raise _Refused("anon_challenge_required")

    def _ask(self, entry: Entry, purpose: str) -> dict[str, Any]:
        import platform

        client = {
            "name": self.product.name,
            "version": __version__,
            "surface": self.surface,
            "platform": platform.system().lower(),
            "capabilities": ["browser-v1"],
        }
        return {"token": Secret(str(entry["anon_token"])), "client": client, "purpose": purpose}

    async def _passed(self, client: Client, base: str, entry: Entry, challenge: Challenge) -> bool:
        """Wait for a browser check, two minutes at most; after giving up nobody waits for half a minute."""
        key, now = str(self.home), self.clock.monotonic()
        if self.show is None or now < _rests.get(key, float("-inf")):
            return False
        self.show(challenge)
        end = now + min(CHALLENGE_SECONDS, challenge.expires_in)
        while self.clock.monotonic() < end:
            await self.clock.sleep(challenge.interval)
            body = {"token": Secret(str(entry["anon_token"]))}
            try:
                answer = await self._post(client, base, "challenge/status", body, MINT_SECONDS)
            except _Refused:
                continue  # no answer: still pending
            if answer.ok and answer.fields.get("status") not in ("pending", "needs_interaction"):
                return True
            if 400 <= answer.status < 500 and answer.status != 429:
                break
        _rests[key] = self.clock.monotonic() + CHALLENGE_REST
        return False

    def _store_token(self, entry: Entry, fields: Mapping[str, Any]) -> Entry:
        """Put a token where its own scope says, whatever was asked for (facts/signin.md 1.7)."""
        token = fields.get("access_token")
        if not isinstance(token, str) or not token:
            raise _Refused("anon_server_error")
        now = self.clock.time()
        times = token_times(token, fields.get("expires_in"), now)
        scopes = scopes_of(token)
        with self._store.transaction() as transaction:
            current = transaction.state.entry
            if current is None or current.get("anon_token") != entry.get("anon_token"):
                raise _Refused("anon_credential_dead")  # replaced meanwhile: nothing of it is kept
            if CONNECTORS_SCOPE in scopes and INVOKE_SCOPE not in scopes:
                slot = {"access_token": token, "expires_at": times["expires_at"]}
                fresh: dict[str, Any] = {**current, "connectors_token": slot}
            else:
                host, _ = choose_inference(
                    fields.get("inference_base_url"), self.product.welcome_url, self.product, self.environ
                )
                fresh = {
                    **current,
                    "access_token": token,
                    "token_type": "Bearer",
                    "scope": " ".join(sorted(scopes)),
                }
                fresh |= {**times, "inference_base_url": host}
                fresh.pop("refresh_token", None)
            transaction.save_guest(fresh, renewal=True, now=now)
        return fresh
