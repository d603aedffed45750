"""What a token says about itself. Claims are read for the user's sake only; a client never checks a signature (facts/signin.md 1.10)."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import math
import re
from collections.abc import Mapping
from typing import Any, Final

from nedura.text import clean

__all__ = [
    "INVOKE_SCOPE",
    "MIN_LIFE",
    "claims_of",
    "email_of",
    "expiry_of",
    "fingerprint",
    "finite",
    "is_plain",
    "is_usable",
    "scopes_of",
    "subject_of",
]

INVOKE_SCOPE: Final = "inference:invoke"
MIN_LIFE: Final = 120.0
"""Seconds that must be left for a token to be worth using."""

_PLAIN: Final = re.compile(r"[\x21-\x7e]{1,65536}")
_EMAIL: Final = re.compile(
    r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63})+"
)


def finite(value: object) -> float | None:
    """A number from outside as a float; None for anything else, also for infinities and integers past every float."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def is_plain(token: object) -> bool:
    """Whether a value can be sent as a token: printable ASCII without blanks, at most 64 Ki characters."""
    return isinstance(token, str) and _PLAIN.fullmatch(token) is not None


def claims_of(token: object) -> Mapping[str, Any]:
    """The claims of a three-part JWT; empty for anything else."""
    if not isinstance(token, str) or token.count(".") != 2 or len(token) > 64 * 1024:
        return {}
    part = token.split(".")[1]
    try:
        decoded = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (ValueError, binascii.Error, RecursionError):
        return {}
    return decoded if isinstance(decoded, Mapping) else {}


def subject_of(token: object) -> str:
    """The account's identity, the `sub` claim; empty when there is none that can be used."""
    value = claims_of(token).get("sub")
    if not isinstance(value, str) or not 0 < len(value) <= 256 or clean(value, 256) != value:
        return ""
    return value


def email_of(token: object) -> str:
    """The `email` claim when it has the plain form of an address, else empty: it is shown in chats."""
    value = claims_of(token).get("email")
    return value if isinstance(value, str) and len(value) <= 254 and _EMAIL.fullmatch(value) else ""


def scopes_of(token: object) -> frozenset[str]:
    """Scopes named by `scope` or `scp`: a string with spaces or commas, or a list."""
    found = claims_of(token)
    value = found.get("scope", found.get("scp"))
    if isinstance(value, str):
        return frozenset(re.split(r"[\s,]+", value.strip())) - {""}
    if isinstance(value, list):
        return frozenset(item for item in value if isinstance(item, str))
    return frozenset()


def expiry_of(token: object) -> float | None:
    """The `exp` claim in unix seconds; None when it names no sane time."""
    value = claims_of(token).get("exp")
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 < value < 1e11 else None  # also false for NaN and for what no float can hold


def is_usable(token: object, now: float) -> bool:
    """Whether a token may call the model route: a JWT with the invoke scope that lives for more than two minutes."""
    expiry = expiry_of(token)
    return expiry is not None and expiry - now > MIN_LIFE and INVOKE_SCOPE in scopes_of(token)


def fingerprint(secret: str) -> str:
    """First 12 hex digits of SHA-256: names a credential in a log without showing it."""
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()[:12]
