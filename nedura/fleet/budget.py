"""How long a service manager may take to restart a unit, from its own limits (facts/update.md 7.8, decision 19). No IO.

The two texts are what `systemctl show --property=TimeoutStopUSec,TimeoutStartUSec` prints: either a bare number of microseconds or
a formatted time span in systemd's fixed units.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

__all__ = [
    "CAP_SECONDS",
    "FALLBACK_SECONDS",
    "SLACK_SECONDS",
    "drain_limit",
    "parse_span",
    "phase_limit",
    "restart_budget",
]

SLACK_SECONDS: Final = 15.0
"""What the client waits beyond the manager's own limits."""

FALLBACK_SECONDS: Final = 90.0
"""Limit of a phase that names none, or none that ends."""

CAP_SECONDS: Final = 2_147_482.0
"""Largest wait that fits a signed 32-bit millisecond poll, with a second of headroom."""

DRAIN_FLOOR: Final = 45.0
DEFAULT_DRAIN: Final = 1800.0
"""What a member's own drain takes at most when it does not say (decision 47: after-turn 1800 s, drain 0 s)."""

_INFINITE_USEC: Final = 2**64 - 1
_SECONDS: Final[dict[str, Decimal]] = {
    "us": Decimal("0.000001"),
    "µs": Decimal("0.000001"),
    "μs": Decimal("0.000001"),
    "ms": Decimal("0.001"),
    "s": Decimal(1),
    "sec": Decimal(1),
    "min": Decimal(60),
    "h": Decimal(3600),
    "hr": Decimal(3600),
    "d": Decimal(86_400),
    "w": Decimal(604_800),
    "month": Decimal(2_629_800),
    "y": Decimal(31_557_600),
}
_PAIR: Final = re.compile(r"\s*([0-9]{1,30}(?:\.[0-9]{1,30})?)\s*([a-zµμ]+)")
_MAX_TEXT: Final = 200


def parse_span(text: str | None) -> float | None:
    """Seconds of one limit as `systemctl show` prints it; None when it is missing, makes no sense or never ends.

    Args:
        text: bare ASCII digits are microseconds; else value-unit pairs, glued or spaced, which are summed.
    """
    if text is None or len(text) > _MAX_TEXT:
        return None
    text = text.strip()
    if text.isascii() and text.isdigit():
        micros = int(text)
        return None if micros == _INFINITE_USEC else micros / 1_000_000
    total, position = Decimal(0), 0
    while position < len(text):
        pair = _PAIR.match(text, position)
        unit = _SECONDS.get(pair[2]) if pair else None
        if pair is None or unit is None:
            return None
        total += Decimal(pair[1]) * unit
        position = pair.end()
    return float(total) if text else None


def phase_limit(text: str | None) -> float:
    """Seconds that one phase may take: its own limit, or the fallback when that is unknown, zero or infinite."""
    seconds = parse_span(text)
    return FALLBACK_SECONDS if seconds is None or seconds <= 0 else seconds


def restart_budget(stop: str | None, start: str | None, *, drained: bool = False) -> float:
    """Seconds to wait for a restart; the same for the first attempt, the retry and the catch-up.

    Args:
        stop: `TimeoutStopUSec` as `systemctl show` gives it, None when missing.
        start: `TimeoutStartUSec` likewise.
        drained: the process already ended by a graceful drain, so only the start remains.
    """
    total = phase_limit(start) + SLACK_SECONDS
    if not drained:
        total += phase_limit(stop)
    return min(total, CAP_SECONDS)


def drain_limit(declared: float | None) -> float:
    """Seconds that a member may take from SIGUSR1 to its exit (facts/update.md 7.5).

    Args:
        declared: what the member says its own drain takes at most, None when it says nothing.
    """
    own = DEFAULT_DRAIN if declared is None or not 0 <= declared < CAP_SECONDS else declared
    return min(max(DRAIN_FLOOR, own + SLACK_SECONDS), CAP_SECONDS)
