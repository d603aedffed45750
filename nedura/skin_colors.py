"""Colours of skins: one validator for every renderer, and contrast by computed luminance (C167, C168). No IO."""

from __future__ import annotations

import re
from typing import Any, Final

__all__ = ["ON_TERMINAL", "contrast", "hex_color", "is_light", "readable"]

_HEX: Final = re.compile(r"^#[0-9a-fA-F]{6}$")

ON_TERMINAL: Final = frozenset(
    {
        "banner_border", "banner_title", "banner_accent", "banner_dim", "banner_text", "ui_accent", "ui_label", "ui_ok",
        "ui_error", "ui_warn", "prompt", "input_rule", "response_border", "session_label", "session_border",
        "shell_dollar",
    }
)  # fmt: skip
"""Colours that are drawn on the terminal's own background. The others stand on a background of ours."""

_FAINT: Final = frozenset({"banner_dim", "banner_border", "input_rule", "response_border", "session_border"})
TEXT_CONTRAST: Final = 4.5
FAINT_CONTRAST: Final = 3.0
"""Contrast of text and of borders and dim text (WCAG 2.2, 1.4.3 and 1.4.11)."""


def hex_color(value: Any) -> str | None:
    """`#rrggbb` in lower case; None for everything else."""
    return value.lower() if isinstance(value, str) and _HEX.fullmatch(value) else None


def _channels(color: str) -> tuple[int, int, int]:
    return int(color[1:3], 16), int(color[3:5], 16), int(color[5:7], 16)


def _luminance(color: str) -> float:
    """Relative luminance (WCAG 2.2)."""
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
        for part in (channel / 255 for channel in _channels(color))
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """Contrast ratio of two colours, 1 to 21."""
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def _towards(color: str, target: int, share: float) -> str:
    mixed = (round(channel + (target - channel) * share) for channel in _channels(color))
    return "#" + "".join(f"{channel:02x}" for channel in mixed)


def readable(key: str, color: str, background: str) -> str:
    """A colour as it is, or the nearest darker or lighter one that can be read on a background.

    Args:
        key: colour key; borders and dim text need less.
        color: `#rrggbb`.
        background: `#rrggbb` of what it stands on.
    """
    wanted = FAINT_CONTRAST if key in _FAINT else TEXT_CONTRAST
    if contrast(color, background) >= wanted:
        return color
    target = 0 if _luminance(background) > 0.18 else 255
    for step in range(1, 20):
        nearer = _towards(color, target, step / 20)
        if contrast(nearer, background) >= wanted:
            return nearer
    return "#000000" if target == 0 else "#ffffff"


def is_light(color: str) -> bool:
    """Whether dark text can be read better than white on a background `#rrggbb`."""
    return contrast(color, "#000000") > contrast(color, "#ffffff")
