"""What a caller may ask of one update (facts/update.md 1.1)."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import attrs

__all__ = ["SnapshotMode", "UpdateOptions"]

SnapshotMode = Literal["quick", "full", "off"]


@attrs.frozen(kw_only=True)
class UpdateOptions:
    """Options of one run; every default is what an unattended update wants.

    Attributes:
        backup: full mode for this run: quick snapshots and a zip of the root home.
        no_backup: neither; beats `backup` and the configuration.
        yes: never ask: accepts config migrations and the restore of local edits.
        keep_stash: leave local edits of a checkout layout parked after the update.
        branch: update against this branch of the remote; beats every channel.
        switch_branch: one-run override of `updates.parked_branch_strategy: update_in_place`.
        channel: release channel for this run only.
        no_gateway_restart: update the code and leave the fleet restart owed.
        gateway_mode: prompts and the exit code go through files of the active home (chat `/update`).
        strict: exit 3 instead of 0 when work is left owed (decision 36).
        run_id: id of this run and its receipt; the same id again reports instead of repeating.
        retry: try again a generation that failed before (decision 34).
        allow_downgrade: accept a target that is older than what runs.
        probe: boot one probe process on copied state before the commit (decision 33).
        wheels: folder of wheels to install from instead of an index.
        rollback: go back to the code before a receipt: its path or id, or empty for the latest; None for an update.
        with_backup: a rollback also brings back state from that run's full backup.
        finish_only: fetch and move nothing; only finish what earlier runs left owed (the retry at launch).
        deadline: seconds this run may take in all; None lets the plan compute it.
    """

    backup: bool = False
    no_backup: bool = False
    yes: bool = False
    keep_stash: bool = False
    branch: str | None = None
    switch_branch: bool = False
    channel: str | None = None
    no_gateway_restart: bool = False
    gateway_mode: bool = False
    strict: bool = False
    run_id: str | None = None
    retry: bool = False
    allow_downgrade: bool = False
    probe: bool = True
    wheels: Path | None = None
    rollback: str | None = None
    with_backup: bool = False
    finish_only: bool = False
    deadline: float | None = None
