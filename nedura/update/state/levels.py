"""Which state a version can read: its `state_min` and `state_max`, and the refusal of what does not fit (decision 44)."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from nedura.errors import RefusedError

__all__ = ["StateIncompatible", "StateRange", "judge_state", "state_range", "stated_range"]


class StateIncompatible(RefusedError):
    """Raised when a version cannot read the state that the homes have now."""

    code = "state_incompatible"


@attrs.frozen
class StateRange:
    """State levels of one version.

    Attributes:
        state_min: the oldest level that it reads.
        state_max: the newest level that it reads, and the one that it writes.
    """

    state_min: int = 1
    state_max: int = 1


def stated_range(pyproject: Mapping[str, Any], command: str) -> StateRange:
    """What a project table states under `[tool.<command>.state]`; a version that states nothing has level 1 alone."""
    node: Any = pyproject
    for part in ("tool", command, "state"):
        node = node.get(part) if isinstance(node, Mapping) else None
    if not isinstance(node, Mapping):
        return StateRange()
    low, high = node.get("min"), node.get("max")
    if type(low) is not int or type(high) is not int or not 1 <= low <= high:
        return StateRange()
    return StateRange(low, high)


def state_range(tree: Path, command: str) -> StateRange:
    """The range that a tree of files states. Blocks the thread."""
    try:
        return stated_range(tomllib.loads((tree / "pyproject.toml").read_text("utf-8")), command)
    except (OSError, ValueError):
        return StateRange()


def judge_state(target: StateRange, level: int) -> None:
    """Refuse a version that cannot read the state of today.

    Args:
        target: what the version to run reads.
        level: what the version that runs now writes.

    Raises:
        StateIncompatible: the level is outside its range.
    """
    if target.state_min <= level <= target.state_max:
        return
    reads = (
        f"level {target.state_min}"
        if target.state_min == target.state_max
        else f"levels {target.state_min} to {target.state_max}"
    )
    raise StateIncompatible(
        f"The state here has level {level}; the version to run reads {reads}. Nothing was changed.",
        advice="Go back together with the state: --rollback RECEIPT --with-backup"
        if level > target.state_max
        else "Update to a version in between first.",
    )
