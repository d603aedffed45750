"""`update --check` and the passive notice: is there something newer? Nothing is installed (facts/update.md 1.4).

An answer that could not be had is `unknown`, never "current", and is not kept (C056). What is kept is believed only while the
very same commit runs (C021).
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, final

import attrs

from nedura.config import read_config
from nedura.errors import NeduraError, StoreError, UpdateError
from nedura.product import Product
from nedura.programs import child_environment
from nedura.records import read_json, write_json
from nedura.text import clean

__all__ = ["EVENTS", "CheckResult", "check_and_remember", "check_for_update", "passive_notice"]

RECORD: Final = "update_check.json"
DAY: Final = 86_400.0
RETRY: Final = 3_600.0
"""Seconds after which an unanswered passive check may be tried again."""


@final
@attrs.frozen(kw_only=True)
class CheckResult:
    """Whether there is something newer.

    Attributes:
        state: current, behind, managed (somebody else updates it) or unknown (could not be asked).
        commits: how many commits behind, -1 when the history does not tell.
        ahead: local commits that the remote lacks.
        name: branch or release.
        target: newest commit id.
        remote: where it was asked, without credentials.
        command: how to update.
        reason: why it is managed or unknown.
    """

    kind: ClassVar[str] = "check"
    state: Literal["current", "behind", "managed", "unknown"]
    commits: int = 0
    ahead: int = 0
    name: str = ""
    target: str = ""
    remote: str = ""
    command: str = ""
    reason: str = ""

    @property
    def copy(self) -> str:
        """Chat form."""
        return {
            "current": "This install is up to date.",
            "behind": "A newer version is available.",
            "managed": "This install is updated by somebody else.",
            "unknown": "Whether there is a newer version could not be found out.",
        }[self.state]

    @property
    def copy_terminal(self) -> str:
        """Terminal form."""
        match self.state:
            case "current":
                local = (
                    f" ({self.ahead} local commit{'' if self.ahead == 1 else 's'})" if self.ahead > 0 else ""
                )
                return f"Up to date with {self.remote} {self.name}{local}."
            case "behind":
                many = (
                    f"{self.commits} commit{'' if self.commits == 1 else 's'} behind"
                    if self.commits > 0
                    else "Behind"
                )
                return f"{many} {self.remote} {self.name} ({self.target[:8]}). Update with: {self.command}"
            case "managed":
                return f"{self.reason} Update it with: {self.command}"
            case _:
                return f"Not known: {self.reason}"


EVENTS = (CheckResult,)


def check_for_update(
    root_home: Path,
    product: Product,
    environ: Mapping[str, str],
    *,
    branch: str | None = None,
    channel: str | None = None,
    anchor: Path | None = None,
) -> CheckResult:
    """Fetch into our own repository and compare. Blocks; takes as long as the fetch.

    Args:
        root_home: the root home.
        product: names.
        environ: the real environment.
        branch: `--branch`.
        channel: `--channel`.
        anchor: a file of the running code.

    Raises:
        UpdateError: the fetch failed (one of its classes), or there is no checkout to ask about.
        UsageError: an unknown channel.
    """
    from nedura.update.admission import find_subject, refusal_of
    from nedura.update.channels import channel_key, choose_channel
    from nedura.update.git import find_git
    from nedura.update.record import read_record
    from nedura.update.source import read_source
    from nedura.update.target import fetch_target, known_tips
    from nedura.update.urls import parse_remote

    subject = find_subject(root_home, product, environ, anchor=anchor)
    refusal = refusal_of(subject.kind)
    if refusal is not None:
        return CheckResult(state="managed", reason=refusal.message, command=refusal.command)
    install, checkout = subject.install, subject.checkout
    if install is None:
        raise UpdateError("There is no git checkout to ask about.", stop_class="install")
    source = (
        read_source(checkout, find_git(environ), environ)
        if checkout is not None and checkout.is_dir()
        else None
    )
    if subject.layout == "sealed":
        record = read_record(install)
        url, pinned, current = record.remote_url, record.branch, subject.code.code_sha
    elif source is not None:
        url, pinned, current = source.remote_url or str(source.checkout), source.remote_branch, source.head
    else:
        raise UpdateError("There is no git checkout to ask about.", stop_class="install")
    configured = read_config(root_home).text(channel_key(install.install_id))
    choice = choose_channel(branch=branch, channel=channel, configured=configured, pinned_branch=pinned)
    remote = parse_remote(url)
    git = _repository(install, source, subject.layout == "sealed", environ)
    try:
        known = known_tips(git, choice, source.tracking if source is not None else "")
        target = fetch_target(git, remote, choice, current, known=known)
    finally:
        _drop(git, install.repo)
    behind = target.move in ("forward", "rewritten") and target.commits != 0
    return CheckResult(
        state="behind" if behind else "current",
        commits=target.commits if behind else 0,
        ahead=max(target.ahead, 0),
        name=target.name,
        target=target.commit,
        remote=remote.shown,
        command=subject.kind.mechanism,
    )


def _repository(install: Any, source: Any, sealed: bool, environ: Mapping[str, str]) -> Any:
    """The install's own repository; for a checkout layout a scratch one, because a check writes nothing of the owner's."""
    import tempfile

    from nedura.installs import InstallPaths
    from nedura.update.repository import open_repository

    if sealed:
        return open_repository(install, source, environ)
    scratch = InstallPaths(Path(tempfile.mkdtemp(prefix="nedura-check-")), install.install_id)
    return open_repository(scratch, source, environ)


def _drop(git: Any, own: Path) -> None:
    """Remove a scratch repository."""
    from nedura.update.environment import discard

    if git.repo != own:
        discard(git.repo.parents[2])


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
    from nedura.update.admission import find_subject

    now = time.time() if now is None else now
    current = find_subject(root_home, product, environ, anchor=anchor).code.code_sha
    try:
        result = check_for_update(root_home, product, environ, branch=branch, channel=channel, anchor=anchor)
    except NeduraError:
        remember_check(root_home, CheckResult(state="unknown"), current, now)
        raise
    if not branch and not channel:
        remember_check(root_home, result, current, now)
    return result


def remember_check(root_home: Path, result: CheckResult, current: str, now: float) -> None:
    """Keep an answer for the passive notice; an unknown one only so far that it is not asked again at once.

    Raises:
        StoreError: it cannot be written.
    """
    write_json(
        root_home / RECORD,
        {
            "at": now,
            "state": result.state,
            "commits": result.commits,
            "name": result.name,
            "current": current,
        },
    )


def _read(root_home: Path) -> dict[str, Any]:
    try:
        record = read_json(root_home / RECORD, 65536)
    except StoreError:
        return {}
    return record if isinstance(record, dict) else {}


def is_due(record: Mapping[str, Any], current: str, now: float) -> bool:
    """Whether a passive check may start: at most daily, hourly after no answer, at once when other code runs now."""
    at = record.get("at")
    if not isinstance(at, (int, float)) or record.get("current") != current or not at <= now:
        return True
    return now - at >= (RETRY if record.get("state") == "unknown" else DAY)


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
) -> str:
    """The notice of a kept answer, and at most daily a check in the background. Never blocks, never raises.

    Args:
        root_home: the root home.
        product: names.
        current: commit id that runs.
        launcher: what the background check is started with.
        environ: the environment.
        now: unix seconds.
    """
    environ = os.environ if environ is None else environ
    now = time.time() if now is None else now
    try:
        if not read_config(root_home).flag("updates.check", True):
            return ""
        record = _read(root_home)
        if is_due(record, current, now) and launcher.is_file():
            write_json(
                root_home / RECORD,
                {**record, "at": now, "state": record.get("state", "unknown"), "current": current},
            )
            _start_check(launcher, root_home, product, environ)
    except (
        NeduraError,
        OSError,
        subprocess.SubprocessError,
    ):  # a notice is a courtesy; the explicit check says what is wrong
        return ""
    return notice_text(record, current, product.command)


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
