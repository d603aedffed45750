"""Raw loopback servers that answer with exactly the bytes a test wants."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import attrs

Reply = Callable[["Exchange"], Awaitable[None]]


@attrs.define
class Exchange:
    """One request as bytes, and the pen for its answer."""

    head: str
    body: bytes
    writer: asyncio.StreamWriter

    @property
    def path(self) -> str:
        return self.head.split(" ", 2)[1]

    def header(self, name: str) -> str:
        for line in self.head.split("\r\n")[1:]:
            key, _, value = line.partition(":")
            if key.lower() == name.lower():
                return value.strip()
        return ""

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self, status: int, body: bytes, *headers: str, kind: str = "application/json") -> None:
        lines = [
            f"HTTP/1.1 {status} X",
            f"Content-Type: {kind}",
            f"Content-Length: {len(body)}",
            *headers,
            "",
            "",
        ]
        await self.send("\r\n".join(lines).encode() + body)


@attrs.define
class RawServer:
    """Where it listens and what it saw."""

    url: str
    seen: list[Exchange] = attrs.field(factory=list)
    open: int = 0


@asynccontextmanager
async def raw_server(reply: Reply, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[RawServer]:
    """Serve each request of each connection with `reply`."""
    state = RawServer(url="")
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        state.open += 1
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").strip()
                exchange = Exchange(head, b"", writer)
                size = int(exchange.header("content-length") or 0)
                exchange.body = await reader.readexactly(size)
                state.seen.append(exchange)
                gone = asyncio.ensure_future(reader.read(1))
                answer = asyncio.ensure_future(reply(exchange))
                done, _ = await asyncio.wait({gone, answer}, return_when=asyncio.FIRST_COMPLETED)
                if answer not in done:
                    answer.cancel()
                    return
                gone.cancel()
                await asyncio.gather(gone, return_exceptions=True)
                answer.result()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError, RuntimeError):
            pass
        finally:
            state.open -= 1
            tasks.discard(task)
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    port = server.sockets[0].getsockname()[1]
    state.url = f"{'https' if tls else 'http'}://{'localhost' if tls else '127.0.0.1'}:{port}"
    try:
        yield state
    finally:
        server.close()
        for task in tuple(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
