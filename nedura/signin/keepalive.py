"""The keepalive of long-lived processes: refresh the login ahead of its end, and finish hand-offs that are still retrying.

`start_nous_auth_keepalive` puts both into one daemon thread with a loop of its own. A stalled host loop cannot delay them, the first
request leaves a minute after the start, and starting and stopping never wait for the network (#61270, #48131).
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from nedura.clock import Clock, SystemClock, iso
from nedura.config import read_config
from nedura.errors import NeduraError
from nedura.http import open_client
from nedura.product import NEDURA, Product
from nedura.signin.accounts import AccountStore
from nedura.signin.adoption import reconcile
from nedura.signin.handoff import drain
from nedura.signin.identity import Entry, ends_soon, family_end
from nedura.signin.refresh import ClientFactory, Outcome, Refresh, refresh_account
from nedura.text import clean

__all__ = [
    "BASE_SECONDS",
    "TICK_SECONDS",
    "Keepalive",
    "next_tick",
    "start_nous_auth_keepalive",
    "stop_nous_auth_keepalive",
]

TICK_SECONDS: Final = 60.0
"""First run after the start, shortest tick, and the retry worker's tick (decision 11)."""

BASE_SECONDS: Final = 900.0
"""Longest tick unless the config says otherwise (`nous.keepalive_interval_seconds`; 0 or less: no refresh ahead)."""

MARGIN_SECONDS: Final = 120.0
SLICE_SECONDS: Final = 15.0
"""Longest single sleep: after a suspend the wall clock is looked at again within this time."""

STOP_SECONDS: Final = 0.9
RETRY_AFTER_CAP: Final = 3600.0

log = logging.getLogger("nedura.signin.keepalive")


def next_tick(entry: Entry | None, base: float) -> float:
    """Seconds until the next look: a quarter of the token's life, between a minute and `base` (facts/signin.md 9)."""
    lifetime = (entry or {}).get("expires_in")
    if isinstance(lifetime, bool) or not isinstance(lifetime, int | float) or lifetime <= 0:
        lifetime = 4 * base
    return max(TICK_SECONDS, min(base, lifetime / 4))


@attrs.define(kw_only=True)
class Keepalive:
    """Both workers of one profile, as coroutines.

    Attributes:
        home: the profile's home.
        product: names.
        environ: the real environment.
        clock: time.
        client_factory: opens HTTP clients.
    """

    home: Path
    product: Product = NEDURA
    environ: Mapping[str, str] = attrs.field(factory=lambda: dict(os.environ), repr=False)
    clock: Clock = attrs.field(factory=SystemClock)
    client_factory: ClientFactory = open_client
    _warned_at: float = attrs.field(default=float("-inf"), init=False)

    async def run(self) -> None:
        """Run both until cancelled. A tick that fails is logged and the next one comes."""
        await asyncio.gather(self.refresh_ahead(), self.retry_handoffs())

    async def retry_handoffs(self) -> None:
        """Drain this profile once a minute; it costs one look at a missing file where nothing is pending."""
        while True:
            await self._wait(TICK_SECONDS)
            common: dict[str, Any] = {
                "product": self.product, "environ": self.environ, "clock": self.clock, "client_factory": self.client_factory,
            }  # fmt: skip
            for step in (reconcile, drain):  # a free tier follows its root into an account; then its apps
                try:
                    await step(self.home, **common)
                except Exception:  # the worker's border: it must outlive whatever one tick meets
                    log.exception("hand-off tick failed")

    async def refresh_ahead(self) -> None:
        """Refresh before the end of the token; a free tier and a signed-out profile have nothing to refresh."""
        wait = TICK_SECONDS
        while True:
            await self._wait(wait)
            try:
                wait = await self._tick()
            except Exception:  # the worker's border, as above
                log.exception("keepalive tick failed")
                wait = TICK_SECONDS

    async def _tick(self) -> float:
        base = self._base()
        store = AccountStore(self.home, environ=self.environ, product=self.product)
        entry = store.read().entry
        self._warn(entry)
        tick = next_tick(entry, base if base > 0 else BASE_SECONDS)
        if base <= 0:
            return tick
        result = await refresh_account(
            store,
            min_life=tick + MARGIN_SECONDS,
            product=self.product,
            environ=self.environ,
            clock=self.clock,
            client_factory=self.client_factory,
        )
        return _after(result, tick, base)

    def _warn(self, entry: Entry | None) -> None:
        """Once a day in the last days of a sign-in: nothing renews it, and nobody may be at the machine when it ends (#117461)."""
        now, end = self.clock.time(), family_end(entry)
        if end is not None and ends_soon(entry, now) and not 0 <= now - self._warned_at < 86400:
            self._warned_at = now
            log.warning("the sign-in of %s ends by itself at %s", clean(self.home.name, 80), iso(end))

    def _base(self) -> float:
        try:
            value = read_config(self.home).get("nous.keepalive_interval_seconds", BASE_SECONDS)
        except NeduraError as error:
            log.warning("keepalive: %s", error.message)
            return BASE_SECONDS
        return BASE_SECONDS if isinstance(value, bool) or not isinstance(value, int | float) else float(value)

    async def _wait(self, seconds: float) -> None:
        """Wait on the monotonic clock, but not longer than the wall clock says: a suspended machine is late already."""
        start, wall = self.clock.monotonic(), self.clock.time()
        while True:
            left = seconds - (self.clock.monotonic() - start)
            if left <= 0 or self.clock.time() - wall >= seconds:
                return
            await self.clock.sleep(min(left, SLICE_SECONDS))


def _after(result: Refresh, tick: float, base: float) -> float:
    """When to look again after a refresh."""
    if result.outcome is Outcome.LATER:
        return max(TICK_SECONDS, min(result.retry_after or 0.0, RETRY_AFTER_CAP))
    if result.outcome in (Outcome.ROTATED, Outcome.ADOPTED):
        return next_tick(result.entry, base)
    return tick


@attrs.define(kw_only=True)
class _Thread:
    """A keepalive in its own daemon thread."""

    keepalive: Keepalive
    thread: threading.Thread = attrs.field(init=False)
    _loop: asyncio.AbstractEventLoop | None = None
    _task: asyncio.Task[None] | None = None
    _stopped: threading.Event = attrs.field(factory=threading.Event)

    def start(self) -> None:
        self.thread = threading.Thread(target=self._run, name="nedura-keepalive", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        except asyncio.CancelledError:
            pass

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.ensure_future(self.keepalive.run())
        if self._stopped.is_set():
            self._task.cancel()
        try:
            await self._task
        except asyncio.CancelledError:
            pass

    def stop(self) -> None:
        """End it; a request under way is left to itself. Returns within a second."""
        self._stopped.set()
        loop, task = self._loop, self._task
        if loop is not None and task is not None:
            try:
                loop.call_soon_threadsafe(task.cancel)
            except RuntimeError:  # its loop has ended already
                pass
        self.thread.join(STOP_SECONDS)


_running: dict[Path, _Thread] = {}
_guard = threading.Lock()


def start_nous_auth_keepalive(
    home: Path,
    *,
    product: Product = NEDURA,
    environ: Mapping[str, str] | None = None,
    clock: Clock | None = None,
    client_factory: ClientFactory = open_client,
) -> bool:
    """Start the keepalive and the retry worker of a profile in this process, for an account, a free tier or nobody alike.

    Args:
        home: the process's own profile.
        product: names.
        environ: the real environment.
        clock: time.
        client_factory: opens HTTP clients.

    Returns:
        Whether it was started; False when it already runs.
    """
    with _guard:
        if home in _running:
            return False
        keepalive = Keepalive(
            home=home,
            product=product,
            environ=dict(os.environ if environ is None else environ),
            clock=clock or SystemClock(),
            client_factory=client_factory,
        )
        worker = _running[home] = _Thread(keepalive=keepalive)
        worker.start()
    log.debug("keepalive of %s started", clean(home.name, 80))
    return True


def stop_nous_auth_keepalive(home: Path | None = None) -> None:
    """Stop the keepalive of a profile, or of every profile of this process. Returns within a second each."""
    with _guard:
        names = list(_running) if home is None else [home]
        workers = [_running.pop(name) for name in names if name in _running]
    for worker in workers:
        worker.stop()
