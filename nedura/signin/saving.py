"""The save of a sign-in: scope, locks and the caller's guard around one write, in a thread, called off until the very moment before it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import ExitStack, nullcontext
from typing import Any, Final

import attrs

from nedura.errors import StoreError
from nedura.signin.accounts import AccountStore
from nedura.signin.auth_state import AuthState, Saved
from nedura.signin.background import Gate, in_thread
from nedura.signin.identity import Kind

__all__ = ["SAVE_SECONDS", "SLICE", "Saving"]

SLICE: Final = 0.05
"""Seconds between two looks at a cancel."""

SAVE_SECONDS: Final = 40.0
"""Longest save, locks included."""

BEGUN_SECONDS: Final = 30.0
"""Longest further wait for a write that has begun: it cannot be called off any more."""


@attrs.define(kw_only=True)
class Saving:
    """One save.

    Attributes:
        entry: the account.
        now: unix seconds.
        store: makes the account store, inside the scope.
        stop: whether the user cancelled.
        scope: binds the profile.
        label, priority: name and order of the login.
        first_only: an account that came to the home meanwhile stays: of several sign-ins at once the first one counts.
        seconds: longest time for all of it.
    """

    entry: Mapping[str, Any] = attrs.field(repr=False)
    now: float
    store: Callable[[], AccountStore]
    stop: Callable[[], bool]
    scope: Callable[[], Any] | None = None
    label: str = ""
    priority: int | None = None
    seconds: float = SAVE_SECONDS
    first_only: bool = False
    taken: AuthState | None = attrs.field(default=None, init=False)
    """The stores as another sign-in left them, when it came first and nothing was written."""

    _gate: Gate = attrs.field(factory=Gate)
    saved: Saved | None = attrs.field(default=None, init=False)
    """What the write did, known as soon as it returned, whatever guard or scope do afterwards."""

    unsure: bool = attrs.field(default=False, init=False)
    """Whether a write has begun of which nobody knows how it ended."""

    async def run(self, guard: Any) -> Saved | None:
        """Save; None when the guard or a cancel called it off and nothing was written.

        Args:
            guard: context manager, plain or asynchronous, that yields whether the account may be saved; None always may.

        Raises:
            StoreError: it could not be saved, or took too long.
        """
        if guard is not None and hasattr(guard, "__aenter__"):
            task = asyncio.ensure_future(self._guarded(guard))
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
            try:
                return await self._watched(task)
            finally:
                if not task.done():
                    task.cancel()
                    await asyncio.wait({task}, timeout=1)
        return await self._watched(in_thread(lambda: self._write(guard or nullcontext(True))))

    async def _guarded(self, guard: Any) -> Saved | None:
        """Guard and write in one task, so that a guard which does not open can be called off."""
        async with guard as allowed:
            return await in_thread(lambda: self._write(nullcontext(allowed)))

    def _write(self, guard: Any) -> Saved | None:
        """The write itself, in its own thread. The last look at a cancel is under all locks and the guard."""
        with ExitStack() as stack:
            if self.scope is not None:
                stack.enter_context(self.scope())
            transaction = stack.enter_context(self.store().transaction())
            if not stack.enter_context(guard) or self.stop() or not self._gate.enter():
                return None
            if self.first_only and transaction.state.kind(self.now) is Kind.ACCOUNT:
                self.taken = transaction.state
                return None
            self.unsure = True
            try:
                self.saved = transaction.save_account(
                    self.entry, renewal=False, now=self.now, label=self.label, priority=self.priority
                )
            except StoreError:
                self.unsure = False  # the stores are as they were
                raise
            self.unsure = False
        return self.saved

    async def _watched(self, running: asyncio.Future[Saved | None]) -> Saved | None:
        loop = asyncio.get_running_loop()
        end = loop.time() + self.seconds
        try:
            while not running.done():
                await asyncio.wait({running}, timeout=SLICE)
                if self.stop() and self._gate.abandon():
                    return None
                # a write that has begun is waited for a while longer
                if loop.time() > end and (self._gate.abandon() or loop.time() > end + BEGUN_SECONDS):
                    raise StoreError(
                        "The account could not be saved: the disk or another process does not answer."
                    )
        except asyncio.CancelledError:
            if not self._gate.abandon():  # the save has begun: it is finished whole, then the cancel goes on
                await asyncio.wait({running}, timeout=5)
            raise
        return running.result()
