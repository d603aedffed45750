"""The one line by which a dashboard that started an update finds its end in the output (facts/update.md 1.3, step 7)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from nedura.product import NEDURA, Product

__all__ = ["action_id", "action_marker"]

MARKER: Final = "=== {command} update {id}: {end} ==="
_ACTION: Final = re.compile(r"^[0-9a-f]{32}$")


def action_id(environ: Mapping[str, str], product: Product = NEDURA) -> str:
    """Id of the dashboard action that this process answers for: exactly 32 lower-case hex digits, else empty."""
    value = product.setting(environ, "ACTION_ID")
    return value if _ACTION.match(value) else ""


def action_marker(
    environ: Mapping[str, str], *, success: bool, exit_code: int, product: Product = NEDURA
) -> str:
    """The marker line; empty when no dashboard asked.

    Args:
        environ: the process's environment.
        success: whether the receipt closed as success.
        exit_code: what the process exits with.
        product: names.
    """
    value = action_id(environ, product)
    if not value:
        return ""
    end = "completed" if success else f"failed with exit {exit_code}"
    return MARKER.format(command=product.command, id=value, end=end)
