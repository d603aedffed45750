"""Device code, token and revocation endpoints (facts/signin.md 1.1-1.3, RFC 8628, RFC 6749 6, RFC 7009)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from nedura.testing.portal.exchange import Answer, failure, json_answer

if TYPE_CHECKING:
    from nedura.testing.portal.core import Portal
    from nedura.testing.portal.exchange import Ask
    from nedura.testing.portal.state import DeviceGrant, Family

__all__ = ["GRANTS", "device_code", "revoke", "token", "token_set"]

GRANTS: Final = {
    "urn:ietf:params:oauth:grant-type:device_code": "token.device",
    "refresh_token": "token.refresh",
}
_EARLY: Final = 0.05  # seconds a poll may arrive early: clock granularity, not haste


def device_code(portal: Portal, ask: Ask) -> Answer:
    """Hand out a code."""
    form, knobs = ask.form, portal.knobs
    if not form.get("client_id"):
        return failure(400, "invalid_client", "client_id is missing")
    grant = portal.store.add_grant(
        client_id=form["client_id"],
        scope=form.get("scope", ""),
        now=portal.now(),
        life=knobs.expires_in,
        gap=knobs.interval,
    )
    if knobs.auto_approve:
        portal.approve(grant.user_code, knobs.auto_approve)
    link = knobs.verification_uri or f"{ask.base}{knobs.verification_path}"
    answer: dict[str, Any] = {
        "device_code": grant.device_code,
        "user_code": grant.user_code,
        "verification_uri": link,
        "verification_uri_complete": f"{link}?user_code={grant.user_code}",
        "expires_in": knobs.expires_in,
        "interval": knobs.interval,
    }
    if knobs.omit_interval:
        del answer["interval"]
    if knobs.omit_complete_uri:
        del answer["verification_uri_complete"]
    return json_answer(answer)


def token(portal: Portal, ask: Ask) -> Answer:
    """The token endpoint, by grant."""
    match GRANTS.get(ask.form.get("grant_type", "")):
        case "token.device":
            return _poll(portal, ask)
        case "token.refresh":
            return _refresh(portal, ask)
        case _:
            return failure(400, "unsupported_grant_type")


def _poll(portal: Portal, ask: Ask) -> Answer:
    form, now = ask.form, portal.now()
    grant = next((g for g in portal.store.grants if g.device_code == form.get("device_code")), None)
    if grant is None or grant.status == "redeemed" or grant.client_id != form.get("client_id"):
        return failure(400, "invalid_grant", "unknown device code")
    previous, grant.last_poll = grant.last_poll, now
    if now >= grant.expires:
        return failure(400, "expired_token")
    if portal.knobs.strict_gap and previous is not None and now - previous < grant.gap - _EARLY:
        grant.gap += 5
        return failure(400, "slow_down")
    if grant.status == "declined":
        return failure(400, "access_denied")
    if grant.status == "pending" or grant.account is None:
        return failure(400, "authorization_pending")
    return json_answer(_redeem(portal, grant, ask.base))


def _redeem(portal: Portal, grant: DeviceGrant, base: str) -> dict[str, Any]:
    assert grant.account is not None
    grant.status = "redeemed"
    family = portal.store.add_family(
        grant.account,
        client_id=grant.client_id,
        scope=portal.knobs.granted_scope or grant.scope or "inference:invoke",
        now=grant.created,  # the family's life counts from the approval, rotation never extends it (#117461)
        life=portal.knobs.family_ttl,
    )
    return token_set(portal, family, base)


def _refresh(portal: Portal, ask: Ask) -> Answer:
    # The token travels in a header, never in the body (facts/signin.md 1.3).
    store, refresh = portal.store, ask.headers.get("x-nous-refresh-token", "")
    family = store.family_of(refresh)
    if family is None:
        return failure(400, "invalid_grant", "unknown refresh token")
    if refresh in family.spent:
        store.reuse += 1
        if portal.knobs.reuse_detection:
            family.revoked = family.revoked or "reuse"
        return failure(400, "refresh_token_reused", "refresh token reuse detected, session revoked")
    if family.revoked or portal.now() >= family.expires:
        return failure(400, "invalid_grant", "the session has ended")
    if family.client_id != ask.form.get("client_id"):
        return failure(401, "invalid_client")
    family.redeemed += 1
    if portal.knobs.rotation:
        family.spent.add(family.current)
        family.current = store.mint.opaque("nrt_")
    answer = token_set(portal, family, ask.base)
    if not portal.knobs.rotation:
        del answer["refresh_token"]
    return json_answer(answer)


def token_set(portal: Portal, family: Family, base: str = "") -> dict[str, Any]:
    """The token answer for a family as it stands."""
    knobs, account, now = portal.knobs, family.account, portal.now()
    claims = {
        "iss": base,
        "sub": account.sub,
        "email": account.email,
        "iat": int(now),
        "exp": int(now + knobs.access_ttl),
        "scope": family.scope,
        "client_id": family.client_id,
        "org_id": f"nas_org:{account.sub}",
        "product_id": "nous",
        "nous_client": family.client_id,
        "paid_access": account.tier == "paid",
        "subscription_tier": 1 if account.tier == "paid" else 0,
        "fam": family.number,
        **knobs.jwt_claims,
    }
    access = portal.store.mint.jwt({name: value for name, value in claims.items() if value is not None})
    return {
        "access_token": access,
        "refresh_token": family.current,
        "token_type": "Bearer",
        "expires_in": knobs.access_ttl,
        "scope": family.scope,
        "inference_base_url": knobs.inference_url if knobs.inference == "official" else f"{base}/v1",
    }


def revoke(portal: Portal, ask: Ask) -> Answer:
    """End the family of a refresh or access token. An unknown token is fine too (RFC 7009 2.2)."""
    presented = ask.form.get("token", "") or ask.headers.get("x-nous-refresh-token", "")
    family = portal.store.family_of(presented)
    if family is None:
        number = (portal.store.mint.claims(presented) or {}).get("fam")
        family = next((f for f in portal.store.families if f.number == number), None)
    if family is not None:
        family.revoked = family.revoked or "revoked"
    return json_answer({})
