"""Error codes of a server: words from outside that end up in logs, states and stores. No IO."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["OTHER", "server_code"]

OTHER: Final = "other"
"""Stands for a code that is none: what a server puts there may be a token that it was sent."""

_CODE: Final = re.compile(r"[a-z][a-z0-9_]{0,39}")


def server_code(value: object) -> str:
    """The code when it has the form of one, `other` when it has not, empty when there is none."""
    if not isinstance(value, str) or not value:
        return ""
    return value if _CODE.fullmatch(value) else OTHER
