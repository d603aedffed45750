"""How one member is told to restart, and the words for what it still does: no IO."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from nedura.fleet.model import Runtime
from nedura.text import clean

__all__ = ["progress_step", "triage", "waiting_words"]


def triage(runtime: Runtime) -> Literal["signal", "force", "end", "drain"]:
    """How a member is told to restart (facts/update.md 7.5).

    An ancestor is signalled and never waited for: it waits for us. Serve and dashboard have no drain: SIGUSR1 would just kill them.
    A loop that is proven to stand still cannot drain: it is ended, whatever its stop limit.
    """
    if runtime.kind != "gateway":
        return "force"
    if runtime.wedged and not runtime.ancestor:
        return "end"
    return "signal" if runtime.ancestor else "drain"


def progress_step(elapsed: float, tick: float) -> float:
    """Seconds until the next progress line: often at first, then seldom."""
    return tick if elapsed < 10 * tick else 5 * tick if elapsed < 120 * tick else 30 * tick


def waiting_words(answer: Runtime | None) -> str:
    """What a draining member still does, in words."""
    if answer is None:
        return "its process to end"
    if not answer.active_turns:
        return "its clean-up"
    work: Any = answer.detail.get("active_work")
    kinds = (
        sorted({clean(item.get("kind"), 20) for item in work if isinstance(item, Mapping)})
        if isinstance(work, (list, tuple))
        else []
    )
    what = f" ({', '.join(filter(None, kinds))})" if any(kinds) else ""
    return f"{answer.active_turns} running turn{'' if answer.active_turns == 1 else 's'}{what}"
