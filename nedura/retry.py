"""How long a server asks to wait."""

from __future__ import annotations

import re
from email.utils import parsedate_to_datetime

__all__ = ["parse_retry_after"]


def parse_retry_after(value: str, now: float) -> float | None:
    """Seconds of a Retry-After header: plain ASCII digits or an HTTP date in the future (RFC 9110 10.2.3); None for the rest.

    Args:
        value: the header's value.
        now: unix seconds.
    """
    value = value.strip()
    if re.fullmatch(r"[0-9]{1,12}", value):
        seconds = float(value)
    else:
        try:
            seconds = parsedate_to_datetime(value).timestamp() - now
        except (ValueError, TypeError, OverflowError, IndexError):
            return None
    return seconds if 0 < seconds < 1e10 else None
