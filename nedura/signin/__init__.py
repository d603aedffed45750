"""Signing in to the Nous Portal: the flow, its states, the stores, and what keeps a login alive."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nedura._lazy import attach

if TYPE_CHECKING:
    from nedura.signin.accounts import AccountStore, AuthState, Saved, Transaction
    from nedura.signin.attempt import LoginOptions, Parts
    from nedura.signin.browser import open_page, why_not
    from nedura.signin.desk import Desk, Ticket
    from nedura.signin.flow import login_nous, run_sign_in, sign_in
    from nedura.signin.handoff import DrainResult, drain, handoff_lines, wire_status
    from nedura.signin.identity import Kind
    from nedura.signin.keepalive import start_nous_auth_keepalive, stop_nous_auth_keepalive
    from nedura.signin.logins import Login, SignedOut, list_logins, log_out
    from nedura.signin.models import CatalogueRow, Recommendation, recommended_nous_default_model
    from nedura.signin.refresh import Outcome, Refresh, refresh_account
    from nedura.signin.settle import Settled, settle_after_upgrade
    from nedura.signin.states import (
        SIGN_IN_STATES,
        AlreadySignedIn,
        Cancelled,
        Code,
        Completed,
        Failed,
        SignInState,
        TimedOut,
        Waiting,
    )
    from nedura.signin.status import AuthStatus, auth_status

_EXPORTS = {
    "AccountStore": "accounts",
    "AlreadySignedIn": "states",
    "AuthState": "accounts",
    "AuthStatus": "status",
    "Cancelled": "states",
    "CatalogueRow": "models",
    "Code": "states",
    "Completed": "states",
    "Desk": "desk",
    "DrainResult": "handoff",
    "Failed": "states",
    "Kind": "identity",
    "Login": "logins",
    "LoginOptions": "attempt",
    "Outcome": "refresh",
    "Parts": "attempt",
    "Recommendation": "models",
    "Refresh": "refresh",
    "SIGN_IN_STATES": "states",
    "Saved": "accounts",
    "Settled": "settle",
    "SignInState": "states",
    "SignedOut": "logins",
    "Ticket": "desk",
    "TimedOut": "states",
    "Transaction": "accounts",
    "Waiting": "states",
    "auth_status": "status",
    "drain": "handoff",
    "handoff_lines": "handoff",
    "list_logins": "logins",
    "log_out": "logins",
    "login_nous": "flow",
    "open_page": "browser",
    "recommended_nous_default_model": "models",
    "refresh_account": "refresh",
    "run_sign_in": "flow",
    "settle_after_upgrade": "settle",
    "sign_in": "flow",
    "start_nous_auth_keepalive": "keepalive",
    "stop_nous_auth_keepalive": "keepalive",
    "why_not": "browser",
    "wire_status": "handoff",
}

__all__ = [
    "SIGN_IN_STATES",
    "AccountStore",
    "AlreadySignedIn",
    "AuthState",
    "AuthStatus",
    "Cancelled",
    "CatalogueRow",
    "Code",
    "Completed",
    "Desk",
    "DrainResult",
    "Failed",
    "Kind",
    "Login",
    "LoginOptions",
    "Outcome",
    "Parts",
    "Recommendation",
    "Refresh",
    "Saved",
    "Settled",
    "SignInState",
    "SignedOut",
    "Ticket",
    "TimedOut",
    "Transaction",
    "Waiting",
    "auth_status",
    "drain",
    "handoff_lines",
    "list_logins",
    "log_out",
    "login_nous",
    "open_page",
    "recommended_nous_default_model",
    "refresh_account",
    "run_sign_in",
    "settle_after_upgrade",
    "sign_in",
    "start_nous_auth_keepalive",
    "stop_nous_auth_keepalive",
    "why_not",
    "wire_status",
]

__getattr__, __dir__ = attach(__name__, {name: f"{__name__}.{module}" for name, module in _EXPORTS.items()})
