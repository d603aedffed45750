"""How an update that somebody else started is doing: read from its receipt, never from a child handle (C105)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, final

import attrs

from nedura.update.ledger.interrupted import is_abandoned
from nedura.update.ledger.owner import Owner, is_alive
from nedura.update.ledger.receipt import is_finished, owed_steps
from nedura.update.ledger.receipts import ReceiptStore

__all__ = ["UpdateStatus", "status_by_action", "status_of"]


@final
@attrs.frozen(kw_only=True)
class UpdateStatus:
    """One run as a dashboard shows it.

    Attributes:
        run_id, action_id: the run and the action that started it.
        outcome: the receipt's, with `interrupted` for a run whose processes are gone.
        stage: the stage that was begun last.
        exit_code: None while it runs.
        followups: steps that stay owed.
        stop_reason: one line.
        started_at, finished_at: ISO UTC.
    """

    kind: ClassVar[str] = "update_status"
    run_id: str
    action_id: str = ""
    outcome: str = "running"
    stage: str = ""
    exit_code: int | None = None
    followups: tuple[str, ...] = ()
    stop_reason: str = ""
    started_at: str = ""
    finished_at: str = ""

    @property
    def copy(self) -> str:
        """Chat form."""
        if self.outcome == "running":
            return "The update is running."
        if self.outcome == "success":
            return "The update is done." if not self.followups else "Updated. Some steps are still to do."
        words = {
            "partial": "Updated, but your local changes wait for you.",
            "refused": "The update was refused.",
        }
        return words.get(self.outcome, f"The update ended: {self.outcome}.")

    @property
    def copy_terminal(self) -> str:
        """Terminal form."""
        stage = f" ({self.stage})" if self.outcome == "running" and self.stage else ""
        reason = f": {self.stop_reason}" if self.stop_reason else ""
        return f"{self.run_id[:8]} {self.outcome}{stage}{reason}"


def status_of(receipt: Mapping[str, Any], alive: Callable[[Owner], bool] = is_alive) -> UpdateStatus:
    """A receipt as a status; a `running` one whose processes are gone is interrupted."""
    gone = is_abandoned(receipt, alive)
    code = receipt.get("exit_code")
    return UpdateStatus(
        run_id=str(receipt.get("update_id", "")),
        action_id=str(receipt.get("action_id") or ""),
        outcome="interrupted" if gone else str(receipt.get("outcome", "running")),
        stage=str(receipt.get("stage") or ""),
        exit_code=code if isinstance(code, int) and is_finished(receipt) else None,
        followups=tuple(owed_steps(receipt)),
        stop_reason="its processes are gone" if gone else str(receipt.get("stop_reason") or ""),
        started_at=str(receipt.get("started_at") or ""),
        finished_at=str(receipt.get("finished_at") or ""),
    )


def status_by_action(
    root_home: Path, action_id: str, alive: Callable[[Owner], bool] = is_alive
) -> UpdateStatus | None:
    """The status of the run that a dashboard action started: the newest receipt first, then the archive; None when there is none.

    Args:
        root_home: the root home.
        action_id: 32 lower-case hex digits.
        alive: seam.
    """
    receipt = ReceiptStore(root_home).by_action(action_id)
    return None if receipt is None else status_of(receipt, alive)
