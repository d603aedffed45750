"""`/_dev/...`: what tests and demos in other processes ask of the portal. JSON in, JSON out, loopback only.

A browser page of another site cannot send these: they need the JSON content type and carry no `Origin`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import attrs
from cattrs import structure
from cattrs.errors import BaseValidationError

from nedura.errors import UsageError
from nedura.testing.portal.exchange import Answer, failure, json_answer
from nedura.testing.portal.knobs import Fault
from nedura.testing.portal.routes_oauth import token_set

if TYPE_CHECKING:
    from nedura.testing.portal.core import Portal
    from nedura.testing.portal.exchange import Ask

__all__ = ["answer"]


def answer(portal: Portal, ask: Ask) -> Answer:
    """Answer one administrative request."""
    handler = _TABLE.get((ask.method, ask.path.removeprefix("/_dev/")))
    if handler is None:
        return failure(404, "not_found")
    if "origin" in ask.headers or (
        ask.method == "POST" and "json" not in ask.headers.get("content-type", "")
    ):
        return failure(403, "forbidden")
    try:
        return json_answer(handler(portal, ask))
    except (UsageError, BaseValidationError, LookupError, TypeError, ValueError) as error:
        return failure(400, "bad_request", f"{type(error).__name__}: {error}")


def _account(portal: Portal, ask: Ask) -> Any:
    asked = ask.json
    account = portal.store.account(
        str(asked["email"]), tier=asked.get("tier", "paid"), sub=str(asked.get("sub", ""))
    )
    for name in ("tier", "locked", "plan"):
        if name in asked:
            setattr(account, name, asked[name])
    return attrs.asdict(account)


def _guest(portal: Portal, ask: Ask) -> Any:
    guest = portal.store.add_guest(*ask.json.get("connectors", []))
    return {**attrs.asdict(guest), "idle_ttl_days": portal.knobs.guest_idle_days}


def _guest_status(portal: Portal, ask: Ask) -> Any:
    guest = portal.store.guest_of(str(ask.json["token"]))
    if guest is None:
        raise LookupError("no such identity")
    guest.status = ask.json["status"]
    return attrs.asdict(guest)


def _login(portal: Portal, ask: Ask) -> Any:
    wanted = {name: str(ask.json[name]) for name in ("email", "client_id", "scope") if name in ask.json}
    return token_set(portal, portal.login(**wanted), ask.base)


def _approve(portal: Portal, ask: Ask) -> Any:
    asked = ask.json
    grant = portal.approve(
        str(asked.get("user_code", "latest")), str(asked.get("email", "alice@example.test"))
    )
    return {"user_code": grant.user_code, "status": grant.status}


def _decline(portal: Portal, ask: Ask) -> Any:
    grant = portal.decline(str(ask.json.get("user_code", "latest")))
    return {"user_code": grant.user_code, "status": grant.status}


def _knobs(portal: Portal, ask: Ask) -> Any:
    portal.knobs.change(ask.json)
    return attrs.asdict(portal.knobs)


def _faults(portal: Portal, ask: Ask) -> Any:
    portal.plant(*structure(ask.json["faults"], list[Fault]))
    return {"planted": len(portal.faults.faults)}


def _clear_faults(portal: Portal, ask: Ask) -> Any:
    portal.faults.clear()
    return {"planted": 0}


def _revoke_family(portal: Portal, ask: Ask) -> Any:
    sub = portal.store.account(str(ask.json["email"])).sub
    families = [family for family in portal.store.families if family.account.sub == sub]
    for family in families:
        family.revoked = family.revoked or str(ask.json.get("reason", "revoked"))
    return {"revoked": len(families)}


def _log(portal: Portal, ask: Ask) -> Any:
    route = ask.query.get("route", "")
    return [attrs.asdict(entry) for entry in (portal.log.on(route) if route else portal.log)]


_TABLE: Final[dict[tuple[str, str], Callable[[Portal, Ask], Any]]] = {
    ("POST", "account"): _account,
    ("POST", "guest"): _guest,
    ("POST", "guest-status"): _guest_status,
    ("POST", "login"): _login,
    ("POST", "approve"): _approve,
    ("POST", "decline"): _decline,
    ("POST", "knobs"): _knobs,
    ("GET", "knobs"): lambda portal, ask: attrs.asdict(portal.knobs),
    ("POST", "faults"): _faults,
    ("DELETE", "faults"): _clear_faults,
    ("POST", "revoke-families"): _revoke_family,
    ("GET", "log"): _log,
    ("GET", "state"): lambda portal, ask: portal.store.summary(),
    ("GET", "issued"): lambda portal, ask: list(portal.store.mint.issued),
}
