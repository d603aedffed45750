"""JWT-shaped tokens of the development portal (facts/signin.md 1.10), signed so that the portal knows its own."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
from collections.abc import Mapping
from typing import Any, Final

import attrs

__all__ = ["TokenMint", "user_code"]

_CODE_LETTERS: Final = "BCDFGHJKLMNPQRSTVWXZ"  # RFC 8628 6.1: base 20, no vowels


def user_code() -> str:
    """A code for a person to type: `WXYZ-ABCD`."""
    letters = [secrets.choice(_CODE_LETTERS) for _ in range(8)]
    return "".join(letters[:4]) + "-" + "".join(letters[4:])


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


@attrs.define
class TokenMint:
    """Makes tokens and recognises them; remembers every secret it ever made for needle tests."""

    key: bytes = attrs.field(factory=lambda: secrets.token_bytes(32))
    issued: list[str] = attrs.field(factory=list)

    def opaque(self, prefix: str) -> str:
        """A random credential with a recognisable prefix."""
        value = f"{prefix}{secrets.token_urlsafe(24)}"
        self.issued.append(value)
        return value

    def jwt(self, claims: Mapping[str, Any]) -> str:
        """A signed three-part token."""
        head = _encode(json.dumps({"alg": "HS256", "typ": "JWT"}, separators=(",", ":")).encode())
        body = _encode(json.dumps({**claims, "jti": secrets.token_hex(8)}, separators=(",", ":")).encode())
        token = f"{head}.{body}.{self._sign(f'{head}.{body}')}"
        self.issued.append(token)
        return token

    def claims(self, token: str) -> dict[str, Any] | None:
        """Claims of a token of ours; None for any other text."""
        head, _, rest = token.partition(".")
        body, _, signature = rest.partition(".")
        if not hmac.compare_digest(
            self._sign(f"{head}.{body}").encode(), signature.encode("utf-8", "replace")
        ):
            return None
        found = json.loads(_decode(body))
        return found if isinstance(found, dict) else None

    def _sign(self, text: str) -> str:
        return _encode(hmac.new(self.key, text.encode("utf-8", "replace"), hashlib.sha256).digest())
