"""Which event classes this version can read back from the wire."""

from __future__ import annotations

import functools
import importlib
from typing import Any, Final

__all__ = ["AREAS", "known_kinds"]

AREAS: Final = (
    "nedura.update.events",
    "nedura.update.events_snapshot",
    "nedura.update.events_completion",
    "nedura.update.generation.pm",
    "nedura.update.ledger.writer",
    "nedura.fleet.events",
    "nedura.fleet.restart_events",
)
"""Modules with an `EVENTS` tuple. An area with events of its own adds its module here."""


@functools.cache
def known_kinds() -> dict[str, type[Any]]:
    """Kind -> class over all areas."""
    return {cls.kind: cls for area in AREAS for cls in importlib.import_module(area).EVENTS}
