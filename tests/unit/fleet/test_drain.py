"""The drain's arithmetic."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nedura.fleet.drain import DrainPlan, DrainSettings, drain_step

SECONDS = st.integers(0, 10_000)


def run(settings: DrainSettings, *, restart: bool, ends_at: float, cron: int = 0) -> tuple[float, bool]:
    """Drive a drain whose work ends at a moment; returns (when it was done, whether it was forced)."""
    now, plan = 0.0, DrainPlan.begin(0.0, restart=restart)
    for _ in range(20):
        turns = int(now < ends_at)
        step = drain_step(plan, settings, now=now, turns=turns, cron=min(cron, turns))
        plan = step.plan
        if plan.phase == "done":
            return now, plan.forced
        if step.wait:
            now = min(now + step.wait, ends_at if now < ends_at else now + step.wait)
    raise AssertionError("the drain does not end")


def test_a_restart_waits_for_the_turn_and_no_longer() -> None:
    assert run(DrainSettings(), restart=True, ends_at=40.0) == (40.0, False)


def test_a_restart_that_outlives_its_patience_interrupts() -> None:
    settings = DrainSettings(after_turn_s=10, drain_s=3, grace_s=5)
    assert run(settings, restart=True, ends_at=1000.0) == (18.0, True)


def test_a_stop_goes_straight_to_its_own_budget() -> None:
    settings = DrainSettings(after_turn_s=1800, drain_s=2, grace_s=5)
    assert run(settings, restart=False, ends_at=1.0) == (1.0, False)
    assert run(settings, restart=False, ends_at=100.0) == (7.0, True)


def test_scheduled_work_has_a_floor() -> None:
    settings = DrainSettings(drain_s=0, cron_s=30)
    assert run(settings, restart=False, ends_at=20.0, cron=1) == (20.0, False)
    assert run(settings, restart=False, ends_at=20.0, cron=0) == (5.0, True)


def test_a_stop_signal_hurries_a_restart_and_keeps_its_code() -> None:
    settings = DrainSettings(after_turn_s=1800, drain_s=0, grace_s=1)
    plan = DrainPlan.begin(0.0, restart=True).stop_now(5.0)
    step = drain_step(plan, settings, now=5.0, turns=1)
    assert step.interrupt
    assert step.plan.restart


@given(SECONDS, SECONDS, st.integers(1, 100), st.booleans(), SECONDS)
def test_every_drain_ends_inside_its_budget(
    after: float, drain: float, grace: float, restart: bool, ends_at: float
) -> None:
    settings = DrainSettings(after_turn_s=after, drain_s=drain, cron_s=0, grace_s=grace)
    done, forced = run(settings, restart=restart, ends_at=ends_at)
    limit = (after if restart else 0) + drain + grace
    assert done <= limit + 1e-6
    assert forced or done <= ends_at + 1e-6
    assert settings.budget_s >= done - 1e-6 or not restart


@pytest.mark.parametrize(
    ("config", "environ", "expected"),
    [
        ({}, {}, 1800.0),
        ({"agent.restart_after_turn_timeout": 60}, {}, 60.0),
        ({"agent.restart_after_turn_timeout": 60}, {"NEDURA_RESTART_AFTER_TURN_TIMEOUT": "7"}, 7.0),
        ({"agent.restart_after_turn_timeout": "junk"}, {}, 1800.0),
        ({"agent.restart_after_turn_timeout": -1}, {}, 1800.0),
        ({"agent.restart_after_turn_timeout": float("inf")}, {}, 1800.0),
        ({"agent.restart_after_turn_timeout": float("nan")}, {}, 1800.0),
        ({"agent.restart_after_turn_timeout": 0}, {}, 0.0),
    ],
)
def test_settings(config: dict[str, object], environ: dict[str, str], expected: float) -> None:
    assert DrainSettings.read(config.get, environ).after_turn_s == expected
