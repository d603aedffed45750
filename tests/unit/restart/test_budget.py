from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nedura.fleet.budget import CAP_SECONDS, FALLBACK_SECONDS, SLACK_SECONDS, parse_span, restart_budget

# facts/update.md 7.8: (TimeoutStopUSec, TimeoutStartUSec, restart, start only)
TABLE = [
    ("1min 30s", "1min 30s", 195, 105),
    ("70000000", "90s", 175, 105),
    (" 70000000 ", "90s", 175, 105),
    ("1min 10s", "90s", 175, 105),
    ("3min 30s", "1min 30s", 315, 105),
    ("210000000", "90000000", 315, 105),
    ("2min", "45s", 180, 60),
    ("500ms", "90s", 105.5, 105),
    ("1d 6h", "90s", 108105, 105),
    ("1w", "90s", 604905, 105),
    ("3w", "90s", 1814505, 105),
    ("1month", "90s", 2147482, 105),
    ("1y", "1y", 2147482, 2147482),
    ("18446744073709551614", "90s", 2147482, 105),
    ("0", "90s", 195, 105),
    ("infinity", "1min 30s", 195, 105),
    ("1min 30s", "infinity", 195, 105),
    (None, "90s", 195, 105),
    ("garbage", "90s", 195, 105),
    (None, None, 195, 105),
    # decision 19: systemd's numeric "infinity"
    ("18446744073709551615", "90s", 195, 105),
    # C072
    ("1min 30s", "90000000", 195, 105),
    ("infinity", "0", 195, 105),
    ("", "garbage", 195, 105),
    ("1w 2d", "500us", 777600 + 0.0005 + 15, 15.0005),
    ("1y 6month", "90s", 2147482, 105),
    ("2min 3.5s", "90s", 228.5, 105),
    ("1min30s", "1hr 1sec", 90 + 3601 + 15, 3616),
    ("0s", "0us", 195, 105),
    ("1min -30s", "90s", 195, 105),
    ("٧٠", "90s", 195, 105),
    ("1 fortnight", "90s", 195, 105),
    ("30 s trailing", "90s", 195, 105),
    ("9" * 300, "90s", 195, 105),
]


@pytest.mark.parametrize(("stop", "start", "restart", "start_only"), TABLE)
def test_c072_every_spelling_of_a_limit(
    stop: str | None, start: str | None, restart: float, start_only: float
) -> None:
    assert restart_budget(stop, start) == pytest.approx(restart, abs=1e-6)
    assert restart_budget(stop, start, drained=True) == pytest.approx(start_only, abs=1e-6)


@given(st.one_of(st.none(), st.text()), st.one_of(st.none(), st.text()), st.booleans())
def test_any_text_gives_a_bounded_wait(stop: str | None, start: str | None, drained: bool) -> None:
    budget = restart_budget(stop, start, drained=drained)
    assert SLACK_SECONDS < budget <= CAP_SECONDS
    assert math.floor(budget * 1000) < 2**31 - 1


@given(st.integers(0, 2**64 - 2), st.integers(0, 2**64 - 2))
def test_a_drained_start_never_waits_longer_than_a_restart(stop: int, start: int) -> None:
    whole = restart_budget(str(stop), str(start))
    only = restart_budget(str(stop), str(start), drained=True)
    assert only <= whole
    expected = (stop / 1e6 or FALLBACK_SECONDS) + (start / 1e6 or FALLBACK_SECONDS) + SLACK_SECONDS
    assert whole == pytest.approx(min(expected, CAP_SECONDS))


_UNITS = {"us": 1, "ms": 1000, "s": 10**6, "min": 60 * 10**6, "h": 3600 * 10**6, "d": 86_400 * 10**6}


@given(
    st.lists(st.tuples(st.integers(0, 10_000), st.sampled_from(sorted(_UNITS))), min_size=1, max_size=5),
    st.sampled_from(["", " "]),
    st.sampled_from(["", " ", "  "]),
)
def test_pairs_are_summed_glued_or_spaced(pairs: list[tuple[int, str]], inside: str, between: str) -> None:
    text = between.join(f"{value}{inside}{unit}" for value, unit in pairs)
    micros = sum(value * _UNITS[unit] for value, unit in pairs)
    assert parse_span(text) == pytest.approx(micros / 1e6)
