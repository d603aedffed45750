"""Updates an install in place together with every long-running process that serves it.

Public names load on first use; renderers import only these.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

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
    from nedura.update.install import install_checkout
    from nedura.update.kinds import known_kinds
    from nedura.update.marker import action_marker
    from nedura.update.options import UpdateOptions
    from nedura.update.parts import Refusal, UpdateParts
    from nedura.update.receipts import ReceiptStore
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
    "ReceiptStore": "nedura.update.receipts",
    "Refusal": "nedura.update.parts",
    "Run": "nedura.update.run",
    "UpdateOptions": "nedura.update.options",
    "UpdateParts": "nedura.update.parts",
    "action_marker": "nedura.update.marker",
    "install_checkout": "nedura.update.install",
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
    "ReceiptStore",
    "Refusal",
    "Run",
    "Skipped",
    "SnapshotTaken",
    "StageFinished",
    "StageStarted",
    "StepDone",
    "TakenBack",
    "UpdateFinished",
    "UpdateOptions",
    "UpdateParts",
    "UpdateStarted",
    "UserAction",
    "action_marker",
    "install_checkout",
    "known_kinds",
]

__getattr__, __dir__ = attach(__name__, _EXPORTS)


class _Package(ModuleType):
    """`nedura.update` names this package and the function of the same name; the package answers for both."""

    def __call__(self, **arguments: Any) -> Any:
        """`nedura.update(...)`: see `nedura.update.pipeline.update`."""
        from nedura.update.pipeline import update

        return update(**arguments)


sys.modules[__name__].__class__ = _Package
