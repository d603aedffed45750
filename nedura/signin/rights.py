"""More rights for the account that is signed in: billing step-up and the login for connected tools (decision 55).

Both are the plain device login with a wider scope at the same portal. A server may grant less than it was asked for without saying so:
only the token tells.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import attrs

from nedura.errors import RefusedError
from nedura.product import NEDURA, Product
from nedura.signin.accounts import AccountStore
from nedura.signin.addresses import inference_of, stored_tls
from nedura.signin.attempt import LoginOptions
from nedura.signin.identity import Kind
from nedura.signin.portal import choose_portal
from nedura.signin.tokens import scopes_of
from nedura.text import clean

__all__ = ["BILLING_SCOPE", "TOOLS_SCOPE", "granted_scopes", "has_scope", "step_up_options", "tools_options"]

BILLING_SCOPE: Final = "billing:manage"
TOOLS_SCOPE: Final = "tool:invoke"


def granted_scopes(
    home: Path, *, product: Product = NEDURA, environ: Mapping[str, str] | None = None
) -> frozenset[str]:
    """The rights that the stored token names.

    Args:
        home: the profile's home.
        product: names.
        environ: the real environment.

    Raises:
        RecordUnreadable, UnsafePath: the store cannot be read.
    """
    entry = AccountStore(home, environ=environ, product=product).read().entry or {}
    return scopes_of(entry.get("access_token"))


def has_scope(home: Path, scope: str, *, environ: Mapping[str, str] | None = None) -> bool:
    """Whether a right was really granted."""
    wanted = set(scope.split())
    return bool(wanted) and wanted <= granted_scopes(home, environ=environ)


def _joined(*scopes: str) -> str:
    return " ".join(dict.fromkeys(part for scope in scopes for part in scope.split()))


def step_up_options(
    home: Path, scope: str, *, product: Product = NEDURA, environ: Mapping[str, str] | None = None
) -> LoginOptions:
    """The login that asks for one more right, for the same account at the same portal.

    Args:
        home: the profile's home.
        scope: the right.
        product: names.
        environ: the real environment.

    Raises:
        RefusedError: nobody is signed in, or the scope is none.
    """
    environ = os.environ if environ is None else environ
    if not scope.split() or not scope.isascii() or not scope.isprintable() or len(scope) > 200:
        raise RefusedError(f"{clean(scope, 60)!r} is no right that can be asked for.")
    state = AccountStore(home, environ=environ, product=product).read()
    if state.kind(time.time()) is not Kind.ACCOUNT or state.entry is None:
        raise RefusedError("Nobody is signed in yet.", advice="Sign in first: nedura auth upgrade")
    stored = state.entry.get("scope")
    portal = choose_portal("", state.entry, product, environ)[0]
    tls = stored_tls(state.entry, portal, product)
    return LoginOptions(
        portal_url=portal,
        inference_url=inference_of(state.entry.get("inference_base_url"), product, environ),
        client_id=str(state.entry.get("client_id") or ""),
        oauth_scope=_joined(stored if isinstance(stored, str) and stored else product.scope, scope),
        insecure=True if tls.get("insecure") is True else None,
        replace=True,
        expect_subject=state.subject,
        command=f"{product.command} auth step-up",
    )


def tools_options(options: LoginOptions, product: Product = NEDURA) -> LoginOptions:
    """The login for connected tools: what was asked for, and the right to use tools."""
    scope = _joined(options.oauth_scope or product.scope, TOOLS_SCOPE)
    return attrs.evolve(options, oauth_scope=scope)
