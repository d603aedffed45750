"""Updates an install in place together with every long-running process that serves it.

Public names load on first use; renderers import only these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nedura._lazy import attach

if TYPE_CHECKING:
    from nedura.update.events import (
        AlreadyReported,
        Committed,
        CompletionStarted,
        FollowUp,
        InterruptedFound,
        Notice,
        PlanReady,
        Prepared,
        Progress,
        Skipped,
        SnapshotTaken,
        StageFinished,
        StageStarted,
        StepDone,
        TakenBack,
        UpdateFinished,
        UpdateStarted,
        UserAction,
    )
    from nedura.update.kinds import known_kinds
    from nedura.update.install import install
    from nedura.update.options import UpdateOptions
    from nedura.update.run import Candidate, Run

_EXPORTS = {
    **dict.fromkeys(
        (
            "AlreadyReported",
            "Committed",
            "CompletionStarted",
            "FollowUp",
            "InterruptedFound",
            "Notice",
            "PlanReady",
            "Prepared",
            "Progress",
            "Skipped",
            "SnapshotTaken",
            "StageFinished",
            "StageStarted",
            "StepDone",
            "TakenBack",
            "UpdateFinished",
            "UpdateStarted",
            "UserAction",
        ),
        "nedura.update.events",
    ),
    "Candidate": "nedura.update.run",
    "Run": "nedura.update.run",
    "UpdateOptions": "nedura.update.options",
    "install": "nedura.update.install",
    "known_kinds": "nedura.update.kinds",
}

__all__ = [
    "AlreadyReported",
    "Candidate",
    "Committed",
    "CompletionStarted",
    "FollowUp",
    "InterruptedFound",
    "Notice",
    "PlanReady",
    "Prepared",
    "Progress",
    "Run",
    "Skipped",
    "SnapshotTaken",
    "StageFinished",
    "StageStarted",
    "StepDone",
    "TakenBack",
    "UpdateFinished",
    "UpdateOptions",
    "UpdateStarted",
    "UserAction",
    "install",
    "known_kinds",
]

__getattr__, __dir__ = attach(__name__, _EXPORTS)
