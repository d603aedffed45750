"""`update --check`: is there something newer? Nothing is installed (facts/update.md 1.4)."""

from __future__ import annotations

import os
import secrets
import shlex
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar, Final, Literal, final

import attrs

from nedura.config import read_config
from nedura.errors import UpdateError
from nedura.installs import InstallPaths
from nedura.product import Product
from nedura.text import clean, counted
from nedura.update.generation.environment import discard
from nedura.update.generation.record import followed, read_record
from nedura.update.ledger.leftovers import scratch_prefix
from nedura.update.planning.admission import Subject, find_subject, refusal_of
from nedura.update.planning.deadlines import FETCH_TIMEOUT
from nedura.update.source.channels import Choice, channel_key, check_followed, choose_channel
from nedura.update.source.fetch import CHECKS
from nedura.update.source.git import Git, find_git
from nedura.update.source.owner_checkout import Source, read_source
from nedura.update.source.repository import open_repository
from nedura.update.source.target import Target, fetch_target, known_tips, seen_by
from nedura.update.source.unfinished import has_operation, unfinished_text
from nedura.update.source.urls import Remote, parse_remote, upstream_of
from nedura.wire import LATER

__all__ = ["EVENTS", "CheckResult", "check_for_update"]


@final
@attrs.frozen(kw_only=True)
class CheckResult:
    """Whether there is something newer.

    Attributes:
        state: current, behind, managed (somebody else updates it) or unknown (could not be asked).
        commits: how many commits behind, -1 when the history does not tell.
        ahead: commits of what runs that the name lacks: local ones, or a newer state of another branch.
        name: branch or release.
        target: newest commit id.
        remote: where it was asked, without credentials.
        command: how to update.
        reason: why it is managed or unknown; else what is odd about what was found, empty when nothing.
        unfinished: what somebody began in the source with git and did not finish, in one sentence; empty when nothing.
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
    unfinished: str = attrs.field(default="", metadata=LATER)

    @property
    def copy(self) -> str:
        """Chat form."""
        return {
            "current": "This install is up to date.",
            "behind": "A newer version is available.",
            "managed": "This install cannot be updated from here.",
            "unknown": "Whether there is a newer version could not be found out.",
        }[self.state]

    @property
    def copy_terminal(self) -> str:
        """Terminal form."""
        return f"{self._state_text}{f' ⚠ {self.unfinished}' if self.unfinished else ''}"

    @property
    def _state_text(self) -> str:
        match self.state:
            case "current":
                many = counted(self.ahead, "commit")
                ahead = f" (what runs is {many} ahead)" if self.ahead > 0 else ""
                if self.reason:
                    return f"Nothing newer at {self.remote} {self.name}. {self.reason}"
                return f"Up to date with {self.remote} {self.name}{ahead}."
            case "behind":
                many = f"{counted(self.commits, 'commit')} behind" if self.commits > 0 else "Behind"
                odd = f" {self.reason}" if self.reason else ""
                return (
                    f"{many} {self.remote} {self.name} ({self.target[:8]}).{odd} Update with: {self.command}"
                )
            case "managed":
                return f"{self.reason} Update it with: {self.command}" if self.command else self.reason
            case _:
                return f"Not known: {self.reason}"


EVENTS = (CheckResult,)
FORK_BRANCH: Final = "main"
"""The branch on which a fork's upstream is followed."""


@attrs.frozen(kw_only=True)
class _Question:
    """Where to ask, and about what."""

    install: InstallPaths
    sealed: bool
    source: Source | None
    remote: Remote
    remote_name: str
    choice: Choice
    current: str


def check_for_update(
    root_home: Path,
    product: Product,
    environ: Mapping[str, str],
    *,
    branch: str | None = None,
    channel: str | None = None,
    anchor: Path | None = None,
) -> CheckResult:
    """Fetch into a repository of ours and compare. Blocks; takes as long as the fetch.

    Args:
        root_home: the root home.
        product: names.
        environ: the real environment.
        branch: `--branch`.
        channel: `--channel`.
        anchor: a file of the running code.

    Raises:
        UpdateError: the fetch failed (one of its classes), or there is no checkout to ask about.
        UsageError: an unknown channel, or one for an unpacked release.
    """
    subject = find_subject(root_home, product, environ, anchor=anchor)
    refusal = refusal_of(subject.kind)
    if refusal is not None:
        return CheckResult(state="managed", reason=refusal.message, command=refusal.command)
    check_followed(subject.layout, branch, channel)
    if subject.layout == "zip":
        return _check_release(subject, environ)
    question = _question(subject, root_home, product, environ, branch, channel)
    with _repository(question, product, environ) as git:
        target = _ask(git, question)
    behind = target.move in ("forward", "rewritten") and target.commits != 0
    return CheckResult(
        state="behind" if behind else "current",
        commits=target.commits if behind else 0,
        ahead=max(target.ahead, 0),
        name=target.name,
        target=target.commit,
        remote=question.remote.shown,
        command=f"{subject.kind.mechanism}{_chosen(branch, channel)}",
        reason=_oddity(target) or ("" if behind else _of_fork(question)),
        unfinished=_unfinished(question.source),
    )


def _oddity(target: Target) -> str:
    """What somebody should know before an update: the remote took something back (threats.md 1)."""
    name = clean(target.name, 80)
    if target.move == "backward":
        return f"{name} names a commit that is older than what runs; an update goes there only with --allow-downgrade."
    if target.move == "rewritten":
        return f"The history of {name} was rewritten, it does not follow what runs."
    return ""


def _of_fork(question: _Question) -> str:
    """A fork that holds nothing new says nothing of what it is a fork of, and an update looks there, too."""
    source = question.source
    if source is None or question.choice.branch != FORK_BRANCH or source.branch != FORK_BRANCH:
        return ""
    upstream = upstream_of(question.remote, source.upstream_url)
    return (
        ""
        if upstream is None
        else f"It is a fork of {upstream.shown}, which was not asked; an update looks there, too."
    )


def _chosen(branch: str | None, channel: str | None) -> str:
    """The options by which an update goes to what was asked about; without them it would go elsewhere."""
    if branch is not None:
        return f" --branch {shlex.quote(branch)}"
    return f" --channel {shlex.quote(channel)}" if channel is not None else ""


def _unfinished(source: Source | None) -> str:
    begun = has_operation(source.git_dir) if source is not None else ""
    return unfinished_text(begun, str(source.checkout)) if source is not None and begun else ""


def _check_release(subject: Subject, environ: Mapping[str, str]) -> CheckResult:
    from nedura.update.source.release_check import (
        ask_release,  # only an unpacked release needs an HTTP client here
    )

    assert subject.install is not None
    assert subject.checkout is not None
    state, name, commit, remote, reason = ask_release(
        subject.install, subject.checkout, subject.code, environ
    )
    return CheckResult(
        state="behind" if state == "behind" else "current" if state == "current" else "unknown",
        commits=-1 if state == "behind" else 0,
        name=name,
        target=commit,
        remote=remote.shown,
        command=subject.kind.mechanism,
        reason=reason,
    )


def _question(
    subject: Subject,
    root_home: Path,
    product: Product,
    environ: Mapping[str, str],
    branch: str | None,
    channel: str | None,
) -> _Question:
    install, checkout = subject.install, subject.checkout
    present = checkout is not None and checkout.is_dir()
    source = read_source(checkout, find_git(environ), environ) if checkout is not None and present else None
    if install is None or (source is None and subject.layout != "sealed"):
        raise UpdateError("There is no git checkout to ask about.", stop_class="install")
    if subject.layout == "sealed":
        record = read_record(install)
        url, pinned, name = record.remote_url, record.branch, record.remote_name
        current = subject.code.code_sha
    else:
        assert source is not None
        url, pinned, name = followed(install, source)
        current = source.head
    configured = read_config(root_home).text(channel_key(install.install_id))
    return _Question(
        install=install,
        sealed=subject.layout == "sealed",
        source=source,
        remote=parse_remote(url),
        remote_name=name,
        choice=choose_channel(
            branch=branch,
            channel=channel,
            configured=configured,
            pinned_branch=pinned,
            retired=product.retired_channels,
        ),
        current=current,
    )


def _ask(git: Git, question: _Question) -> Target:
    """Fetch under a ref of our own, so that an update or check which fetches at the same moment meets no lock."""
    seen = seen_by(question.source, question.choice, sealed=question.sealed, remote=question.remote_name)
    known = known_tips(git, question.choice, seen)
    _drop_old_refs(git)
    ref = f"{CHECKS}{secrets.randbelow(1 << 48)}"
    try:
        return fetch_target(git, question.remote, question.choice, question.current, known=known, into=ref)
    finally:
        git.run("update-ref", "-d", ref, ok=range(256))


def _drop_old_refs(git: Git) -> None:
    """What checks left that were killed: a ref would keep its commits for good, its lock the ref."""
    folder = git.repo / CHECKS
    try:
        names = sorted(os.listdir(folder), reverse=True)  # a lock before its ref
    except OSError:  # git removes the folder with its last ref
        return
    for name in names:
        try:
            old = time.time() - os.stat(folder / name).st_mtime > 2 * FETCH_TIMEOUT
            if old and name.endswith(".lock"):
                os.unlink(folder / name)
        except OSError:  # its own check was faster
            continue
        if old and name.isdigit():
            git.run("update-ref", "-d", f"{CHECKS}{name}", ok=range(256))


@contextmanager
def _repository(question: _Question, product: Product, environ: Mapping[str, str]) -> Iterator[Git]:
    """The install's own repository; a scratch one for a checkout layout, because a check writes nothing of the owner's, and where ours
    cannot be written: a question needs no disk of the install's.
    """
    install = question.install
    if question.sealed and os.access(install.repo if install.repo.is_dir() else install.folder, os.W_OK):
        yield open_repository(install, question.source, environ)
        return
    scratch = Path(tempfile.mkdtemp(prefix=scratch_prefix(product.command, "check")))
    try:
        yield open_repository(InstallPaths(scratch, question.install.install_id), question.source, environ)
    finally:
        discard(scratch)
