"""Builds and maintenance of the completion: which steps there are, in order, and what follow-up each one leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nedura.update.completion_parts import Steps

if TYPE_CHECKING:
    from nedura.update.completion import Completion

__all__ = ["upkeep"]


def upkeep(completion: Completion) -> Steps:
    """The stages between the first member and the rest of the fleet."""
    return []
