"""`.update_exit_code` in the active home: how a chat that asked for an update hears of its end (facts/update.md 1.6).

`0`, or `1` when the run really is not 0. It is written as 0 before the fleet's restart, which can end whoever waits for it.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

from nedura.errors import StoreError
from nedura.records import remove, write_json
from nedura.update.events import Notice

__all__ = ["forget_old_code", "tell_chat"]

NAME: Final = ".update_exit_code"

log = logging.getLogger("nedura.update")


def tell_chat(home: Path, code: int) -> Notice | None:
    """Write the code; what to show when that is refused. A file for a chat never costs the update anything."""
    try:
        write_json(home / NAME, code)
    except StoreError as error:
        log.warning("the exit code cannot be written for the chat: %s", error.message)
        return Notice(text=f"The chat cannot be told how this update ends: {error.message}", warning=True)
    return None


def forget_old_code(home: Path) -> None:
    """Remove what an earlier run left: read too early it would pass for this one's end."""
    try:
        remove(home / NAME)
    except StoreError as error:
        log.warning("the exit code of an earlier update is still there: %s", error.message)
