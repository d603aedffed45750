"""The passive notice: what an earlier check found, and at most daily a new one in the background.

An answer that could not be had is `unknown`, never "current", and is asked again (C056). What is kept is believed only while the
very same commit runs (C021).
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from nedura.config import read_config
from nedura.errors import NeduraError, StoreError
from nedura.locks import FileLock
from nedura.product import Product
from nedura.programs import child_environment
from nedura.records import read_json, write_json
from nedura.text import clean

if TYPE_CHECKING:
    from nedura.update.source.check import CheckResult

__all__ = ["check_and_remember", "forget_check", "is_due", "notice_text", "passive_notice", "remember_check"]

RECORD: Final = "update_check.json"
LOCK: Final = ".update_check.lock"
DAY: Final = 86_400.0
RETRY: Final = 3_600.0
"""Seconds after which an unanswered passive check may be tried again."""


def check_and_remember(
    root_home: Path,
    product: Product,
    environ: Mapping[str, str],
    *,
    branch: str | None = None,
    channel: str | None = None,
    now: float | None = None,
    anchor: Path | None = None,
) -> CheckResult:
    """`check_for_update`, and its answer kept for the passive notice.

    Raises:
        NeduraError: as `check_for_update`; what is kept then is only that nobody could be asked.
    """
    from nedura.update.planning.admission import (
        find_subject,  # the notice itself, at each start, needs none of this
    )
    from nedura.update.source.check import CheckResult, check_for_update

    now = time.time() if now is None else now
    current = find_subject(root_home, product, environ, anchor=anchor).code.code_sha
    try:
        result = check_for_update(root_home, product, environ, branch=branch, channel=channel, anchor=anchor)
    except NeduraError:
        _try_to_remember(root_home, CheckResult(state="unknown"), current, now)
        raise
    if not branch and not channel:
        _try_to_remember(root_home, result, current, now)
    return result


def _try_to_remember(root_home: Path, result: CheckResult, current: str, now: float) -> None:
    """What is kept only spares a later look: whoever asked gets the answer, also on a full disk or in a read-only home."""
    with contextlib.suppress(StoreError):
        remember_check(root_home, result, current, now)


def remember_check(root_home: Path, result: CheckResult, current: str, now: float) -> None:
    """Keep an answer for the passive notice; an unknown one only so far that it is not asked again at once.

    Raises:
        StoreError: it cannot be written.
    """
    answer = {
        "at": now,
        "state": result.state,
        "commits": result.commits,
        "name": result.name,
        "current": current,
    }
    write_json(root_home / RECORD, {**_told(root_home), **answer})


def forget_check(root_home: Path) -> None:
    """What was kept is about another line of versions now: the next start asks again.

    Best effort: what cannot be forgotten is asked anew within a day.
    """
    if (root_home / RECORD).is_file():
        with contextlib.suppress(StoreError):
            write_json(root_home / RECORD, _told(root_home))


def _told(root_home: Path) -> dict[str, Any]:
    """When a notice was last said: a new answer is no reason to say it twice a day."""
    return {key: value for key, value in _read(root_home).items() if key == "told"}


def _read(root_home: Path) -> dict[str, Any]:
    try:
        record = read_json(root_home / RECORD, 65536)
    except StoreError:
        return {}
    return record if isinstance(record, dict) else {}


def is_due(record: Mapping[str, Any], current: str, now: float) -> bool:
    """Whether a passive check may start: at most daily, hourly after no answer, at once when other code runs now."""
    if record.get("current") != current:
        return True
    return _is_older(record.get("at"), now, RETRY if record.get("state") == "unknown" else DAY)


def notice_text(record: Mapping[str, Any], current: str, command: str) -> str:
    """What a start-up may say about a kept answer; empty when it says nothing or is about other code."""
    if record.get("state") != "behind" or record.get("current") != current:
        return ""
    commits = record.get("commits")
    many = (
        f"{commits} commit{'' if commits == 1 else 's'}"
        if isinstance(commits, int) and commits > 0
        else "changes"
    )
    return f"A newer version is available ({many} on {clean(record.get('name'), 60)}). Update with: {command} update"


def passive_notice(
    root_home: Path,
    product: Product,
    current: str,
    launcher: Path,
    *,
    environ: Mapping[str, str] | None = None,
    now: float | None = None,
    sparing: bool = False,
) -> str:
    """The notice of a kept answer, and at most daily a check in the background. Never blocks, never raises.

    A start that has nothing to say costs one small read; another user's home is left alone.

    Args:
        root_home: the root home.
        product: names.
        current: commit id that runs.
        launcher: what the background check is started with.
        environ: the environment.
        now: unix seconds.
        sparing: say it at most daily, for commands that are typed all day.
    """
    environ = os.environ if environ is None else environ
    now = time.time() if now is None else now
    record = _read(root_home)
    due = is_due(record, current, now) and launcher.is_file()
    text = notice_text(record, current, product.command)
    if sparing and not _is_older(record.get("told"), now):
        text = ""
    if not (due or text):
        return ""
    try:
        if root_home.stat().st_uid != os.geteuid() or not read_config(root_home).flag("updates.check", True):
            return ""
        _keep_going(root_home, product, current, launcher, environ, now, due=due, told=sparing and bool(text))
    except (
        NeduraError,
        OSError,
        subprocess.SubprocessError,
    ):  # a notice is a courtesy; the explicit check says what is wrong
        return ""
    return text


def _is_older(at: object, now: float, than: float = DAY) -> bool:
    """Whether a kept moment is so long ago, unknown, or in a future that cannot be."""
    return not isinstance(at, (int, float)) or not at <= now or now - at >= than


def _keep_going(
    root_home: Path,
    product: Product,
    current: str,
    launcher: Path,
    environ: Mapping[str, str],
    now: float,
    *,
    due: bool,
    told: bool,
) -> None:
    """Note what was told and start the check that is due; of several launches at one moment one does it.

    Raises:
        NeduraError, OSError, subprocess.SubprocessError: it cannot be noted or started.
    """
    turn = FileLock(root_home / LOCK, "the passive check")
    if not turn.try_acquire():
        return
    try:
        record = _read(root_home)
        due = due and is_due(record, current, now)
        kept = {**record, "told": now} if told else dict(record)
        if due:
            kept |= {"at": now, "state": record.get("state", "unknown"), "current": current}
        if due or told:
            write_json(root_home / RECORD, kept)
        if due:
            _start_check(launcher, root_home, product, environ)
    finally:
        turn.release()


def _start_check(launcher: Path, root_home: Path, product: Product, environ: Mapping[str, str]) -> None:
    """Start it through a shell that ends at once, so that the check is nobody's child."""
    subprocess.run(
        ["/bin/sh", "-c", '"$@" &', "sh", str(launcher), "update", "--check", "--passive"],
        env=child_environment(environ, keep=("SSH_AUTH_SOCK",), **{product.env("HOME"): str(root_home)}),
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        timeout=10,
        check=False,
    )
