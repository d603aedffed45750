"""The control socket's server: its own thread and event loop, so that neither a busy nor a blocked process keeps it from answering.

Connections are plain sockets here, not streams: an honest client's line is mostly there when it is accepted and is answered at once,
so that idle and dripping clients can only take the few waiting places from each other.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import attrs

from nedura.fleet.control_protocol import (
    REQUEST_LIMIT,
    BadRequest,
    Request,
    failure,
    parse_request,
    success,
    unknown_verb,
)
from nedura.fleet.socketpath import Bound, peer_of

__all__ = ["LINE_TIMEOUT", "MAX_CONNECTIONS", "ControlServer", "LoopVerb", "Verb"]

LINE_TIMEOUT: Final = 2.0
"""Seconds a client has for its line, and for taking the answer."""
LOOP_TIMEOUT: Final = 5.0
"""Seconds the process's own event loop has for a verb that needs it."""
MAX_CONNECTIONS: Final = 16
"""Connections that wait for their line; one more closes one that drips, else the oldest."""
_ACCEPT_BATCH: Final = 32
ACCEPT_PAUSE: Final = 1.0
"""Seconds without accepting after the system refused to."""

Verb = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""Answers from a snapshot, in the server's thread."""
LoopVerb = Callable[[Mapping[str, Any]], Awaitable[Mapping[str, Any]]]
"""Runs on the process's own event loop."""

logger = logging.getLogger(__name__)


@attrs.define(eq=False)
class _Waiting:
    """A connection whose line is not complete."""

    link: socket.socket
    timer: asyncio.TimerHandle
    data: bytes = b""


class ControlServer:
    """Serves one bound socket.

    Args:
        bound: the socket, bound under the home's claim; None runs the chores only.
        verbs: answered in the server's thread.
        loop_verbs: marshalled to `loop`.
        loop: the process's own event loop.
        chores: coroutine functions that run on the server's loop until it stops.
    """

    def __init__(
        self,
        bound: Bound | None,
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
        self._waiting: dict[int, _Waiting] = {}
        self._answering: set[asyncio.Task[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._ready = threading.Event()
        self._accept_failed = False
        self._resume: asyncio.TimerHandle | None = None
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
        if self._bound is not None:
            self._bound.close()

    def _main(self) -> None:
        try:
            asyncio.run(self._serve())
        except Exception:  # border of the thread: the process serves on without its socket
            logger.exception("the control socket ended")
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        loop = self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        chores = [asyncio.ensure_future(chore()) for chore in self._chores]
        if self._bound is not None:
            loop.add_reader(self._bound.socket, self._accept, self._bound.socket, loop)
        self._ready.set()
        try:
            await self._stop.wait()
        finally:
            if self._resume is not None:
                self._resume.cancel()
            if self._bound is not None:
                loop.remove_reader(self._bound.socket)
            for number in tuple(self._waiting):
                self._drop(number, loop)
            for task in (*chores, *self._answering):
                task.cancel()
            await asyncio.gather(*chores, *self._answering, return_exceptions=True)

    # ---- connections ----------------------------------------------------------------------------------------------------------

    def _accept(self, server: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
        for _ in range(_ACCEPT_BATCH):
            try:
                link, _address = server.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._pause_accepting(server, loop, error)
                return
            self._accept_failed = False
            link.setblocking(False)
            peer = peer_of(link)
            if peer is None or peer[1] not in (0, os.geteuid()):
                link.close()
                continue
            number = link.fileno()
            timer = loop.call_later(LINE_TIMEOUT, self._drop, number, loop)
            self._waiting[number] = _Waiting(link, timer)
            loop.add_reader(number, self._read, number, loop)
            self._read(number, loop)
            if len(self._waiting) > MAX_CONNECTIONS:
                self._drop(self._victim(), loop)

    def _pause_accepting(
        self, server: socket.socket, loop: asyncio.AbstractEventLoop, error: OSError
    ) -> None:
        """Out of descriptors: the connection stays pending, so a reader that stays on would spin."""
        if not self._accept_failed:
            logger.warning("the control socket cannot accept: %s", error.strerror)
        self._accept_failed = True
        loop.remove_reader(server)
        self._resume = loop.call_later(ACCEPT_PAUSE, loop.add_reader, server, self._accept, server, loop)

    def _victim(self) -> int:
        """Who makes room: an honest client sends its line in one piece, so a part of one goes first, then the oldest."""
        return next((number for number, one in self._waiting.items() if one.data), next(iter(self._waiting)))

    def _take(self, number: int, loop: asyncio.AbstractEventLoop) -> _Waiting | None:
        one = self._waiting.pop(number, None)
        if one is not None:
            one.timer.cancel()
            loop.remove_reader(number)
        return one

    def _drop(self, number: int, loop: asyncio.AbstractEventLoop) -> None:
        one = self._take(number, loop)
        if one is not None:
            one.link.close()

    def _read(self, number: int, loop: asyncio.AbstractEventLoop) -> None:
        one = self._waiting[number]
        try:
            chunk = one.link.recv(REQUEST_LIMIT + 1 - len(one.data))
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            chunk = b""
        one.data += chunk
        line, mark, _rest = one.data.partition(b"\n")
        if not chunk or (not mark and len(one.data) > REQUEST_LIMIT):
            self._drop(number, loop)
        elif mark and self._take(number, loop) is not None:
            self._respond(one.link, line, loop)

    def _respond(self, link: socket.socket, line: bytes, loop: asyncio.AbstractEventLoop) -> None:
        """Answer what a snapshot can answer at once; what needs the process's own loop gets a task."""
        try:
            request = parse_request(line)
        except BadRequest as error:
            self._finish(link, failure(str(error)), loop)
            return
        if request.verb in self._loop_verbs:
            self._spawn(self._answer_later(link, request), loop)
        else:
            self._finish(link, self._answer(request), loop)

    def _finish(self, link: socket.socket, answer: bytes, loop: asyncio.AbstractEventLoop) -> None:
        """Send and close; an answer that does not fit into the socket's buffer goes on in a task."""
        try:
            sent = link.send(answer)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError:
            sent = len(answer)  # the client is gone
        if sent < len(answer):
            self._spawn(self._send_rest(link, answer[sent:]), loop)
        else:
            link.close()

    def _spawn(self, work: Any, loop: asyncio.AbstractEventLoop) -> None:
        task: asyncio.Task[None] = loop.create_task(work)
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    async def _send_rest(self, link: socket.socket, rest: bytes) -> None:
        try:
            async with asyncio.timeout(LINE_TIMEOUT):
                await asyncio.get_running_loop().sock_sendall(link, rest)
        except (OSError, TimeoutError):
            pass  # a client that does not take its answer does without
        finally:
            link.close()

    # ---- answers --------------------------------------------------------------------------------------------------------------

    def _answer(self, request: Request) -> bytes:
        verb = self._verbs.get(request.verb)
        if verb is None:
            return unknown_verb([*self._verbs, *self._loop_verbs], request.id)
        try:
            return success(verb(request.params), request.id)
        except Exception as error:  # border of the server: an answer that says so instead of silence
            logger.exception("control verb %s failed", request.verb)
            return failure(type(error).__name__, request.id)

    async def _answer_later(self, link: socket.socket, request: Request) -> None:
        answer = failure("busy", request.id)
        try:
            result = await self._on_home_loop(self._loop_verbs[request.verb], request.params)
            answer = success(result, request.id)
        except TimeoutError:
            pass
        except asyncio.CancelledError:
            link.close()
            raise
        except Exception as error:  # border of the server, as above
            logger.exception("control verb %s failed", request.verb)
            answer = failure(type(error).__name__, request.id)
        await self._send_rest(link, answer)

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
