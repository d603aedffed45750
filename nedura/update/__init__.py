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
        size_text,
    )
    from nedura.update.events_snapshot import (
        BackupFailed,
        BackupTaken,
        NetRestored,
        SnapshotFailed,
        SnapshotRestored,
        SnapshotsStarted,
    )
    from nedura.update.exempt import is_exempt
    from nedura.update.generation.install import install_checkout
    from nedura.update.generation.pm import PmCollected, PmStatus, collect_garbage, pm_status
    from nedura.update.generation.pm_repair import PmSynced, pm_sync
    from nedura.update.kinds import known_kinds
    from nedura.update.launch import Launch
    from nedura.update.ledger.interrupted import interruption
    from nedura.update.ledger.marker import action_marker
    from nedura.update.ledger.receipts import ReceiptStore
    from nedura.update.ledger.status import UpdateStatus, status_by_action, status_of
    from nedura.update.notice import check_and_remember, passive_notice
    from nedura.update.options import UpdateOptions
    from nedura.update.parts import Refusal, UpdateParts
    from nedura.update.planning.admission import Subject, find_subject
    from nedura.update.planning.plan import Plan
    from nedura.update.prompt import answer_prompt, pending_prompt
    from nedura.update.run import Candidate, Run
    from nedura.update.source.channels import set_channel
    from nedura.update.source.check import CheckResult
    from nedura.update.state.archive import IMPORT_LIMITS
    from nedura.update.state.backup import take_backup
    from nedura.update.state.copies import SignInCopies, sign_in_copies
    from nedura.update.state.home_import import LARGE, Imported, import_backup
    from nedura.update.state.nets import run_nets
    from nedura.update.state.restore import restore_snapshot, verify_snapshot
    from nedura.update.state.snapshot import MANUAL_KEEP, MANUAL_LABEL, take_snapshots
    from nedura.update.state.snapshot_manifest import list_snapshots

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
    "ReceiptStore": "nedura.update.ledger.receipts",
    "Refusal": "nedura.update.parts",
    "Run": "nedura.update.run",
    "UpdateOptions": "nedura.update.options",
    "UpdateParts": "nedura.update.parts",
    "IMPORT_LIMITS": "nedura.update.state.archive",
    "interruption": "nedura.update.ledger.interrupted",
    "take_backup": "nedura.update.state.backup",
    "BackupFailed": "nedura.update.events_snapshot",
    "BackupTaken": "nedura.update.events_snapshot",
    "NetRestored": "nedura.update.events_snapshot",
    "SnapshotFailed": "nedura.update.events_snapshot",
    "SnapshotRestored": "nedura.update.events_snapshot",
    "SnapshotsStarted": "nedura.update.events_snapshot",
    "SignInCopies": "nedura.update.state.copies",
    "sign_in_copies": "nedura.update.state.copies",
    "LARGE": "nedura.update.state.home_import",
    "Imported": "nedura.update.state.home_import",
    "import_backup": "nedura.update.state.home_import",
    "run_nets": "nedura.update.state.nets",
    "restore_snapshot": "nedura.update.state.restore",
    "verify_snapshot": "nedura.update.state.restore",
    "MANUAL_KEEP": "nedura.update.state.snapshot",
    "MANUAL_LABEL": "nedura.update.state.snapshot",
    "take_snapshots": "nedura.update.state.snapshot",
    "list_snapshots": "nedura.update.state.snapshot_manifest",
    "size_text": "nedura.update.events",
    "UpdateStatus": "nedura.update.ledger.status",
    "action_marker": "nedura.update.ledger.marker",
    "answer_prompt": "nedura.update.prompt",
    "pending_prompt": "nedura.update.prompt",
    "status_by_action": "nedura.update.ledger.status",
    "status_of": "nedura.update.ledger.status",
    "install_checkout": "nedura.update.generation.install",
    "Subject": "nedura.update.planning.admission",
    "find_subject": "nedura.update.planning.admission",
    "CheckResult": "nedura.update.source.check",
    "check_and_remember": "nedura.update.notice",
    "passive_notice": "nedura.update.notice",
    "set_channel": "nedura.update.source.channels",
    "PmStatus": "nedura.update.generation.pm",
    "PmCollected": "nedura.update.generation.pm",
    "collect_garbage": "nedura.update.generation.pm",
    "pm_status": "nedura.update.generation.pm",
    "Plan": "nedura.update.planning.plan",
    "PmSynced": "nedura.update.generation.pm_repair",
    "pm_sync": "nedura.update.generation.pm_repair",
    "known_kinds": "nedura.update.kinds",
    "Launch": "nedura.update.launch",
    "is_exempt": "nedura.update.exempt",
}

__all__ = [
    "IMPORT_LIMITS",
    "LARGE",
    "MANUAL_KEEP",
    "MANUAL_LABEL",
    "AlreadyReported",
    "BackupFailed",
    "BackupTaken",
    "Candidate",
    "CheckResult",
    "Committed",
    "CompletionStarted",
    "FollowUp",
    "Imported",
    "InterruptedFound",
    "Launch",
    "NetRestored",
    "Notice",
    "Plan",
    "PlanReady",
    "PmCollected",
    "PmStatus",
    "PmSynced",
    "Prepared",
    "Progress",
    "ReceiptStore",
    "Refusal",
    "Run",
    "SignInCopies",
    "Skipped",
    "SnapshotFailed",
    "SnapshotRestored",
    "SnapshotTaken",
    "SnapshotsStarted",
    "StageFinished",
    "StageStarted",
    "StepDone",
    "Subject",
    "TakenBack",
    "UpdateFinished",
    "UpdateOptions",
    "UpdateParts",
    "UpdateStarted",
    "UpdateStatus",
    "UserAction",
    "action_marker",
    "answer_prompt",
    "check_and_remember",
    "collect_garbage",
    "find_subject",
    "import_backup",
    "install_checkout",
    "interruption",
    "is_exempt",
    "known_kinds",
    "list_snapshots",
    "passive_notice",
    "pending_prompt",
    "pm_status",
    "pm_sync",
    "restore_snapshot",
    "run_nets",
    "set_channel",
    "sign_in_copies",
    "size_text",
    "status_by_action",
    "status_of",
    "take_backup",
    "take_snapshots",
    "verify_snapshot",
]

__getattr__, __dir__ = attach(__name__, _EXPORTS)


class _Package(ModuleType):
    """`nedura.update` names this package and the function of the same name; the package answers for both."""

    def __call__(self, **arguments: Any) -> Any:
        """`nedura.update(...)`: see `nedura.update.pipeline.update`."""
        from nedura.update.pipeline import update

        return update(**arguments)


sys.modules[__name__].__class__ = _Package
