"""Tokens for tests."""

from __future__ import annotations

import base64
import json
from typing import Any

NOW = 1_800_000_000.0


def jwt(sub: str | None = "acct:1", *, life: float = 3600, now: float = NOW, **claims: Any) -> str:
    """An unsigned JWT as the portal would give it."""
    body: dict[str, Any] = {"exp": int(now + life), "scope": "inference:invoke", "email": "ada@example.test"}
    if sub is not None:
        body["sub"] = sub
    raw = json.dumps(body | claims).encode()
    return "e30." + base64.urlsafe_b64encode(raw).decode().rstrip("=") + ".c2ln"


def account(
    sub: str | None = "acct:1", *, at: float = NOW, refresh: str = "rt-1", **more: Any
) -> dict[str, Any]:
    """A stored account."""
    from nedura.clock import iso

    return {
        "auth_method": "oauth_device_code",
        "portal_base_url": "https://portal.nousresearch.com",
        "inference_base_url": "https://inference-api.nousresearch.com/v1",
        "client_id": "hermes-cli",
        "scope": "inference:invoke",
        "token_type": "Bearer",
        "access_token": jwt(sub, now=at),
        "refresh_token": refresh,
        "obtained_at": iso(at),
        "expires_at": iso(at + 3600),
        "expires_in": 3600,
        **more,
    }


def guest(token: str = "anon_" + "a" * 24, *, at: float = NOW) -> dict[str, Any]:
    """A stored free-tier identity."""
    from nedura.clock import iso

    return {
        "auth_method": "anonymous",
        "account_tier": "anonymous",
        "anon_token": token,
        "client_id": "nas-anonymous",
        "portal_base_url": "https://portal.nousresearch.com",
        "user_id": "nas_user:1",
        "org_id": "nas_org:1",
        "idle_ttl_days": 14,
        "obtained_at": iso(at),
    }
