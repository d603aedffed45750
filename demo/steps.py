"""The demo's steps by name."""

from __future__ import annotations

from typing import Final

__all__ = ["STEPS"]

STEPS: Final = (
    "Install from a git origin",
    "Development portal",
    "Three gateways, each with a turn in progress",
    "Sign in",
    "Update the live fleet",
    "A second update",
    "Clean up",
)
