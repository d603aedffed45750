"""Conversations on disk: `<home>/sessions/shell-<stamp>.json`, readable by their owner alone."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Any, Final

from nedura.errors import RecordMissing, StoreError, UsageError
from nedura.records import make_folder, read_json, write_json
from nedura.text import clean
from nedura_cli.shell.talk import Conversation

__all__ = ["fresh_name", "load", "save"]

_NAME: Final = re.compile(r"shell-[0-9]{8}-[0-9]{6}-[0-9]+")
LARGEST: Final = 8 * 1024 * 1024


def fresh_name(home: Path, now: float | None = None) -> str:
    """Name of a new conversation, one that its home does not hold yet."""
    now = time.time() if now is None else now
    while True:
        name = f"shell-{time.strftime('%Y%m%d-%H%M%S', time.localtime(now))}-{os.getpid()}"
        if not (home / "sessions" / f"{name}.json").exists():
            return name
        now += 1


def save(home: Path, name: str, talk: Conversation) -> None:
    """Keep a conversation; one without an answer is not kept.

    Raises:
        StoreError: it cannot be written.
    """
    if talk.messages:
        make_folder(home / "sessions")
        write_json(home / "sessions" / f"{name}.json", {"version": 1, "messages": talk.messages})


def load(home: Path, name: str) -> tuple[str, Conversation]:
    """A conversation by name, or the newest one for an empty name.

    Raises:
        UsageError: there is none.
    """
    if not name:
        names = sorted(
            path.stem for path in (home / "sessions").glob("shell-*.json") if _NAME.fullmatch(path.stem)
        )
        if not names:
            raise UsageError("There is no conversation to continue.")
        name = names[-1]
    if not _NAME.fullmatch(name):
        raise UsageError(f"{clean(name, 60)!r} is no conversation of this shell.")
    try:
        record = read_json(home / "sessions" / f"{name}.json", LARGEST)
    except RecordMissing as error:
        raise UsageError(f"There is no conversation {name}.") from error
    except StoreError as error:
        raise UsageError(f"The conversation {name} cannot be read: {error.message}") from error
    return name, Conversation(_messages(record))


def _messages(record: Any) -> list[dict[str, str]]:
    rows = record.get("messages") if isinstance(record, dict) else None
    return [
        {"role": row["role"], "content": row["content"]}
        for row in (rows if isinstance(rows, list) else [])
        if isinstance(row, dict)
        and row.get("role") in ("user", "assistant")
        and isinstance(row.get("content"), str)
    ]
