"""What an answer says, decided without IO: its body within a bound, its error code, and no secret of its own request.

`nedura.http` moves the bytes; an answer may be at most 1 MiB after decoding (threats.md 8).
"""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import AsyncIterable, Iterable, Iterator, Mapping
from typing import Any, Final

import attrs

from nedura.codes import OTHER, server_code
from nedura.errors import PortalError
from nedura.retry import parse_retry_after
from nedura.text import Secret, clean, redact

__all__ = [
    "MAX_BODY",
    "Answer",
    "Json",
    "answer_of",
    "body_or_status",
    "read_body",
    "secrets_of",
    "without_echo",
]

MAX_BODY: Final = 1024 * 1024
"""Largest decoded answer in bytes."""

TEXT_KEPT: Final = 200
"""How much of a foreign answer may end up in a message, in characters, cleaned."""

_TELLING: Final = 12
"""From so many characters on, a piece of a secret counts as the secret."""

Json = Any


@attrs.frozen(kw_only=True)
class Answer:
    """One complete answer.

    Attributes:
        status: HTTP status.
        headers: lower-case name -> value; repeated headers are joined with a comma.
        body: the decoded JSON, None when the body is no JSON.
        text: at most 200 cleaned, redacted characters of the body, for messages.
        received_at: unix seconds at which the last byte was there.
    """

    status: int
    headers: Mapping[str, str] = attrs.field(factory=dict)
    body: Json = attrs.field(default=None, repr=False)
    text: str = attrs.field(default="", repr=False)
    received_at: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether the status is 2xx."""
        return 200 <= self.status < 300

    @property
    def fields(self) -> Mapping[str, Any]:
        """The body when it is a JSON object, else an empty one."""
        return self.body if isinstance(self.body, Mapping) else {}

    @property
    def retry_after(self) -> float | None:
        """Seconds that the answer asks to wait; None when it names no sane future time."""
        return parse_retry_after(self.headers.get("retry-after", ""), self.received_at or time.time())

    @property
    def error(self) -> str:
        """The answer's own error code when it has the form of one, `other` when not; empty when it has none."""
        return server_code(self.fields.get("error"))


def secrets_of(*values: object) -> Iterator[str]:
    """Every secret that a request carries."""
    for value in values:
        if isinstance(value, Secret):
            yield value.reveal()
        elif isinstance(value, Mapping):
            yield from secrets_of(*value.values())
        elif isinstance(value, list | tuple):
            yield from secrets_of(*value)


def without_echo(answer: Answer, secrets: Iterable[str]) -> Answer:
    """The answer with no secret of its own request in what is logged or told: its error code and its text."""
    sent = [secret for secret in secrets if secret]
    code = answer.fields.get("error")
    if isinstance(code, str) and any(_echoes(code, secret) for secret in sent):
        answer = attrs.evolve(answer, body={**answer.fields, "error": OTHER})
    if any(secret[:_TELLING] in answer.text for secret in sent):
        answer = attrs.evolve(answer, text="")
    return answer


def _echoes(code: str, secret: str) -> bool:
    return code == secret or (len(code) >= _TELLING and code in secret) or secret[:_TELLING] in code


def answer_of(status: int, headers: Iterable[tuple[str, str]], data: bytes) -> Answer:
    """The answer whose last byte has just come."""
    return Answer(
        status=status,
        headers={name.lower(): value for name, value in headers},
        body=_decode(data),
        text=redact(clean(data[:4096].decode("utf-8", "replace"), TEXT_KEPT)),
        received_at=time.time(),
    )


async def body_or_status(status: int, encoding: str, chunks: AsyncIterable[bytes], limit: int) -> bytes:
    """`read_body`; a refusal says enough by status and headers, so a body of it that cannot be used counts as none."""
    try:
        return await read_body(status, encoding, chunks, limit)
    except PortalError:
        if status < 400:
            raise
        return b""


async def read_body(status: int, encoding: str, chunks: AsyncIterable[bytes], limit: int) -> bytes:
    """The decoded body, at most `limit` bytes; compressed answers are inflated step by step, never past the limit.

    Raises:
        PortalError: it is larger, damaged, or packed in another way; whatever `chunks` raises passes.
    """
    packed = encoding.strip().lower()
    inflate = None
    if packed in ("gzip", "x-gzip", "deflate"):
        inflate = zlib.decompressobj(wbits=47)  # gzip or zlib, told apart by its head
    elif packed not in ("", "identity"):
        raise PortalError("The answer is packed in a way that was not asked for.", status=status)
    data = bytearray()
    async for chunk in chunks:
        try:
            data += inflate.decompress(chunk, limit + 1 - len(data)) if inflate else chunk
        except zlib.error as error:
            raise PortalError("The answer is damaged.", status=status) from error
        if len(data) > limit:
            raise PortalError("The answer is larger than it may be.", status=status, error="too_large")
    return bytes(data)


def _decode(data: bytes) -> Json:
    try:
        return json.loads(data.decode("utf-8-sig"), parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        return None
