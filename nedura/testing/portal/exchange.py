"""A request and an answer as plain data, so that the portal's rules need neither a socket nor a web framework."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

import attrs

__all__ = ["Answer", "Ask", "failure", "html", "json_answer"]


@attrs.frozen(kw_only=True)
class Ask:
    """A request. Header names are lower case.

    Attributes:
        base: the portal's own address as the client used it, without a trailing slash.
    """

    method: str
    path: str
    base: str
    query: Mapping[str, str] = attrs.field(factory=dict)
    headers: Mapping[str, str] = attrs.field(factory=dict)
    body: bytes = b""

    @property
    def form(self) -> dict[str, str]:
        """The body as form fields; an empty field counts as left out (RFC 8628 3.1)."""
        return dict(parse_qsl(self.body.decode("utf-8", "replace")))

    @property
    def json(self) -> dict[str, Any]:
        """The body as a JSON object; empty when it is none."""
        try:
            found = json.loads(self.body or b"{}")
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}

    @property
    def bearer(self) -> str:
        """The bearer token; empty when there is none."""
        scheme, _, token = self.headers.get("authorization", "").partition(" ")
        return token.strip() if scheme.lower() == "bearer" else ""


@attrs.frozen(kw_only=True)
class Answer:
    """An answer. `pieces` are sent one by one with `pause` seconds between them.

    Attributes:
        error: JSON error code inside the body, for the log.
        drop: close the connection in place of an answer.
    """

    status: int = 200
    headers: Mapping[str, str] = attrs.field(factory=dict)
    pieces: tuple[bytes, ...] = ()
    pause: float = 0.0
    error: str = ""
    drop: bool = False

    @property
    def body(self) -> bytes:
        """The whole body."""
        return b"".join(self.pieces)


def json_answer(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Answer:
    """A JSON answer."""
    error = value.get("error") if isinstance(value, dict) else ""
    return Answer(
        status=status,
        headers={"content-type": "application/json", "cache-control": "no-store", **(headers or {})},
        pieces=(json.dumps(value).encode(),),
        error=error if isinstance(error, str) else "",
    )


def failure(
    status: int, error: str, text: str = "", headers: Mapping[str, str] | None = None, **more: Any
) -> Answer:
    """A refusal in the portal's form, `{error, error_description}`."""
    described = {"error_description": text} if text else {}
    return json_answer({"error": error, **described, **more}, status, headers)


def html(text: str, status: int = 200) -> Answer:
    """A page that no other page may frame."""
    headers = {
        "content-type": "text/html; charset=utf-8",
        "cache-control": "no-store",
        "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'",
    }
    return Answer(status=status, headers=headers, pieces=(text.encode(),))
