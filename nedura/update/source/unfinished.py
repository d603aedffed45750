"""What somebody began in a checkout with git and did not finish: told before anything else is said about its code."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

__all__ = ["has_operation", "unfinished_text"]

_OPERATIONS: Final = {
    "rebase-merge": "a rebase",
    "rebase-apply": "a rebase",
    "MERGE_HEAD": "a merge",
    "CHERRY_PICK_HEAD": "a cherry-pick",
    "REVERT_HEAD": "a revert",
    "sequencer": "a cherry-pick or revert of several commits",
    "BISECT_LOG": "a bisect",
}
"""File of the git folder -> what it tells of; a rebase keeps a CHERRY_PICK_HEAD, too."""


def has_operation(git_dir: Path) -> str:
    """What somebody began in the checkout and did not finish; empty when nothing."""
    return next((words for name, words in _OPERATIONS.items() if os.path.lexists(git_dir / name)), "")


def unfinished_text(begun: str, checkout: str) -> str:
    """One sentence for people: what waits, and that no update moves it."""
    return f"{begun[0].upper()}{begun[1:]} is not finished in {checkout}: finish it or abort it; until then no update moves it."
