"""The one place that speaks HTTP: clients, proxies, limits of size and time, no redirects, and logs without secrets.

`open_client` gives a small `Client`; tests hand it a transport (`nedura.testing.http`). Every request has one deadline for everything
from the look-up to the last byte, and an answer may be at most 1 MiB after decoding (threats.md 8).
"""

from __future__ import annotations

import asyncio
import importlib
import json as _json
import logging
import os
import platform
import ssl
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

import httpx

from nedura._version import __version__
from nedura.answers import MAX_BODY, Answer, Json, answer_of, body_or_status, secrets_of, without_echo
from nedura.errors import ConfigError, PortalError, Unreachable, UntrustedServer
from nedura.proxies import matches_host, proxies_from
from nedura.text import Secret, clean, redact
from nedura.trust import Trust, resolve_trust
from nedura.urls import is_loopback, origin_of

__all__ = [
    "MAX_BODY",
    "Answer",
    "Client",
    "Trust",
    "open_client",
    "resolve_trust",
    "user_agent",
]

DEFAULT_DEADLINE: Final = 15.0
"""Seconds for one request (facts/signin.md 1)."""

log = logging.getLogger("nedura.http")

SecretText = str | Secret


def user_agent(product: str = "nedura", surface: str = "") -> str:
    """Product, version, surface, platform and machine (facts/signin.md 1.7)."""
    inside = "; ".join(part for part in (surface, platform.system().lower(), platform.machine()) if part)
    return f"{product}/{__version__} ({inside})"


def _reveal(value: SecretText) -> str:
    return value.reveal() if isinstance(value, Secret) else value


def _revealed(value: Any) -> Any:
    match value:
        case Secret():
            return value.reveal()
        case Mapping():
            return {key: _revealed(item) for key, item in value.items()}
        case list() | tuple():
            return [_revealed(item) for item in value]
        case _:
            return value


_NEVER_LEFT: Final = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.ProxyError,
    httpx.InvalidURL,
)


class _Departure:
    """Watches whether a request's first byte left this machine."""

    def __init__(self) -> None:
        self.watched = False
        self.left = False

    async def trace(self, event: str, info: Mapping[str, Any]) -> None:
        """Called by the transport at each step."""
        self.watched = True
        tunnel = (
            getattr(info.get("request"), "method", b"") == b"CONNECT"
        )  # a proxy's, it carries nothing of ours
        self.left |= event.endswith("send_request_headers.started") and not tunnel

    def stamp(self, lost: Unreachable, cause: Exception) -> Unreachable:
        """Say in the error whether the request may have been read. A transport that tells nothing is judged by its error."""
        lost.sent = self.left if self.watched else not isinstance(cause, _NEVER_LEFT)
        return lost


class Client:
    """A bounded HTTP client. Made by `open_client`.

    Args:
        session: the httpx client to send with.
        timeout: default deadline of one request in seconds.
    """

    def __init__(self, session: httpx.AsyncClient, *, timeout: float = DEFAULT_DEADLINE) -> None:
        self._session = session
        self._timeout = timeout

    async def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, SecretText] | None = None,
        form: Mapping[str, SecretText] | None = None,
        json: Json = None,
        bearer: Secret | None = None,
        deadline_s: float | None = None,
        max_bytes: int = MAX_BODY,
    ) -> Answer:
        """Send one request and read its whole answer.

        Args:
            method: HTTP method.
            url: https, or http to this machine.
            headers: extra headers; secrets are wrapped.
            form: form fields; the empty string counts as left out (RFC 8628 3.1).
            json: JSON body; secrets inside it are wrapped.
            bearer: access token.
            deadline_s: seconds for everything; None means the client's default.
            max_bytes: largest decoded body.

        Raises:
            Unreachable: no whole answer came before the deadline.
            UntrustedServer: the server's certificate is not believed.
            PortalError: a redirect (never followed), or an answer that is too large.
            ConfigError: the URL may not be used.
        """
        request = self._build(method, url, headers, form, json, bearer)
        sent = tuple(secrets_of(headers, form, json, bearer))
        budget = self._timeout if deadline_s is None else deadline_s
        start, departure = time.monotonic(), _Departure()
        request.extensions["trace"] = departure.trace
        log.debug("> %s %s fields=%s", method, _place(url), sorted(form or json or ()))
        try:
            async with asyncio.timeout(budget):
                answer = without_echo(await self._exchange(request, max_bytes), sent)
        except TimeoutError as error:
            lost = self._lost(url, f"no answer within {budget:g} s", start)
            raise departure.stamp(lost, error) from error
        except httpx.TimeoutException as error:
            raise departure.stamp(self._lost(url, "no answer in time", start), error) from error
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
            raise departure.stamp(self._failed(url, error, start), error) from error
        _log_answer(answer, start)
        if 300 <= answer.status < 400:
            raise PortalError(
                f"{_host(url)} wants to send the request somewhere else; that is never followed.",
                status=answer.status,
                error="redirect",
            )
        return answer

    def _build(
        self,
        method: str,
        url: str,
        headers: Mapping[str, SecretText] | None,
        form: Mapping[str, SecretText] | None,
        json: Json,
        bearer: Secret | None,
    ) -> httpx.Request:
        _check(url)
        sent = {"accept": "application/json", "accept-encoding": "identity"}
        sent |= {name: _reveal(value) for name, value in (headers or {}).items()}
        if bearer is not None:
            sent["authorization"] = f"Bearer {bearer.reveal()}"
        content: bytes | None = None
        try:
            if form is not None:
                sent["content-type"] = "application/x-www-form-urlencoded"
                content = urlencode({k: _reveal(v) for k, v in form.items() if _reveal(v)}).encode()
            elif json is not None:
                sent["content-type"] = "application/json"
                content = _json.dumps(_revealed(json)).encode()
            return self._session.build_request(method, url, headers=sent, content=content)
        except (httpx.InvalidURL, ValueError, UnicodeError) as error:  # e.g. a header value with a line end
            raise ConfigError("The request could not be built from these values.") from error

    async def _exchange(self, request: httpx.Request, max_bytes: int) -> Answer:
        response = await self._session.send(request, stream=True)
        try:
            return await _whole(response, max_bytes)
        finally:
            await response.aclose()

    @asynccontextmanager
    async def lines(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, SecretText] | None = None,
        json: Json = None,
        bearer: Secret | None = None,
        deadline_s: float | None = None,
        idle_s: float = 120.0,
        max_line: int = MAX_BODY,
    ) -> AsyncIterator[AsyncIterator[str] | Answer]:
        """Stream an answer line by line: the value is an iterator of lines, or an `Answer` when the status is not 2xx.

        Args:
            method: as for `request`, like url, headers, json and bearer.
            url: https, or http to this machine.
            headers: extra headers.
            json: JSON body.
            bearer: access token.
            deadline_s: seconds until the head of the answer.
            idle_s: longest silence between two chunks.
            max_line: longest line in bytes.

        Raises:
            Unreachable, UntrustedServer, PortalError, ConfigError: as `request`; the iterator raises Unreachable too.
        """
        request = self._build(method, url, headers, None, json, bearer)
        budget = self._timeout if deadline_s is None else deadline_s
        start = time.monotonic()
        response = await self._head(request, url, budget, idle_s, start)
        try:
            if response.is_success:
                yield self._lines(url, response, max_line, start)
            else:
                refused = await self._refusal(url, response, budget, start)
                yield without_echo(refused, secrets_of(headers, json, bearer))
        finally:
            await response.aclose()

    @asynccontextmanager
    async def chunks(
        self, url: str, *, deadline_s: float | None = None, idle_s: float = 60.0
    ) -> AsyncIterator[AsyncIterator[bytes] | Answer]:
        """Stream a file: the value is an iterator of raw bytes, or an `Answer` when the status is not 2xx (a redirect is one).

        Args:
            url: https, or http to this machine.
            deadline_s: seconds until the head of the answer; the caller bounds the whole and counts the bytes.
            idle_s: longest silence between two chunks.

        Raises:
            Unreachable, UntrustedServer, PortalError, ConfigError: as `request`; the iterator raises Unreachable too.
        """
        request = self._build("GET", url, {"accept-encoding": "identity"}, None, None, None)
        budget = self._timeout if deadline_s is None else deadline_s
        start = time.monotonic()
        response = await self._head(request, url, budget, idle_s, start)
        try:
            yield (
                self._raw(url, response, start)
                if response.is_success
                else await self._refusal(url, response, budget, start)
            )
        finally:
            await response.aclose()

    async def _head(
        self, request: httpx.Request, url: str, budget: float, idle_s: float, start: float
    ) -> httpx.Response:
        request.extensions["timeout"] = dict.fromkeys(("connect", "read", "write", "pool"), idle_s)
        try:
            async with asyncio.timeout(budget):
                return await self._session.send(request, stream=True)
        except TimeoutError as error:
            raise self._lost(url, f"no answer within {budget:g} s", start) from error
        except (httpx.HTTPError, OSError, ValueError) as error:
            raise self._failed(url, error, start) from error

    async def _raw(self, url: str, response: httpx.Response, start: float) -> AsyncIterator[bytes]:
        try:
            async for chunk in response.aiter_raw():
                yield chunk
        except (httpx.HTTPError, OSError) as error:
            raise self._failed(url, error, start) from error

    async def _refusal(self, url: str, response: httpx.Response, budget: float, start: float) -> Answer:
        try:
            async with asyncio.timeout(budget):
                return await _whole(response, MAX_BODY)
        except TimeoutError as error:
            raise self._lost(url, "the answer did not end", start) from error
        except (httpx.HTTPError, OSError) as error:
            raise self._failed(url, error, start) from error

    async def _lines(
        self, url: str, response: httpx.Response, max_line: int, start: float
    ) -> AsyncIterator[str]:
        pending = b""
        try:
            async for chunk in response.aiter_raw():
                *whole, pending = (pending + chunk).split(b"\n")
                for line in whole:
                    yield line.decode("utf-8", "replace").rstrip("\r")
                if len(pending) > max_line:
                    raise PortalError(f"{_host(url)} sent a line that is too long.", error="too_large")
        except (httpx.HTTPError, OSError) as error:
            raise self._failed(url, error, start) from error
        if pending:
            yield pending.decode("utf-8", "replace")

    def _lost(self, url: str, why: str, start: float) -> Unreachable:
        log.debug("< %s: %s after %.0f ms", _place(url), why, (time.monotonic() - start) * 1000)
        return Unreachable(
            f"{_host(url)} could not be reached: {why}.", advice="Check the network and try again."
        )

    def _failed(self, url: str, error: Exception, start: float) -> Unreachable:
        certificate = _certificate_problem(error)
        if certificate is None:
            return self._lost(url, _reason(error), start)
        log.debug("< %s: certificate not believed: %s", _place(url), certificate)
        return UntrustedServer(
            f"The certificate of {_host(url)} is not trusted: {certificate}.",
            advice="Behind a company proxy, set NEDURA_CA_BUNDLE (or --ca-bundle) to its CA file.",
        )


def _check(url: str) -> None:
    if origin_of(url) is None:
        raise ConfigError(
            f"{redact(clean(url))} is not an address that can be used: https is needed, except on this machine."
        )


def _host(url: str) -> str:
    return clean(urlsplit(url).netloc, 100)


def _place(url: str) -> str:
    parts = urlsplit(url)
    return clean(f"{parts.scheme}://{parts.netloc}{parts.path}", 300)


def _log_answer(answer: Answer, start: float) -> None:
    if log.isEnabledFor(logging.DEBUG):
        names = [clean(name, 40) for name in list(answer.fields)[:30]]
        elapsed = (time.monotonic() - start) * 1000
        log.debug("< %d in %.0f ms error=%s fields=%s", answer.status, elapsed, redact(answer.error), names)


def _reason(error: Exception) -> str:
    match error:
        case httpx.ConnectError():
            return "no connection"
        case httpx.ProxyError():
            return "the proxy refused"
        case httpx.RemoteProtocolError():
            return "the connection broke"
        case _:
            return "the connection failed"


def _certificate_problem(error: BaseException | None) -> str | None:
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return clean(error.verify_message, 100) or "verification failed"
        if isinstance(error, ssl.SSLError) and "CERTIFICATE_VERIFY_FAILED" in str(error):
            return "verification failed"
        if "CERTIFICATE_VERIFY_FAILED" in str(error):
            return clean(str(error).partition("failed: ")[2].partition(" (")[0], 100) or "verification failed"
        error = error.__cause__ or error.__context__
    return None


async def _whole(response: httpx.Response, limit: int) -> Answer:
    encoding = response.headers.get("content-encoding", "")
    data = await body_or_status(response.status_code, encoding, response.aiter_raw(), limit)
    return answer_of(response.status_code, response.headers.items(), data)


class _Router(httpx.AsyncBaseTransport):
    """Picks the direct or the proxy transport by the host of each request."""

    def __init__(self, context: ssl.SSLContext, environ: Mapping[str, str]) -> None:
        limits = httpx.Limits(max_connections=20, max_keepalive_connections=5, keepalive_expiry=30)
        self._context, self._limits = context, limits
        self._proxies, self._without = proxies_from(environ)
        self._open: dict[str, httpx.AsyncBaseTransport] = {}

    def _proxy(self, url: httpx.URL) -> str:
        host = url.host.lower()
        if is_loopback(host) or any(matches_host(host, url.port, entry) for entry in self._without):
            return ""
        return self._proxies.get(url.scheme) or self._proxies.get("all", "")

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        proxy = self._proxy(request.url)
        if proxy not in self._open:
            try:
                _ = urlsplit(
                    proxy
                ).port  # raises for one that cannot be; the connection itself would not say it plainly
                self._open[proxy] = httpx.AsyncHTTPTransport(
                    verify=self._context, proxy=proxy or None, limits=self._limits, trust_env=False
                )
            except (ImportError, ValueError, httpx.InvalidURL) as error:
                raise httpx.ProxyError("this kind of proxy is not supported") from error
        return await self._open[proxy].handle_async_request(request)

    async def aclose(self) -> None:
        for transport in self._open.values():
            await transport.aclose()


def _prepared(trust: Trust) -> ssl.SSLContext:
    """The TLS context, with everything imported that httpx would else import on the loop at its first connection (0.1 s)."""
    for name in ("anyio._backends._asyncio", "certifi", "httpcore", "httpcore._backends.auto", "h11"):
        try:
            importlib.import_module(name)
        except (
            ImportError
        ):  # an inner name of a library: without it the first request is slower, nothing else
            log.debug("no module %s to import ahead", name)
    return trust.context()


@asynccontextmanager
async def open_client(
    trust: Trust | None = None,
    *,
    timeout: float = DEFAULT_DEADLINE,
    transport: httpx.AsyncBaseTransport | None = None,
    environ: Mapping[str, str] | None = None,
    agent: str = "",
) -> AsyncIterator[Client]:
    """Open a client for a few requests; close it before you yield anything to a caller.

    Args:
        trust: what to believe; None resolves it from the environment.
        timeout: default deadline of a request in seconds.
        transport: stands in for the network in tests.
        environ: where proxies are named; None means the real environment.
        agent: User-Agent; empty means nedura's own.

    Raises:
        ConfigError: the certificate file cannot be used.
    """
    environ = os.environ if environ is None else environ
    trust = resolve_trust(environ=environ) if trust is None else trust
    if transport is None:
        transport = _Router(await asyncio.to_thread(_prepared, trust), environ)
    limits = httpx.Timeout(None)  # one deadline for everything is ours, see Client.request
    async with httpx.AsyncClient(
        transport=transport,
        timeout=limits,
        follow_redirects=False,
        trust_env=False,
        headers={"user-agent": agent or user_agent()},
    ) as session:
        yield Client(session, timeout=timeout)
