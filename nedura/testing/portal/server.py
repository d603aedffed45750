"""The portal on a socket: a Starlette app under uvicorn."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Route

from nedura.errors import NeduraError, UsageError
from nedura.testing.portal.exchange import Ask

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from nedura.testing.portal.core import Portal
    from nedura.testing.portal.exchange import Answer

__all__ = ["PortalServer", "build_app", "run_portal", "serve_portal"]

LARGEST_BODY: Final = 1 << 20
LAST_PORT: Final = 65535
_CYCLE: Final = "nedura.cycle"


@attrs.frozen(kw_only=True)
class PortalServer:
    """A running portal: its address without trailing slash."""

    portal: Portal
    url: str
    port: int


class _Endpoint:
    """The one ASGI endpoint: translates a request, asks the portal, sends what it says."""

    def __init__(self, portal: Portal) -> None:
        self.portal = portal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        body = b""
        async for chunk in request.stream():
            body += chunk
            if len(body) > LARGEST_BODY:
                break
        ask = Ask(
            method=request.method,
            path=request.url.path,
            base=f"{request.url.scheme}://{request.url.netloc}",
            query=dict(request.query_params),
            headers={name.lower(): value for name, value in request.headers.items()},
            body=body,
        )
        answer = await self.portal.handle(ask)
        if answer.drop:
            await _drop(scope, receive)
        else:
            await _send(answer, self.portal, send)


async def _drop(scope: Scope, receive: Receive) -> None:
    """Close the connection without a byte. ASGI has no word for it, so uvicorn's own transport is asked."""
    transport = getattr(scope.get(_CYCLE), "transport", None)
    if transport is None:
        raise ConnectionResetError("the portal drops this connection")
    transport.abort()
    while (await receive())["type"] != "http.disconnect":
        pass


async def _send(answer: Answer, portal: Portal, send: Send) -> None:
    headers = [
        (name.lower().encode(), value.encode("latin-1", "replace")) for name, value in answer.headers.items()
    ]
    if not answer.pause:
        headers.append((b"content-length", str(len(answer.body)).encode()))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    for piece in answer.pieces if answer.pause else (answer.body,):
        await send({"type": "http.response.body", "body": piece, "more_body": True})
        if answer.pause:
            await portal.clock.sleep(answer.pause)
    await send({"type": "http.response.body", "body": b""})


def build_app(portal: Portal) -> ASGIApp:
    """The Starlette application; every path and method goes to the portal's own table."""
    app = Starlette()
    app.router.routes.append(Route("/{path:path}", endpoint=_Endpoint(portal)))

    async def outer(scope: Scope, receive: Receive, send: Send) -> None:
        scope[_CYCLE] = getattr(send, "__self__", None)  # before Starlette wraps it
        await app(scope, receive, send)

    return outer


class _Server(uvicorn.Server):
    """A server that leaves the signals of its process alone and says when it answers."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to answer."""
        await super().startup(sockets)
        self.ready.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Do nothing."""
        yield


def _listen(port: int) -> socket.socket:
    if not 0 <= port <= LAST_PORT:
        raise UsageError(f"A port is 0 to {LAST_PORT}, not {port}.")
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen(512)
    except OSError as error:
        listener.close()
        raise NeduraError(
            f"Port {port} cannot be used: {error.strerror}.",
            advice="Choose another one, or 0 for a free one.",
        ) from error
    return listener


@asynccontextmanager
async def serve_portal(
    portal: Portal, port: int = 0, *, certificate: Path | None = None, key: Path | None = None
) -> AsyncIterator[PortalServer]:
    """Serve a portal on 127.0.0.1, over HTTPS when a certificate (PEM) and its key are given.

    Args:
        portal: what to serve.
        port: 0 takes a free one.
        certificate: certificate chain file.
        key: private key file.

    Raises:
        UsageError: there is no such port.
        NeduraError: the port is in use or may not be used.
    """
    listener = _listen(port)
    config = uvicorn.Config(
        build_app(portal),
        log_config=None,
        log_level="critical",
        access_log=False,
        lifespan="off",
        http="h11",
        ws="none",
        loop="asyncio",
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=1,
        ssl_certfile=certificate,
        ssl_keyfile=key,
    )
    server = _Server(config)
    task = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        ready = asyncio.create_task(server.ready.wait())
        await asyncio.wait({task, ready}, return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        if task.done():
            await task
        bound = listener.getsockname()[1]
        scheme = "https" if certificate else "http"
        yield PortalServer(portal=portal, url=f"{scheme}://127.0.0.1:{bound}", port=bound)
    finally:
        server.should_exit = True
        await task
        listener.close()


async def run_portal(portal: Portal, port: int = 0, *, ready: Callable[[PortalServer], None]) -> None:
    """Serve until SIGTERM or SIGINT.

    Args:
        portal: what to serve.
        port: 0 takes a free one.
        ready: called once it answers.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with serve_portal(portal, port) as server:
        ready(server)
        await stop.wait()
