"""The free tier: create, exchange, browser check, claim, connected apps (facts/signin.md 1.7 and 1.9)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nedura.testing.portal.exchange import Answer, failure, json_answer
from nedura.testing.portal.routes_account import bearer_claims

if TYPE_CHECKING:
    from nedura.testing.portal.core import Portal
    from nedura.testing.portal.exchange import Ask
    from nedura.testing.portal.state import Guest

__all__ = ["challenge_status", "claim", "connectors", "create", "exchange"]


def _gate(portal: Portal, ask: Ask) -> Answer | None:
    """The refusal of a gate that is not open to this request."""
    match portal.knobs.anon_gate:
        case "closed":
            return failure(404, "not_found")
        case "paused":
            return failure(503, "temporarily_disabled", headers={"retry-after": "60"})
        case "secret" if ask.headers.get("x-anonymous-api-secret") != portal.knobs.anon_secret:
            return failure(401, "invalid_shared_secret")
        case _:
            return None


def create(portal: Portal, ask: Ask) -> Answer:
    """Make a free-tier identity; its credential is shown once."""
    if refused := _gate(portal, ask):
        return refused
    preview = ask.json.get("preview_full_connectors")
    guest = portal.store.add_guest(preview=preview if isinstance(preview, bool) else None)
    return json_answer(
        {
            "user_id": guest.user_id,
            "org_id": guest.org_id,
            "token": guest.token,
            "idle_ttl_days": portal.knobs.guest_idle_days,
        },
        201,
    )


def exchange(portal: Portal, ask: Ask) -> Answer:
    """Trade the credential for a short token."""
    if refused := _gate(portal, ask):
        return refused
    guest = portal.store.guest_of(str(ask.json.get("token", "")))
    if guest is None or guest.status in ("claimed", "retired"):
        return failure(404, "unknown_token")
    if guest.status == "locked":
        return failure(403, "account_locked")
    wants_apps = ask.json.get("purpose") == "connectors"
    checks = [] if wants_apps or guest.challenge_passed else _challenges(portal, ask, guest)
    if checks and portal.knobs.challenge == "required":
        return failure(
            428,
            "challenge_required",
            message="Please pass a short check.",
            challenges=checks,
            fallback_url=ask.base,
        )
    answer = _guest_tokens(portal, ask, guest, "connectors:invoke" if wants_apps else "inference:invoke")
    return json_answer({**answer, "challenges": checks} if checks else answer)


def _guest_tokens(portal: Portal, ask: Ask, guest: Guest, scope: str) -> dict[str, Any]:
    now = int(portal.now())
    access = portal.store.mint.jwt(
        {
            "sub": guest.user_id,
            "iat": now,
            "exp": now + portal.knobs.access_ttl,
            "scope": scope,
            "client_id": "nas-anonymous",
            "account_tier": "anonymous",
            "org_id": guest.org_id,
        }
    )
    return {
        "access_token": access,
        "token_type": "Bearer",
        "expires_in": portal.knobs.access_ttl,
        "user_id": guest.user_id,
        "org_id": guest.org_id,
        "inference_base_url": portal.knobs.welcome_url
        if portal.knobs.inference == "official"
        else f"{ask.base}/v1",
    }


def _challenges(portal: Portal, ask: Ask, guest: Guest) -> list[dict[str, Any]]:
    if portal.knobs.challenge == "off":
        return []
    return [
        {
            "type": "browser",
            "url": f"{ask.base}/check?user={guest.user_id}",
            "state": "needs_interaction",
            "required": portal.knobs.challenge == "required",
            "expires_in": 600,
            "interval": 2,
        }
    ]


def challenge_status(portal: Portal, ask: Ask) -> Answer:
    """How the browser check stands; a passed one reads `none`."""
    guest = portal.store.guest_of(str(ask.json.get("token", "")))
    if guest is None:
        return failure(404, "unknown_token")
    return json_answer({"status": "none" if guest.challenge_passed else "needs_interaction"})


def claim(portal: Portal, ask: Ask) -> Answer:
    """Hand a free-tier identity's apps to the bearer's account. A second claim of the same token reads `unknown_token`."""
    if refused := _gate(portal, ask):
        return refused
    claims = bearer_claims(portal, ask)
    account = portal.store.by_sub(str(claims.get("sub"))) if claims else None
    if claims is None or account is None:
        return failure(401, "invalid_token")
    token = ask.json.get("token")
    if not isinstance(token, str) or not token.startswith("anon_"):
        return failure(400, "invalid_request")
    if portal.knobs.claim_clients and claims.get("client_id") not in portal.knobs.claim_clients:
        return failure(403, "client_not_allowed")
    guest = portal.store.guest_of(token)
    if guest is None or guest.status == "claimed":
        return failure(404, "unknown_token")
    if guest.status == "retired":
        return failure(409, "already_retired")
    if guest.status == "locked" or account.locked:
        return failure(403, "account_locked")
    rows = portal.store.claim(guest, account)
    if portal.knobs.connectors_omitted:
        return json_answer({"status": "claimed"})
    return json_answer(
        {"status": "claimed", "connectors": rows, "cohort_carried": portal.knobs.cohort_carried}
    )


def connectors(portal: Portal, ask: Ask) -> Answer:
    """Connected apps of the bearer (on the live system: the tool-gateway's origin)."""
    claims = bearer_claims(portal, ask)
    if claims is None:
        return failure(401, "invalid_token")
    rows: list[dict[str, Any]] = [
        {
            "connector": row.connector,
            "enabled": True,
            "connected": row.status == "active",
            "connectionStatus": row.status,
            "statusReason": None,
            "disabledTools": [],
        }
        for row in portal.store.connections.get(str(claims.get("sub")), [])
    ]
    return json_answer({"connectors": rows, "nextCursor": None})
