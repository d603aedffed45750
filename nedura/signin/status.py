"""What `nedura auth status` says: plain facts about the stores, no secret among them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Final, final

import attrs

from nedura.clock import Clock, SystemClock, iso
from nedura.config import read_config
from nedura.errors import ConfigError, StoreError
from nedura.homes import profile_name
from nedura.http import open_client
from nedura.product import NEDURA, Product
from nedura.signin.accounts import AccountStore
from nedura.signin.addresses import portal_of
from nedura.signin.auth_state import AuthState
from nedura.signin.background import in_thread
from nedura.signin.copy import chat_safe, shown_email
from nedura.signin.handoff import drain, latest_record, wire_status
from nedura.signin.handoff_copy import result_lines
from nedura.signin.handoff_record import HandoffStore
from nedura.signin.identity import Kind, ends_soon, family_end
from nedura.signin.refresh import ClientFactory, Outcome, refresh_account
from nedura.signin.settle import needs_settling, settle_after_upgrade
from nedura.signin.tokens import expiry_of
from nedura.text import clean
from nedura.trust import resolve_trust

__all__ = ["AuthStatus", "auth_status"]

STATUS_SECONDS: Final = 3.0
"""Longest wait of a status for the network (decision 14)."""


def _lines(value: object) -> tuple[str, ...]:
    items = value if isinstance(value, list | tuple) else ()
    return tuple(clean(item, 300) for item in items)


@final
@attrs.frozen(kw_only=True)
class AuthStatus:
    """Who is signed in here.

    Attributes:
        profile: profile name.
        state: signed_in, free_tier, ended (only a new sign-in helps), signed_out, or damaged.
        checked: whether the session was proved good or ended just now; False means only what the store says.
        email, portal, model: of the login; may be empty.
        expires_at: end of the current token in unix seconds; it is renewed on its own.
        login_ends_at: when the sign-in itself ends, unix seconds, whatever is renewed; None when it does not say.
        inherited: the login is the default profile's.
        insecure: certificates are not checked for it.
        reason: why the session ended.
        notes: what deserves a look: damaged or unreadable stores, trust choices.
        handoff: lines on the last move of connected apps.
        handoff_status: the same as fields.
    """

    kind: ClassVar[str] = "auth_status"

    profile: str = attrs.field(default="default", converter=clean)
    state: str = "signed_out"
    checked: bool = False
    email: str = attrs.field(default="", converter=clean)
    portal: str = attrs.field(default="", converter=clean)
    model: str = attrs.field(default="", converter=clean)
    expires_at: float | None = None
    login_ends_at: float | None = None
    inherited: bool = False
    insecure: bool = False
    reason: str = attrs.field(default="", converter=clean)
    notes: tuple[str, ...] = attrs.field(default=(), converter=_lines)
    handoff: tuple[str, ...] = attrs.field(default=(), converter=_lines)
    handoff_status: Mapping[str, Any] | None = None

    @property
    def copy(self) -> str:
        """Chat form."""
        email = shown_email(self.email)
        head = {
            "signed_in": f"Signed in as {email}." if email else "Signed in.",
            "free_tier": "Free tier, no account. Sign in any time to use your own.",
            "ended": "The sign-in has ended. Please sign in again.",
            "damaged": "The saved sign-in cannot be read. Please sign in again.",
        }.get(self.state, "Not signed in.")
        return "\n".join([head, *filter(None, map(chat_safe, self.handoff))])

    @property
    def copy_terminal(self) -> str:
        """Terminal form: the head, then one fact a line."""
        head = self.copy.split("\n", 1)[0]
        if self.state in ("free_tier", "ended", "damaged", "signed_out"):
            head += " Sign in with: nedura auth upgrade"
        facts = [
            (
                "profile",
                self.profile + (" (uses the login of the default profile)" if self.inherited else ""),
            ),
            ("portal", self.portal),
            ("model", self.model),
            ("reason", self.reason),
        ]
        rows = [f"  {name}: {value}" for name, value in facts if value]
        rows += [] if self.state != "signed_in" or self.checked else ["  session: not checked just now"]
        rows += ["  TLS: certificates are NOT checked for this login (--insecure)"] if self.insecure else []
        return "\n".join([head, *rows, *(f"  {note}" for note in (*self.notes, *self.handoff))])


_STATES: Final = {
    Kind.NONE: "signed_out",
    Kind.GUEST: "free_tier",
    Kind.ACCOUNT: "signed_in",
    Kind.DEAD: "ended",
}


async def auth_status(
    home: Path,
    *,
    product: Product = NEDURA,
    environ: Mapping[str, str] | None = None,
    clock: Clock | None = None,
    client_factory: ClientFactory = open_client,
    budget_s: float = STATUS_SECONDS,
) -> AuthStatus:
    """Look, renew what has run out, and finish a move of connected apps that is due; at most `budget_s` seconds of network.

    Args:
        home: the profile's home.
        product: names.
        environ: the real environment.
        clock: time.
        client_factory: opens HTTP clients.
        budget_s: seconds; what is not done by then is shown as it stands.

    Raises:
        RecordUnreadable, UnsafePath: the store cannot be read.
    """
    environ = os.environ if environ is None else environ
    clock = clock or SystemClock()
    common: dict[str, Any] = {
        "product": product, "environ": environ, "clock": clock, "client_factory": client_factory,
    }  # fmt: skip
    store = AccountStore(home, environ=environ, product=product)
    checked, trust = False, ""
    try:
        async with asyncio.timeout(budget_s):
            trust, sound = await _trust(store.read(), environ, product)
            checked = await _check(store, store.read(), clock, common) and sound
            state = store.read()
            if state.kind(clock.time()) is Kind.ACCOUNT and needs_settling(home, product, environ):
                await settle_after_upgrade(home, state.entry or {}, **common)
            await drain(home, **common)
    except TimeoutError:
        pass  # shown as it stands; what is under way goes on later
    return _shown(store.read(), store, clock.time(), checked, trust, product, environ)


async def _trust(state: AuthState, environ: Mapping[str, str], product: Product) -> tuple[str, bool]:
    """What there is to say about the certificates, and whether a connection can be made with them at all."""
    tls = (state.entry or {}).get("tls")
    stored = tls if isinstance(tls, Mapping) else None
    try:
        trust = resolve_trust(stored=stored, environ=environ, product=product)
        if trust.ca_bundle is not None:
            await in_thread(trust.context)  # a file that holds no certificate shows only now
    except ConfigError as error:
        return error.diagnostics(), False
    return trust.warning, True


async def _check(store: AccountStore, state: AuthState, clock: Clock, common: Mapping[str, Any]) -> bool:
    """Whether the session is known to be good or ended. A token's presence proves nothing (#18072)."""
    if state.kind(clock.time()) is not Kind.ACCOUNT:
        return True
    result = await refresh_account(store, **common)
    return result.outcome not in (Outcome.LATER, Outcome.LOST)


def _shown(
    state: AuthState,
    store: AccountStore,
    now: float,
    checked: bool,
    trust: str,
    product: Product,
    environ: Mapping[str, str],
) -> AuthStatus:
    kind, entry = state.kind(now), state.entry or {}
    tls = entry.get("tls")
    record = latest_record(store.home)
    error = entry.get("last_auth_error")
    return AuthStatus(
        profile=profile_name(store.home, store.root),
        state="damaged" if state.damaged else _STATES[kind],
        checked=checked,
        email=state.email,
        portal=_portal(state, product, environ),
        model=_model(store.home),
        expires_at=expiry_of(entry.get("access_token")) if kind is Kind.ACCOUNT else None,
        login_ends_at=family_end(entry) if kind is Kind.ACCOUNT else None,
        inherited=state.inherited,
        insecure=isinstance(tls, Mapping) and tls.get("insecure") is True,
        reason=str(error.get("message") or "") if kind is Kind.DEAD and isinstance(error, Mapping) else "",
        notes=(*_notes(state, now, trust, product), *_handoff_problem(store)),
        handoff=result_lines(record) if record is not None else (),
        handoff_status=wire_status(store.home),
    )


def _handoff_problem(store: AccountStore) -> tuple[str, ...]:
    """A record that cannot be read is not "none": a move that still waits in it would never be heard of again."""
    try:
        HandoffStore(store.home).read()
    except StoreError as error:
        return (f"Connected apps: {error.diagnostics()}",)
    return ()


def _portal(state: AuthState, product: Product, environ: Mapping[str, str]) -> str:
    if state.entry is None:
        return ""
    try:
        return portal_of(state.entry, product, environ)
    except ConfigError as error:
        return error.message


def _model(home: Path) -> str:
    try:
        config = read_config(home)
    except ConfigError as error:
        return f"unknown ({error.message})"
    value = config.get("model.default") if isinstance(config.get("model"), dict) else config.get("model")
    return value if isinstance(value, str) else ""


def _notes(state: AuthState, now: float, trust: str, product: Product) -> tuple[str, ...]:
    notes = [trust] if trust else []
    if state.damaged:
        notes.append("auth.json is damaged; it is kept as auth.json.corrupt when you sign in again.")
    if state.shared_problem:
        notes.append(f"Shared store: {state.shared_problem}")
    end = family_end(state.entry)
    if end is not None and state.kind(now) is Kind.ACCOUNT and ends_soon(state.entry, now):
        notes.append(
            f"This sign-in ends by itself about {iso(end)[:10]}. Sign in again before: {product.command} auth add nous"
        )
    return tuple(notes)
