"""Whether a run must hand over to new code at all. Apart from the hand-over, which a run with nothing to do never loads."""

from __future__ import annotations

from nedura.update.commit_point import debt_of, tail_of
from nedura.update.run import Run

__all__ = ["is_needed"]


def is_needed(run: Run) -> bool:
    """Whether anything is left for new code: the code moved, something is owed, or a live member runs other code."""
    owed_here = run.notes.get("channel_retirement") or run.notes.get("windows_resume")
    if run.changed or run.candidate is None or owed_here:
        return True
    if tail_of(run).is_armed() or debt_of(run).read() is not None:
        return True
    runtimes = run.plan.runtimes if run.plan is not None else ()
    same = (None, "", run.candidate.identity.code_sha)
    return any(one.kind == "gateway" and one.code_sha not in same for one in runtimes)
