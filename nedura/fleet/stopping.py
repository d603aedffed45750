"""The drain of a member as it happens: the clock, the waiting and the interrupting around `drain.drain_step`."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

from nedura.fleet.drain import DrainPlan, DrainSettings, drain_step
from nedura.fleet.turns import Turns
from nedura.fleet.watchdog import ShutdownWatch

__all__ = ["Stopper"]

RECHECK: Final = 30.0
"""Seconds after which a drain looks again by itself: work can become wedged without a change."""

logger = logging.getLogger(__name__)


class Stopper:
    """Ends the work of a process, once.

    Args:
        turns: the work.
        hangs: called from a thread when the stop itself hangs.
    """

    def __init__(self, turns: Turns, hangs: Callable[[], None]) -> None:
        self.settings = DrainSettings()
        self.stopped = asyncio.Event()
        self._turns = turns
        self._changed = asyncio.Event()
        self._plan: DrainPlan | None = None
        self._task: asyncio.Task[None] | None = None
        self._leash = ShutdownWatch(hangs)

    @property
    def begun(self) -> bool:
        """Whether a stop is under way or over."""
        return self._plan is not None or self.stopped.is_set()

    @property
    def forced(self) -> bool:
        """Whether work had to be interrupted."""
        return self._plan is not None and self._plan.forced

    def changed(self) -> None:
        """Work came or went."""
        self._changed.set()

    def begin(self, *, restart: bool) -> None:
        """Refuse new work and begin to wait for what runs."""
        self._turns.refusing = True
        self._plan = DrainPlan.begin(time.monotonic(), restart=restart)
        if not restart:
            self._arm()
        self._task = asyncio.ensure_future(self._drain())

    def hurry(self) -> None:
        """A stop signal while a restart waits patiently."""
        if self._plan is not None:
            self._plan = self._plan.stop_now(time.monotonic())
            self._changed.set()
            self._arm()

    def end(self) -> None:
        """Leave: nothing is waited for any more."""
        self._turns.refusing = True
        if self._task is not None:
            self._task.cancel()

    def disarm(self) -> None:
        """The stop has come to its end."""
        self._leash.disarm()

    def _arm(self) -> None:
        settings = self.settings
        self._leash.arm(max(settings.drain_s, settings.cron_s) + settings.grace_s + settings.watchdog_s)

    async def _drain(self) -> None:
        while (plan := self._plan) is not None:
            self._changed.clear()
            wedged = self.settings.wedged_s
            step = drain_step(
                plan,
                self.settings,
                now=time.monotonic(),
                turns=self._turns.waited_for(wedged),
                cron=self._turns.waited_for(wedged, "cron"),
            )
            if step.plan.phase != "after_turn":
                self._arm()
            self._plan = step.plan
            if step.plan.phase == "done":
                break
            if step.interrupt:
                logger.warning("time for running work is over; %d interrupted", self._turns.interrupt())
            if step.wait:
                try:
                    async with asyncio.timeout(min(step.wait, RECHECK)):
                        await self._changed.wait()
                except TimeoutError:
                    continue
        self.stopped.set()
