"""The control socket's lines: one JSON request in, one JSON answer out, then the server closes (facts/runtime.md 3). No IO."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

import attrs

from nedura.errors import RecordCorrupt
from nedura.records import parse_json

__all__ = [
    "ANSWER_LIMIT",
    "PROTOCOL",
    "REQUEST_LIMIT",
    "BadRequest",
    "Request",
    "encode_request",
    "failure",
    "parse_answer",
    "parse_request",
    "success",
    "unknown_verb",
]

PROTOCOL: Final = 1
"""Sent both ways; neither side rejects another number. New verbs are discovered by `supported_verbs`."""
REQUEST_LIMIT: Final = 64 * 1024
ANSWER_LIMIT: Final = 512 * 1024


class BadRequest(ValueError):
    """Raised for a line that is no request; its text goes back to the client."""


@attrs.frozen(kw_only=True)
class Request:
    """One request.

    Attributes:
        verb: what is asked.
        params: its arguments.
        id: echoed in the answer; None when none was given.
    """

    verb: str
    params: Mapping[str, Any] = attrs.field(factory=dict)
    id: str | int | None = None


def encode_request(verb: str, params: Mapping[str, Any] | None = None) -> bytes:
    """A request line."""
    body: dict[str, Any] = {"verb": verb, "id": 1, "protocol": PROTOCOL}
    if params:
        body["params"] = dict(params)
    return json.dumps(body, separators=(",", ":")).encode() + b"\n"


def parse_request(line: bytes) -> Request:
    """Read a request line.

    Raises:
        BadRequest: it is none.
    """
    try:
        body = parse_json(line, "request")
    except RecordCorrupt as error:
        raise BadRequest("bad_json") from error
    if not isinstance(body, dict):
        raise BadRequest("not_an_object")
    verb, params, ident = body.get("verb"), body.get("params", {}), body.get("id")
    if not isinstance(verb, str) or not verb:
        raise BadRequest("no_verb")
    if not isinstance(params, dict):
        raise BadRequest("bad_params")
    return Request(verb=verb, params=params, id=ident if isinstance(ident, (str, int)) else None)


def _answer(body: dict[str, Any], ident: str | int | None) -> bytes:
    if ident is not None:
        body["id"] = ident
    try:
        line = json.dumps(body, separators=(",", ":")).encode() + b"\n"
    except (TypeError, ValueError, RecursionError):
        return failure("unserialisable", ident)
    return line if len(line) <= ANSWER_LIMIT else failure("too_large", ident)


def success(result: Mapping[str, Any], ident: str | int | None = None) -> bytes:
    """A positive answer line."""
    return _answer({"ok": True, "protocol": PROTOCOL, "result": dict(result)}, ident)


def failure(error: str, ident: str | int | None = None) -> bytes:
    """A negative answer line."""
    return _answer({"ok": False, "error": error, "protocol": PROTOCOL}, ident)


def unknown_verb(supported: Iterable[str], ident: str | int | None = None) -> bytes:
    """The answer to a verb this version does not know."""
    body = {
        "ok": False,
        "error": "unknown_verb",
        "supported_verbs": sorted(supported),
        "protocol": PROTOCOL,
    }
    return _answer(body, ident)


def parse_answer(line: bytes) -> dict[str, Any] | None:
    """The result of a positive answer; None for anything else."""
    try:
        body = parse_json(line, "answer")
    except RecordCorrupt:
        return None
    if not isinstance(body, dict) or body.get("ok") is not True:
        return None
    result = body.get("result")
    return result if isinstance(result, dict) else None
