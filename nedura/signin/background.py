"""Blocking work beside the event loop, in a thread that can neither hold up the loop nor the end of the process."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from typing import Final, TypeVar

__all__ = ["Gate", "in_thread", "until_called_off"]

_T = TypeVar("_T")


def in_thread(work: Callable[[], _T]) -> asyncio.Future[_T]:
    """Run `work` in an own daemon thread with the caller's context variables; the future gets its result or exception.

    Unlike the loop's executor, a thread that hangs on a dead disk keeps neither the loop nor the interpreter from ending.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[_T] = loop.create_future()
    future.add_done_callback(lambda done: done.cancelled() or done.exception())  # nobody may be left to look
    context = contextvars.copy_context()

    def settle(result: _T | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result: _T | None = None
        failure: BaseException | None = None
        try:
            result = context.run(work)
        except BaseException as error:  # the thread's border: it travels to the awaiting task
            failure = error
        try:
            loop.call_soon_threadsafe(settle, result, failure)
        except RuntimeError:  # the loop is gone; nobody waits any more
            pass

    threading.Thread(target=run, name="nedura-signin", daemon=True).start()
    return future


class Gate:
    """The one moment after which work in a thread can no longer be called off.

    `enter` and `abandon` exclude each other: exactly one of them returns True.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken = ""

    def enter(self) -> bool:
        """The worker is about to act; False when it was called off."""
        return self._take("entered")

    def abandon(self) -> bool:
        """Call the work off; False when it is already acting."""
        return self._take("abandoned")

    def _take(self, who: str) -> bool:
        with self._lock:
            self._taken = self._taken or who
            return self._taken == who


BEGUN_SECONDS: Final = 5.0
"""How long the end of a task waits for an act that has begun: it is finished whole."""


async def until_called_off(work: Callable[[Gate], _T]) -> _T:
    """Run `work` in a thread that enters the gate when it holds its locks; a cancel before that moment is final: it never acts.

    Args:
        work: asks `gate.enter()` right before it acts, and does nothing when that is False.

    Raises:
        asyncio.CancelledError: the task was cancelled. Work that had entered was waited for.
    """
    gate = Gate()
    running = in_thread(lambda: work(gate))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        if not gate.abandon():
            await asyncio.wait({running}, timeout=BEGUN_SECONDS)
        raise
