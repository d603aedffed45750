"""Which launches leave an unfinished update alone. Apart from `launch`, so that those pay for nothing of it."""

from __future__ import annotations

from typing import Final

__all__ = ["EXEMPT", "is_exempt"]

EXEMPT: Final = frozenset({"update", "install", "pm", "completion", "dev", "gateway", "serve", "dashboard"})
"""Commands that never retry: they are the update itself, or they run under a supervisor."""


def is_exempt(command: str | None, *, as_json: bool) -> bool:
    """Whether this launch must not touch what is owed: the wrong command, or a reader that wants nothing but its JSON.

    Args:
        command: the command, None for `--version`, `--help` and the like.
        as_json: whether stdout belongs to a machine.
    """
    return command is None or as_json or command in EXEMPT
