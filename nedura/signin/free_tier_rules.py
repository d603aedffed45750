"""The free tier's decisions without IO: what a refusal means, when a mint may be tried again, which browser check is believed."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import attrs

from nedura.text import clean
from nedura.urls import Origin, origin_of

__all__ = ["FINAL_CODES", "Challenge", "Memo", "after_failure", "may_try", "read_challenge", "refusal_code"]

_LADDER: Final = (15.0, 60.0, 300.0)
PAUSED_AT_LEAST: Final = 60.0
BACKGROUND_TRIES: Final = 3

FINAL_CODES: Final = frozenset(
    {"anon_gate_closed", "anon_account_locked", "anon_signin_required", "anon_pow_required"}
)
"""Codes that no later attempt of this process can change."""

_BY_ERROR: Final[Mapping[tuple[int, str], str]] = MappingProxyType(
    {
        (404, "unknown_token"): "anon_credential_dead",
        (401, "invalid_shared_secret"): "anon_gate_closed",
        (403, "account_locked"): "anon_account_locked",
        (403, "anonymous_accounts_disabled"): "anon_gate_paused",
        (403, "circuit_open"): "anon_gate_paused",
        (403, "signin_required"): "anon_signin_required",
        (403, "access_denied"): "anon_signin_required",
        (428, "challenge_required"): "anon_challenge_required",
        (428, "pow_required"): "anon_pow_required",
        (428, "pow_invalid"): "anon_pow_required",
        (428, "pow_replayed"): "anon_pow_required",
        (503, "temporarily_disabled"): "anon_gate_paused",
    }
)
_BY_STATUS: Final[Mapping[int, str]] = MappingProxyType(
    {
        404: "anon_gate_closed",
        401: "anon_credential_dead",
        428: "anon_signin_required",
        429: "anon_rate_limited",
    }
)
"""(status, error) -> client code, then status alone; the rest is a server error (facts/signin.md 1.7)."""


def refusal_code(status: int, error: str) -> str:
    """The client code of an answer of the anonymous surface."""
    return _BY_ERROR.get((status, error)) or _BY_STATUS.get(status, "anon_server_error")


@attrs.frozen(kw_only=True)
class Memo:
    """The last failure to get a free tier, of one profile in this process.

    Attributes:
        code: client code.
        tries: failures in a row.
        until: monotonic seconds before which nothing is tried.
    """

    code: str = ""
    tries: int = 0
    until: float = float("-inf")


def after_failure(memo: Memo | None, code: str, retry_after: float | None, now: float) -> Memo:
    """Remember a failure: the server's own wait, at least a minute for a pause, else 15 s, 1 min, 5 min.

    Args:
        memo: what was remembered.
        code: client code of the failure.
        retry_after: seconds the server asked for.
        now: monotonic seconds.
    """
    tries = (memo.tries if memo else 0) + 1
    wait = _LADDER[min(tries, len(_LADDER)) - 1] if retry_after is None else retry_after
    if code == "anon_gate_paused":
        wait = max(wait, PAUSED_AT_LEAST)
    return Memo(code=code, tries=tries, until=now + wait)


def may_try(memo: Memo | None, now: float, *, background: bool) -> bool:
    """Whether a mint may be tried now. A final code ends it for this process, and a background caller gives up after three."""
    if memo is None:
        return True
    if memo.code in FINAL_CODES or (background and memo.tries > BACKGROUND_TRIES):
        return False
    return now >= memo.until


@attrs.frozen(kw_only=True)
class Challenge:
    """A check in the browser that stands before a token.

    Attributes:
        url: page to open, on the portal itself.
        required: False: it can be passed over.
        expires_in: seconds it is good for, 30 to 900.
        interval: seconds between two looks, 1 to 5.
        message: what the portal says, cleaned.
    """

    url: str
    required: bool = True
    expires_in: float = 600.0
    interval: float = 2.0
    message: str = ""


def _clamped(value: object, low: float, high: float, default: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        return default
    return min(max(low, value), high)


def read_challenge(fields: Mapping[str, Any], portal: Origin) -> Challenge | None:
    """The browser check of an answer; None when there is none that can be trusted (another origin, another type)."""
    listed = fields.get("challenges")
    for row in listed if isinstance(listed, list) else ():
        if not isinstance(row, Mapping) or row.get("type") != "browser":
            continue
        url = row.get("url")
        if isinstance(url, str) and origin_of(url) == portal:
            return Challenge(
                url=url,
                required=row.get("required") is not False,
                expires_in=_clamped(row.get("expires_in"), 30, 900, 600),
                interval=_clamped(row.get("interval"), 1, 5, 2),
                message=clean(fields.get("message"), 300),
            )
    return None
