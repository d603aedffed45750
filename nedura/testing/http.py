"""httpx transports without a socket: scripted answers, or a development portal in the same process."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs
import httpx

from nedura.testing.portal.exchange import Ask

if TYPE_CHECKING:
    from nedura.testing.portal.core import Portal

__all__ = ["PortalTransport", "Scripted", "ScriptedTransport", "lost", "reply"]


@attrs.frozen(kw_only=True)
class Scripted:
    """One answer of a script.

    Attributes:
        status, headers, body: the answer; a body that is not bytes is sent as JSON.
        raises: transport error in place of an answer.
        hold: awaited before the answer leaves, for a server that stalls.
    """

    status: int = 200
    headers: Mapping[str, str] = attrs.field(factory=dict)
    body: Any = b""
    raises: type[httpx.TransportError] | None = None
    hold: Callable[[], Any] | None = None


def reply(body: Any = b"", status: int = 200, **headers: str) -> Scripted:
    """A scripted answer; underscores in header names become dashes (`retry_after="5"`)."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Scripted(status=status, headers=named, body=body)


def lost(error: type[httpx.TransportError] = httpx.ReadTimeout) -> Scripted:
    """An answer that never comes."""
    return Scripted(raises=error)


class ScriptedTransport(httpx.AsyncBaseTransport):
    """Answers from a list, in order; the last one repeats. Every request is kept in `requests`.

    Args:
        script: the answers, or one list a path (`{"/api/oauth/token": [...]}`).
    """

    def __init__(self, script: Sequence[Scripted] | Mapping[str, Sequence[Scripted]]) -> None:
        scripts = script if isinstance(script, Mapping) else {"": script}
        self._scripts = {path: list(answers) for path, answers in scripts.items()}
        self.requests: list[httpx.Request] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Answer one request.

        Raises:
            AssertionError: no script covers its path.
        """
        await request.aread()
        self.requests.append(request)
        answers = self._scripts.get(request.url.path, self._scripts.get("", []))
        if not answers:
            raise AssertionError(f"no script for {request.url.path}")
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if answer.hold is not None:
            await answer.hold()
        if answer.raises is not None:
            raise answer.raises("scripted", request=request)
        if isinstance(answer.body, bytes):
            return _streamed(request, answer.status, answer.headers, answer.body)
        headers = {"content-type": "application/json", **answer.headers}
        return _streamed(request, answer.status, headers, json.dumps(answer.body).encode())


def _streamed(request: httpx.Request, status: int, headers: Mapping[str, str], body: bytes) -> httpx.Response:
    """A response whose body is still to be read, as one from a socket is."""
    return httpx.Response(status, headers=dict(headers), stream=httpx.ByteStream(body), request=request)


class PortalTransport(httpx.AsyncBaseTransport):
    """Serves a development portal to an httpx client in the same process, with any host name.

    Args:
        portal: the portal.
    """

    def __init__(self, portal: Portal) -> None:
        self.portal = portal

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Answer one request.

        Raises:
            httpx.ReadError: the portal dropped the connection.
        """
        body = await request.aread()
        ask = Ask(
            method=request.method,
            path=request.url.path,
            base=f"{request.url.scheme}://{request.url.netloc.decode()}",
            query=dict(request.url.params),
            headers={name.lower(): value for name, value in request.headers.items()},
            body=body,
        )
        answer = await self.portal.handle(ask)
        if answer.drop:
            raise httpx.ReadError("the portal dropped the connection", request=request)
        return _streamed(request, answer.status, answer.headers, answer.body)
