"""Who is signed in: the shapes of one account or one free-tier identity, and how two of them are compared. No IO."""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import Enum
from typing import Any, Final, TypeAlias

from nedura.clock import iso, parse_iso
from nedura.signin.tokens import expiry_of, subject_of

__all__ = [
    "ACCOUNT_METHOD",
    "GUEST_METHOD",
    "Entry",
    "Key",
    "Kind",
    "account_entry",
    "auth_error",
    "ends_soon",
    "family_end",
    "identity_key",
    "is_guest",
    "kind_of",
    "obtained_at",
    "quarantined",
    "token_times",
]

Entry: TypeAlias = Mapping[str, Any]
"""`providers.nous` of an auth.json, or the body of the shared store (facts/signin.md 2.2 to 2.4)."""

Key: TypeAlias = tuple[str, str]
"""An identity that can be compared: kind and its stable name."""

ACCOUNT_METHOD: Final = "oauth_device_code"
GUEST_METHOD: Final = "anonymous"
SECRET_FIELDS: Final = (
    "access_token", "refresh_token", "agent_key", "agent_key_id", "agent_key_expires_at", "agent_key_expires_in",
    "agent_key_reused", "agent_key_obtained_at", "anon_token", "connectors_token",
)  # fmt: skip


class Kind(Enum):
    """What an entry is."""

    NONE = "none"
    GUEST = "guest"
    ACCOUNT = "account"
    DEAD = "dead"  # an account whose grant is gone: only a new sign-in helps


def _text(entry: Entry, name: str) -> str:
    value = entry.get(name)
    return value if isinstance(value, str) else ""


def is_guest(entry: Entry | None) -> bool:
    """Whether an entry is a free-tier identity: its method is the only test."""
    return entry is not None and entry.get("auth_method") == GUEST_METHOD


def kind_of(entry: Entry | None, now: float) -> Kind:
    """Judge an entry. An account that can neither call nor refresh is dead: its tokens' presence proves nothing (#18072)."""
    if not entry:
        return Kind.NONE
    if is_guest(entry):
        return Kind.GUEST if _text(entry, "anon_token") else Kind.NONE
    if _text(entry, "refresh_token"):
        return Kind.ACCOUNT
    access = _text(entry, "access_token")
    if access:
        expiry = expiry_of(access) or parse_iso(_text(entry, "expires_at"))
        return Kind.DEAD if expiry is not None and expiry <= now else Kind.ACCOUNT
    return Kind.DEAD if isinstance(entry.get("last_auth_error"), Mapping) else Kind.NONE


def identity_key(entry: Entry | None) -> Key | None:
    """The identity for comparing: a free tier's credential or an account's `sub`; None equals nothing, not even itself."""
    if not entry:
        return None
    if is_guest(entry) or (_text(entry, "anon_token") and not _text(entry, "refresh_token")):
        token = _text(entry, "anon_token")
        return ("guest", token) if token else None
    access = entry.get("access_token")
    subject = subject_of(access) if access else _text(entry, "account_sub")
    return ("account", subject) if subject else None


def obtained_at(entry: Entry | None) -> float:
    """When a token set was obtained, unix seconds; minus infinity when it does not say."""
    moment = parse_iso(_text(entry, "obtained_at")) if entry else None
    return -math.inf if moment is None else moment


FAMILY_SECONDS: Final = 30 * 86400.0
"""How long a sign-in lasts from its approval, whatever is renewed meanwhile (facts/signin.md 1.3, #117461)."""

FAMILY_WARNING: Final = 5 * 86400.0
"""How long before that people are told."""


def family_end(entry: Entry | None) -> float | None:
    """When a sign-in ends by itself, unix seconds; None for a free tier and for logins that do not say when they began."""
    began = parse_iso(_text(entry, "signed_in_at")) if entry and not is_guest(entry) else None
    return None if began is None else began + FAMILY_SECONDS


def ends_soon(entry: Entry | None, now: float) -> bool:
    """Whether a sign-in is in its last days and people should sign in again at a time of their own choice."""
    end = family_end(entry)
    return end is not None and now < end <= now + FAMILY_WARNING


def token_times(access_token: str, expires_in: object, now: float) -> dict[str, Any]:
    """The time fields of a fresh token set. A server's absurd lifetime is replaced by the token's own, or an hour."""
    seconds: float | None = None
    if isinstance(expires_in, int | float) and not isinstance(expires_in, bool):
        seconds = float(expires_in) if 0 < expires_in <= 366 * 86400 else None
    if seconds is None:
        expiry = expiry_of(access_token)
        seconds = expiry - now if expiry is not None and now < expiry < now + 366 * 86400 else 3600.0
    return {"obtained_at": iso(now), "expires_at": iso(now + seconds), "expires_in": int(seconds)}


def account_entry(
    answer: Mapping[str, Any],
    *,
    portal_url: str,
    inference_url: str,
    client_id: str,
    scope: str,
    tls: Mapping[str, Any],
    now: float,
) -> dict[str, Any]:
    """Build the stored account of a token answer (facts/signin.md 2.2).

    Args:
        answer: the token endpoint's JSON; its access token was already checked to be text.
        portal_url: the portal that issued it.
        inference_url: the checked model address.
        client_id: OAuth client.
        scope: what was asked for, used when the answer names none.
        tls: explicit trust choices to keep.
        now: unix seconds.
    """
    access = str(answer["access_token"])
    entry: dict[str, Any] = {
        "auth_method": ACCOUNT_METHOD,
        "portal_base_url": portal_url,
        "inference_base_url": inference_url,
        "client_id": client_id,
        "scope": _text(answer, "scope") or scope,
        "token_type": _text(answer, "token_type") or "Bearer",
        "access_token": access,
        "refresh_token": _text(answer, "refresh_token") or None,
        **token_times(access, answer.get("expires_in"), now),
        "signed_in_at": iso(now),
        "tls": dict(tls),
    }
    return entry | {
        "agent_key": access,
        "agent_key_id": None,
        "agent_key_expires_at": entry["expires_at"],
        "agent_key_expires_in": entry["expires_in"],
        "agent_key_reused": False,
        "agent_key_obtained_at": entry["obtained_at"],
    }


def quarantined(entry: Entry, *, code: str, message: str, reason: str, now: float) -> dict[str, Any]:
    """An account after a terminal answer: every token gone, the cause kept, a new sign-in required (facts/signin.md 9).

    Its `sub` stays as `account_sub`, so that a new sign-in of the same account in a sibling profile heals this one too.
    """
    kept = {name: value for name, value in entry.items() if name not in SECRET_FIELDS}
    key = identity_key(entry)
    if key is not None and key[0] == "account":
        kept["account_sub"] = key[1]
    return kept | {"last_auth_error": auth_error(code, message, reason, now)}


def auth_error(code: str, message: str, reason: str, now: float) -> dict[str, Any]:
    """The stored cause of a login that only a new sign-in heals."""
    return {
        "provider": "nous",
        "code": code,
        "message": message,
        "reason": reason,
        "relogin_required": True,
        "at": iso(now),
    }
