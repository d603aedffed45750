"""The control socket's server: its own thread and event loop, so that neither a busy nor a blocked process keeps it from answering."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from nedura.fleet.control_protocol import (
    REQUEST_LIMIT,
    BadRequest,
    failure,
    parse_request,
    success,
    unknown_verb,
)
from nedura.fleet.socketpath import Bound, peer_of

__all__ = ["LINE_TIMEOUT", "MAX_CONNECTIONS", "ControlServer", "LoopVerb", "Verb"]

LINE_TIMEOUT: Final = 2.0
"""Seconds a client has for its line."""
LOOP_TIMEOUT: Final = 5.0
"""Seconds the process's own event loop has for a verb that needs it."""
MAX_CONNECTIONS: Final = 16
"""Open connections; one more closes the oldest that has not finished its line."""

Verb = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""Answers from a snapshot, in the server's thread."""
LoopVerb = Callable[[Mapping[str, Any]], Awaitable[Mapping[str, Any]]]
"""Runs on the process's own event loop."""

logger = logging.getLogger(__name__)


class ControlServer:
    """Serves one bound socket.

    Args:
        bound: the socket, bound under the home's claim.
        verbs: answered in the server's thread.
        loop_verbs: marshalled to `loop`.
        loop: the process's own event loop.
        chores: coroutine functions that run on the server's loop until it stops.
    """

    def __init__(
        self,
        bound: Bound,
        verbs: Mapping[str, Verb],
        loop_verbs: Mapping[str, LoopVerb],
        loop: asyncio.AbstractEventLoop,
        chores: tuple[Callable[[], Awaitable[None]], ...] = (),
    ) -> None:
        self._bound = bound
        self._verbs = verbs
        self._loop_verbs = loop_verbs
        self._home_loop = loop
        self._chores = chores
        self._waiting: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._main, name="nedura-control", daemon=True)

    def start(self, timeout: float = 5.0) -> None:
        """Start the thread and wait until it serves."""
        self._thread.start()
        self._ready.wait(timeout)

    def stop(self, timeout: float = 2.0) -> None:
        """Stop serving and remove the socket."""
        if self._loop is not None and self._stop is not None:
            try:
                self._loop.call_soon_threadsafe(self._stop.set)
            except RuntimeError:
                pass  # its loop has ended already
        self._thread.join(timeout)
        self._bound.close()

    def _main(self) -> None:
        try:
            asyncio.run(self._serve())
        except Exception:  # border of the thread: the process serves on without its socket
            logger.exception("the control socket ended")
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        chores = [asyncio.ensure_future(chore()) for chore in self._chores]
        server = await asyncio.start_unix_server(
            self._accept, sock=self._bound.socket, limit=REQUEST_LIMIT, backlog=128
        )
        self._ready.set()
        try:
            await self._stop.wait()
        finally:
            server.close()
            for task in (*chores, *self._waiting):
                task.cancel()
            await asyncio.gather(*chores, *self._waiting, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        while len(self._waiting) >= MAX_CONNECTIONS:
            oldest = next(iter(self._waiting))
            self._waiting.pop(oldest).transport.abort()
            oldest.cancel()
        self._waiting[task] = writer
        try:
            await self._converse(reader, writer, task)
        except (OSError, TimeoutError, ValueError, asyncio.IncompleteReadError):
            pass  # a client that breaks off, drips or sends too much gets no answer
        finally:
            self._waiting.pop(task, None)
            writer.close()

    async def _converse(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, task: asyncio.Task[None]
    ) -> None:
        peer = peer_of(writer.get_extra_info("socket"))
        if peer is None or peer[1] not in (0, os.geteuid()):
            return
        async with asyncio.timeout(LINE_TIMEOUT):
            line = await reader.readuntil(b"\n")
        self._waiting.pop(task, None)
        writer.write(await self._answer(line))
        async with asyncio.timeout(LINE_TIMEOUT):
            await writer.drain()

    async def _answer(self, line: bytes) -> bytes:
        try:
            request = parse_request(line)
        except BadRequest as error:
            return failure(str(error))
        try:
            if (verb := self._verbs.get(request.verb)) is not None:
                return success(verb(request.params), request.id)
            if (loop_verb := self._loop_verbs.get(request.verb)) is not None:
                return success(await self._on_home_loop(loop_verb, request.params), request.id)
        except TimeoutError:
            return failure("busy", request.id)
        except Exception as error:  # border of the server: an answer that says so instead of silence
            logger.exception("control verb %s failed", request.verb)
            return failure(type(error).__name__, request.id)
        return unknown_verb([*self._verbs, *self._loop_verbs], request.id)

    async def _on_home_loop(self, verb: LoopVerb, params: Mapping[str, Any]) -> Mapping[str, Any]:
        async def run() -> Mapping[str, Any]:
            return await verb(params)

        work = run()
        try:
            future = asyncio.run_coroutine_threadsafe(work, self._home_loop)
        except RuntimeError as error:
            work.close()
            raise TimeoutError from error
        async with asyncio.timeout(LOOP_TIMEOUT):
            return await asyncio.wrap_future(future)
