"""The local chat: `<home>/chat.sock`, one JSON line in, NDJSON out.

In: `{"text": ..., "chat": ...}`. Out: `{"delta": ...}`, `{"tool": {"name", "text"}}`, and last `{"done": true}` or
`{"error": code, "copy": ..., "done": true}`. One message a connection at a time; a connection may send several.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any, Final

import attrs

from nedura.errors import NeduraError, RecordCorrupt
from nedura.fleet import Bound, FleetMember, peer_of
from nedura.homes import home_override
from nedura.records import parse_json
from nedura.text import clean
from nedura_gateway.handlers import Handler, Message, ToolEvent, TurnContext
from nedura_gateway.history import History
from nedura_gateway.login import LOCAL, STOPPED, Logins, Sender, is_login

__all__ = ["ChatSocket"]

LINE_LIMIT: Final = 64 * 1024
MAX_CLIENTS: Final = 256
MAX_ANSWER: Final = 1024 * 1024
"""Characters of one answer that are kept as history."""

Send = Callable[[dict[str, Any]], Awaitable[None]]

logger = logging.getLogger(__name__)


@attrs.frozen
class _Ask:
    text: str
    chat: str


def _parse(line: bytes) -> _Ask | None:
    try:
        body = parse_json(line, "message")
    except RecordCorrupt:
        return None
    if not isinstance(body, dict) or not isinstance(body.get("text"), str) or not body["text"].strip():
        return None
    return _Ask(body["text"], clean(body.get("chat") or "local", 80))


class ChatSocket:
    """Serves one bound chat socket.

    Args:
        bound: the socket.
        member: each message is one of its turns.
        handler: what answers.
        context: facts for the handler, completed per message.
        logins: answers `/login`; None leaves it to the handler.
    """

    def __init__(
        self,
        bound: Bound,
        member: FleetMember,
        handler: Handler,
        context: TurnContext,
        logins: Logins | None = None,
    ) -> None:
        self._bound = bound
        self._member = member
        self._handler = handler
        self._context = context
        self._logins = logins
        self._history = History()
        self._clients: set[asyncio.Task[Any]] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Begin to accept."""
        self._server = await asyncio.start_unix_server(
            self._accept, sock=self._bound.socket, limit=LINE_LIMIT
        )

    async def stop(self) -> None:
        """Close the socket and the connections that wait for a message."""
        if self._server is not None:
            self._server.close()
        for task in self._clients:
            task.cancel()
        await asyncio.gather(*self._clients, return_exceptions=True)
        self._bound.close()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take a client in a task of ours: of one that the stream's protocol makes, Python 3.11 logs each cancel as a traceback."""
        peer = peer_of(writer.get_extra_info("socket"))
        if peer is None or peer[1] not in (0, os.geteuid()) or len(self._clients) >= MAX_CLIENTS:
            writer.close()
            return
        task = asyncio.create_task(self._client(reader, writer), name="chat client")
        self._clients.add(task)
        task.add_done_callback(self._clients.discard)

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def send(record: dict[str, Any]) -> None:
            writer.write(json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode() + b"\n")
            await writer.drain()

        try:
            while line := await reader.readline():
                await self._message(line, send)
        except (ConnectionError, ValueError):
            logger.debug("a chat client broke off")
        finally:
            writer.close()

    async def _message(self, line: bytes, send: Send) -> None:
        asked = _parse(line)
        if asked is None:
            await send({"error": "bad_message", "copy": "That is no message.", "done": True})
            return
        try:
            with home_override(self._context.home):
                if self._logins is not None and is_login(asked.text):
                    await self._login(self._logins, asked, send)
                else:
                    await self._turn(asked, send)
        except NeduraError as error:
            await send({"error": error.code, "copy": error.message, "done": True})
        except ConnectionError:
            raise
        except Exception:  # border of a turn: a handler's mistake must not end the gateway
            logger.exception("a turn failed")
            await send({"error": "internal", "copy": "Something went wrong with this message.", "done": True})

    async def _login(self, logins: Logins, asked: _Ask, send: Send) -> None:
        """Beside the turns: a drain does not wait ten minutes for somebody at a browser, who may have closed the chat meanwhile."""
        sender = Sender(platform=LOCAL, chat=asked.chat, private=True)

        async def push(line: str) -> None:
            try:
                await send({"delta": f"{line}\n"})
            except ConnectionError:  # the code was shown: the sign-in goes on
                logger.debug("a line of a sign-in could not be sent")

        try:
            await logins.run(self._context.home, sender, push)
        except asyncio.CancelledError:
            await asyncio.shield(send({"error": "interrupted", "copy": STOPPED, "done": True}))
            raise
        await send({"done": True})

    async def _turn(self, asked: _Ask, send: Send) -> None:
        context = attrs.evolve(self._context, chat=asked.chat, history=self._history.of(asked.chat))
        said: list[str] = []
        async with self._member.turn(f"{self._context.home.name} chat {asked.chat}") as turn:
            try:
                async with aclosing(self._handler(asked.text, context)) as pieces:
                    async for piece in pieces:
                        if isinstance(piece, ToolEvent):
                            turn.touch(clean(piece.name, 60))
                            await send(
                                {"tool": {"name": clean(piece.name, 60), "text": clean(piece.text, 300)}}
                            )
                        else:
                            turn.touch()
                            said.append(str(piece))
                            await send({"delta": str(piece)})
            except asyncio.CancelledError:
                await asyncio.shield(
                    send(
                        {
                            "error": "interrupted",
                            "copy": "The gateway restarts; please ask again.",
                            "done": True,
                        }
                    )
                )
                raise
            answer = Message(role="assistant", text="".join(said)[:MAX_ANSWER])
            self._history.add(asked.chat, Message(role="user", text=asked.text), answer)
            await send({"done": True})
