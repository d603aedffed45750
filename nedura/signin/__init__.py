"""Signing in to the Nous Portal: the flow, its states, the stores, and what keeps a login alive."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nedura._lazy import attach

if TYPE_CHECKING:
    from nedura.signin.accounts import AccountStore, Transaction
    from nedura.signin.adoption import Reconciled, reconcile
    from nedura.signin.attempt import LoginOptions, Parts
    from nedura.signin.auth_state import AuthState, Saved
    from nedura.signin.browser import open_page, why_not
    from nedura.signin.desk import Desk, Ticket
    from nedura.signin.flow import login_nous, run_sign_in, sign_in
    from nedura.signin.free_tier import FreeTier, FreeTierState, free_tier_enabled
    from nedura.signin.free_tier_rules import Challenge
    from nedura.signin.handoff import DrainResult, drain, handoff_lines, wire_status
    from nedura.signin.identity import Kind
    from nedura.signin.importing import ImportOffer, import_shared, offer_shared
    from nedura.signin.keepalive import start_nous_auth_keepalive, stop_nous_auth_keepalive
    from nedura.signin.logins import Login, SignedOut, list_logins, log_out
    from nedura.signin.longpoll import wait_for_handoff
    from nedura.signin.models import CatalogueRow, Recommendation, recommended_nous_default_model
    from nedura.signin.picker import ModelChoice, list_models, set_default_model
    from nedura.signin.refresh import Outcome, Refresh, refresh_account
    from nedura.signin.rights import BILLING_SCOPE, has_scope, step_up_options, tools_options
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
    "AuthState": "auth_state",
    "AuthStatus": "status",
    "BILLING_SCOPE": "rights",
    "Cancelled": "states",
    "CatalogueRow": "models",
    "Challenge": "free_tier_rules",
    "Code": "states",
    "Completed": "states",
    "Desk": "desk",
    "DrainResult": "handoff",
    "Failed": "states",
    "FreeTier": "free_tier",
    "FreeTierState": "free_tier",
    "ImportOffer": "importing",
    "Kind": "identity",
    "Login": "logins",
    "LoginOptions": "attempt",
    "ModelChoice": "picker",
    "Outcome": "refresh",
    "Parts": "attempt",
    "Recommendation": "models",
    "Reconciled": "adoption",
    "Refresh": "refresh",
    "SIGN_IN_STATES": "states",
    "Saved": "auth_state",
    "Settled": "settle",
    "SignInState": "states",
    "SignedOut": "logins",
    "Ticket": "desk",
    "TimedOut": "states",
    "Transaction": "accounts",
    "Waiting": "states",
    "auth_status": "status",
    "drain": "handoff",
    "free_tier_enabled": "free_tier",
    "handoff_lines": "handoff",
    "has_scope": "rights",
    "import_shared": "importing",
    "list_logins": "logins",
    "list_models": "picker",
    "log_out": "logins",
    "login_nous": "flow",
    "offer_shared": "importing",
    "open_page": "browser",
    "recommended_nous_default_model": "models",
    "reconcile": "adoption",
    "refresh_account": "refresh",
    "run_sign_in": "flow",
    "set_default_model": "picker",
    "settle_after_upgrade": "settle",
    "sign_in": "flow",
    "start_nous_auth_keepalive": "keepalive",
    "step_up_options": "rights",
    "stop_nous_auth_keepalive": "keepalive",
    "tools_options": "rights",
    "why_not": "browser",
    "wait_for_handoff": "longpoll",
    "wire_status": "handoff",
}

__all__ = [
    "BILLING_SCOPE",
    "SIGN_IN_STATES",
    "AccountStore",
    "AlreadySignedIn",
    "AuthState",
    "AuthStatus",
    "Cancelled",
    "CatalogueRow",
    "Challenge",
    "Code",
    "Completed",
    "Desk",
    "DrainResult",
    "Failed",
    "FreeTier",
    "FreeTierState",
    "ImportOffer",
    "Kind",
    "Login",
    "LoginOptions",
    "ModelChoice",
    "Outcome",
    "Parts",
    "Recommendation",
    "Reconciled",
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
    "free_tier_enabled",
    "handoff_lines",
    "has_scope",
    "import_shared",
    "list_logins",
    "list_models",
    "log_out",
    "login_nous",
    "offer_shared",
    "open_page",
    "recommended_nous_default_model",
    "reconcile",
    "refresh_account",
    "run_sign_in",
    "set_default_model",
    "settle_after_upgrade",
    "sign_in",
    "start_nous_auth_keepalive",
    "step_up_options",
    "stop_nous_auth_keepalive",
    "tools_options",
    "wait_for_handoff",
    "why_not",
    "wire_status",
]

__getattr__, __dir__ = attach(__name__, {name: f"{__name__}.{module}" for name, module in _EXPORTS.items()})
