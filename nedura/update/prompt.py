"""Questions of an update: to the person who watches, or through two files of the active home when a chat asks (facts/update.md 1.6).

Nobody there, no answer in time and `--yes` all mean the default.
"""

from __future__ import annotations

import logging
import os
import time
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import attrs

from nedura.clock import Clock
from nedura.errors import StoreError
from nedura.records import read_bytes, read_json, remove, write_bytes, write_json
from nedura.text import clean
from nedura.update.ledger.owner import Owner, is_alive, myself

__all__ = [
    "Ask",
    "Prompt",
    "answer_prompt",
    "ask_by_file",
    "forget_old_prompt",
    "pending_prompt",
    "said_yes",
]

log = logging.getLogger("nedura.update")

PROMPT: Final = ".update_prompt.json"
RESPONSE: Final = ".update_response"
PATIENCE: Final = 300.0
"""Seconds until the default counts."""
STEP: Final = 0.25


Ask = Callable[[str, str], Awaitable[str]]
"""Asks the person who watches: question and default in, answer out; empty means the default."""


@attrs.frozen(kw_only=True)
class Prompt:
    """A question that waits.

    Attributes:
        prompt: the question.
        default: what counts when nobody answers.
        id: made for this question; an answer must name it.
    """

    prompt: str
    default: str
    id: str


async def ask_by_file(home: Path, prompt: str, default: str, clock: Clock, patience: float = PATIENCE) -> str:
    """Ask, wait, and clean up; an empty answer and no answer mean the default.

    Args:
        home: the active home.
        prompt: the question.
        default: the answer that counts in doubt.
        clock: time seam.
        patience: seconds.

    Raises:
        StoreError: the question cannot be written.
    """
    question, answer = home / PROMPT, home / RESPONSE
    remove(answer)  # an answer to an older question is none to this one
    me = myself()
    asker = {"pid": me.pid, "pid_create_time": me.create_time, "pid_table": _pid_table()}
    write_json(question, {"prompt": prompt, "default": default, "id": str(uuid.uuid4()), **asker})
    try:
        until = clock.monotonic() + patience
        while clock.monotonic() < until:
            try:
                return clean(read_bytes(answer, 4096).decode("utf-8", "replace"), 500) or default
            except StoreError:
                await clock.sleep(STEP)
        return default
    finally:
        for path in (question, answer):
            remove(path)


def _pid_table() -> str:
    """Which numbers our pids are from; empty where that cannot be told."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _is_over(value: dict[str, Any], written: float, now: float) -> bool:
    """Whether nobody waits for an answer any more: its time is up, or the updater that asked was killed."""
    if now - written > PATIENCE + STEP:
        return True
    pid, created = value.get("pid"), value.get("pid_create_time")
    if (
        not isinstance(pid, int)
        or not isinstance(created, int | float)
        or value.get("pid_table") != _pid_table()
    ):
        return False  # an older updater's, or one whose pids say nothing here
    return not is_alive(Owner(pid, float(created)))


def forget_old_prompt(home: Path) -> None:
    """Remove a question that nobody waits for any more, and its answer. Never raises: a file for a chat costs no update anything."""
    try:
        if os.path.lexists(home / PROMPT) and pending_prompt(home) is None:
            remove(home / PROMPT)
        if not os.path.lexists(home / PROMPT):
            remove(home / RESPONSE)
    except (StoreError, OSError) as error:
        log.warning("a question of an earlier update is still there: %s", error)


def pending_prompt(home: Path, *, now: float | None = None) -> Prompt | None:
    """The question that waits in a home; None when there is none, also when whoever asked it is gone.

    Args:
        home: the active home.
        now: unix seconds; default the clock's.
    """
    try:
        written = os.lstat(home / PROMPT).st_mtime
        value: Any = read_json(home / PROMPT, 64 * 1024)
    except (StoreError, OSError):
        return None
    if not isinstance(value, dict) or not isinstance(value.get("id"), str):
        return None
    if _is_over(value, written, time.time() if now is None else now):
        return None
    return Prompt(
        prompt=clean(value.get("prompt"), 1000),
        default=clean(value.get("default"), 200),
        id=clean(value["id"], 80),
    )


def answer_prompt(home: Path, prompt_id: str, answer: str) -> bool:
    """Answer the waiting question; False when it is not that one any more.

    Args:
        home: the active home.
        prompt_id: id of the question that was shown.
        answer: plain text; empty means the default.

    Raises:
        StoreError: the answer cannot be written.
    """
    waiting = pending_prompt(home)
    if waiting is None or waiting.id != prompt_id:
        return False
    write_bytes(home / RESPONSE, clean(answer, 500).encode("utf-8"))
    return True


def said_yes(answer: str) -> bool:
    """Whether an answer means yes."""
    return answer.strip().lower() in ("y", "yes", "true", "1", "ok", "restore")
