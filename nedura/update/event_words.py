"""Stages, outcomes and follow-ups of an update, and the words that every surface has for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from nedura.installs import CodeIdentity

__all__ = [
    "FOLLOWUP_PREFIX",
    "FOLLOWUP_WORDS",
    "RETRIED_BY",
    "RETRIED_BY_UPDATE",
    "STAGE_WORDS",
    "Outcome",
    "Stage",
    "StageOutcome",
    "size_text",
    "stage_words",
    "version_text",
]

Stage = Literal[
    "admission",
    "plan",
    "snapshot",
    "prepare",
    "validate",
    "commit",
    "deps",
    "build",
    "first_member",
    "maintenance",
    "restart",
    "verify",
]
StageOutcome = Literal["success", "failed", "skipped"]
Outcome = Literal["running", "success", "partial", "failed", "refused", "interrupted"]

STAGE_WORDS: Final[Mapping[str, str]] = {
    "admission": "Checking this install",
    "plan": "Looking at the fleet",
    "snapshot": "Saving a snapshot of every profile",
    "prepare": "Preparing the new version aside",
    "validate": "Checking the new version before anything is stopped",
    "commit": "Switching to the new version",
    "deps": "Installing dependencies",
    "build": "Building",
    "maintenance": "Bringing every profile up to date",
    "first_member": "Restarting one member first",
    "restart": "Restarting the fleet",
    "verify": "Checking what every member runs",
}
BACK_WORDS: Final[Mapping[str, str]] = {
    "prepare": "Looking for the version to go back to",
    "validate": "Checking that version before anything is stopped",
    "commit": "Switching back",
}
"""Stages of a deliberate way back (decision 44): what it switches to is not new."""


def stage_words(stage: str, going_back: bool) -> str:
    """A stage as people read it."""
    words = STAGE_WORDS.get(stage, stage)
    return BACK_WORDS.get(stage, words) if going_back else words


FOLLOWUP_WORDS: Final[Mapping[str, str]] = {
    "dependencies": "installing dependencies",
    "launchers": "publishing the launchers",
    "build": "a build",
    "bytecode": "sweeping old bytecode",
    "maintenance": "profile maintenance",
    "profile_sync": "bringing a profile up to date",
    "config_migration": "a config migration",
    "completion": "finishing the update",
    "channel": "adopting the release channel",
    "gateway_restart": "restarting part of the fleet",
    "windows_resume": "resuming paused services",
    "sqlite_runtime": "a safe SQLite runtime",
}
FOLLOWUP_PREFIX: Final = "⚠ Update follow-up"
"""Start of every follow-up's one line; hand-off scripts read the step name in single quotes after it (facts/update.md 9.2)."""
RETRIED_BY: Final = "retried at the next launch and by the next update"
RETRIED_BY_UPDATE: Final = "named at each launch, retried by the next update"
"""Of the fleet's restart: a launch asks the live fleet and says who owes it, it restarts nobody."""


def size_text(size: int) -> str:
    """Bytes as people read them."""
    amount = float(size)
    for unit in ("B", "KB", "MB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} GB"


def version_text(code: CodeIdentity) -> str:
    """Version and short commit of some code."""
    return (
        f"{code.code_version or 'unknown version'} ({code.short()})" if code.code_sha else code.code_version
    )
