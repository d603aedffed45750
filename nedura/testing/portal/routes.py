"""Which handler answers which request."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from nedura.testing.portal import pages, routes_account, routes_guest, routes_oauth
from nedura.testing.portal.exchange import Answer, failure

if TYPE_CHECKING:
    from nedura.testing.portal.core import Portal
    from nedura.testing.portal.exchange import Ask

__all__ = ["TABLE", "Handler", "find"]

Handler = Callable[["Portal", "Ask"], Answer]

TABLE: Final[dict[tuple[str, str], tuple[str, Handler]]] = {
    ("POST", "/api/oauth/device/code"): ("device_code", routes_oauth.device_code),
    ("POST", "/api/oauth/token"): ("token.other", routes_oauth.token),
    ("POST", "/api/oauth/revoke"): ("revoke", routes_oauth.revoke),
    ("GET", "/api/oauth/account"): ("account", routes_account.account),
    ("GET", "/api/nous/recommended-models"): ("recommended_models", routes_account.recommended_models),
    ("GET", "/v1/models"): ("models", routes_account.models),
    ("POST", "/v1/chat/completions"): ("chat", routes_account.chat),
    ("GET", "/v1/connectors"): ("connectors", routes_guest.connectors),
    ("POST", "/api/anonymous/create"): ("anon.create", routes_guest.create),
    ("POST", "/api/anonymous/token"): ("anon.exchange", routes_guest.exchange),
    ("POST", "/api/anonymous/challenge/status"): ("anon.challenge", routes_guest.challenge_status),
    ("POST", "/api/anonymous/claim"): ("anon.claim", routes_guest.claim),
    ("GET", "/device"): ("device_page", pages.device),
    ("POST", "/device"): ("device_page", pages.decide),
    ("GET", "/manage-subscription"): ("device_page", pages.plans),
    ("GET", "/check"): ("device_page", pages.check),
    ("POST", "/check"): ("device_page", pages.pass_check),
}
"""(method, path) -> (name in the log, handler)."""


def find(ask: Ask) -> tuple[str, Handler]:
    """Name and handler for a request; the token endpoint counts by grant."""
    route, handler = TABLE.get((ask.method, ask.path), ("none", _none))
    if route == "token.other":
        route = routes_oauth.GRANTS.get(ask.form.get("grant_type", ""), route)
    return route, handler


def _none(portal: Portal, ask: Ask) -> Answer:
    return failure(404, "not_found")
