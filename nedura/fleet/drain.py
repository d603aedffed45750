"""How a member stops: pure arithmetic over two budgets (facts/runtime.md 5).

A restart first lets running work finish (`after_turn_s`), a stop goes straight to the second phase. The second phase waits
`drain_s` more, then interrupts and gives `grace_s` to clean up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

import attrs

from nedura.product import NEDURA, Product

__all__ = [
    "EXIT_CONFIG",
    "EXIT_PLANNED",
    "EXIT_RESTART",
    "EXIT_UNEXPECTED",
    "DrainPlan",
    "DrainSettings",
    "DrainStep",
    "drain_step",
]

EXIT_PLANNED: Final = 0
EXIT_UNEXPECTED: Final = 1
EXIT_RESTART: Final = 75
EXIT_CONFIG: Final = 78


@attrs.frozen(kw_only=True)
class DrainSettings:
    """Budgets in seconds (decision 47 for the defaults).

    Attributes:
        after_turn_s: wait for running work before a restart stops anything; 0 = none.
        drain_s: further wait inside a stop before work is interrupted.
        cron_s: floor of `drain_s` while scheduled work is in flight; 0 = none.
        grace_s: time for interrupted work to clean up.
        wedged_s: work without a sign of life for longer is not waited for.
        watchdog_s: slack on top of `drain_s` after which a stop that hangs is ended hard.
    """

    after_turn_s: float = 1800.0
    drain_s: float = 0.0
    cron_s: float = 30.0
    grace_s: float = 5.0
    wedged_s: float = 1800.0
    watchdog_s: float = 60.0

    @classmethod
    def read(
        cls, get: Callable[[str], Any], environ: Mapping[str, str], product: Product = NEDURA
    ) -> DrainSettings:
        """Settings from the config's `agent.*` keys and their environment overrides; junk keeps the default.

        Args:
            get: looks a dotted config key up.
            environ: the process environment.
            product: whose variables.
        """
        default = cls()
        names = {
            "after_turn_s": ("agent.restart_after_turn_timeout", "RESTART_AFTER_TURN_TIMEOUT"),
            "drain_s": ("agent.restart_drain_timeout", "RESTART_DRAIN_TIMEOUT"),
            "cron_s": ("agent.cron_drain_timeout", "CRON_DRAIN_TIMEOUT"),
            "wedged_s": ("agent.gateway_timeout", "GATEWAY_TIMEOUT"),
        }
        values = {
            field: _seconds(
                product.setting(environ, variable) or get(key),
                getattr(default, field),
                zero=field != "wedged_s",
            )
            for field, (key, variable) in names.items()
        }
        return attrs.evolve(default, **values)

    @property
    def budget_s(self) -> float:
        """Seconds after which a restart that was asked for has ended, as declared to those who wait."""
        return self.after_turn_s + max(self.drain_s, self.cron_s) + self.grace_s


def _seconds(value: Any, default: float, *, zero: bool) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return default
    if not 0 <= number <= 7 * 86400 or (number == 0 and not zero):
        return default
    return number


Phase = Literal["after_turn", "stopping", "interrupted", "done"]


@attrs.frozen(kw_only=True)
class DrainPlan:
    """A drain under way.

    Attributes:
        phase: where it stands.
        since: monotonic seconds when the phase began.
        restart: it ends with exit code 75.
        forced: work had to be interrupted.
    """

    phase: Phase
    since: float
    restart: bool
    forced: bool = False

    @classmethod
    def begin(cls, now: float, *, restart: bool) -> DrainPlan:
        """A new drain: a restart waits for running work first."""
        return cls(phase="after_turn" if restart else "stopping", since=now, restart=restart)

    def stop_now(self, now: float) -> DrainPlan:
        """A stop signal during a restart's patience: on to the second phase, the exit code stays."""
        return attrs.evolve(self, phase="stopping", since=now) if self.phase == "after_turn" else self


@attrs.frozen
class DrainStep:
    """What to do next.

    Attributes:
        plan: the drain as it stands now.
        wait: seconds to wait for a change at most, 0 when the step already moved on.
        interrupt: cancel what runs, now.
    """

    plan: DrainPlan
    wait: float = 0.0
    interrupt: bool = False


def drain_step(
    plan: DrainPlan, settings: DrainSettings, *, now: float, turns: int, cron: int = 0
) -> DrainStep:
    """Move a drain on.

    Args:
        plan: where it stands.
        settings: the budgets.
        now: monotonic seconds.
        turns: units of work that are waited for, scheduled ones included.
        cron: the scheduled ones among them.
    """
    if plan.phase == "done" or turns == 0:
        return DrainStep(attrs.evolve(plan, phase="done", since=now))
    spent = now - plan.since
    match plan.phase:
        case "after_turn":
            if spent < settings.after_turn_s:
                return DrainStep(plan, wait=settings.after_turn_s - spent)
            return DrainStep(attrs.evolve(plan, phase="stopping", since=now))
        case "stopping":
            budget = max(settings.drain_s, settings.cron_s if cron else 0.0)
            if spent < budget:
                return DrainStep(plan, wait=budget - spent)
            return DrainStep(attrs.evolve(plan, phase="interrupted", since=now, forced=True), interrupt=True)
        case _:
            if spent < settings.grace_s:
                return DrainStep(plan, wait=settings.grace_s - spent)
            return DrainStep(attrs.evolve(plan, phase="done", since=now))
