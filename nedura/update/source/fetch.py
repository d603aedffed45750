"""Fetching from the pinned remote into our own repository."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from nedura.errors import UpdateError
from nedura.text import clean
from nedura.update.planning.deadlines import FETCH_TIMEOUT
from nedura.update.source.fetch_failures import classify_fetch
from nedura.update.source.git import Git, GitAnswer, commit_id, is_commit_id
from nedura.update.source.owner_checkout import read_ref
from nedura.update.source.urls import Remote

__all__ = ["CHECKS", "FETCHED", "FetchError", "check_branch", "fetch_ref", "remote_tags"]

FETCHED: Final = "refs/nedura/fetched"
CHECKS: Final = "refs/nedura/checks/"
"""Refs of checks: each has one of its own."""
_STOPS: Final = {"timeout": "git_timeout", "disk_full": "disk_full", "permission": "permission_denied"}
_SURE: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*(/[A-Za-z0-9_][A-Za-z0-9_-]*)*")
"""Names that break no rule of git-check-ref-format: git need not be asked."""


class FetchError(UpdateError):
    """Raised when a fetch failed.

    Attributes:
        token: its class, one of `fetch_failures`.
    """

    def __init__(self, remote: Remote, answer: GitAnswer) -> None:
        names = (remote.url, remote.shown, remote.host, remote.path)
        failure = classify_fetch(answer.err, timed_out=answer.timed_out, names=names)
        stop = _STOPS.get(failure.token, "fetch_failed")
        super().__init__(
            f"{failure.message} ({remote.shown}; git: {answer.first_error})",
            stop_class=stop,
            advice=failure.advice,
        )
        self.token = failure.token


def check_branch(git: Git, name: str) -> str:
    """A branch name as git accepts it, and nothing that looks like an option.

    Raises:
        UpdateError: it is none.
    """
    if len(name) <= 250 and _SURE.fullmatch(name):
        return name
    plain = bool(name) and name.isprintable() and not name.startswith("-") and len(name) <= 250
    if not plain or git.run("check-ref-format", f"refs/heads/{name}", ok=(0, 1, 128, 129)).code != 0:
        raise UpdateError(f"{clean(name, 80)!r} is no name of a branch.", stop_class="branch")
    return name


def fetch_ref(
    git: Git,
    remote: Remote,
    ref: str,
    *,
    into: str = FETCHED,
    timeout: float = FETCH_TIMEOUT,
    commits: Collection[str] = (),
) -> str:
    """Fetch one full ref (or commit id) and return the commit it names.

    Args:
        git: our repository.
        remote: the pinned remote.
        ref: `refs/heads/x`, `refs/tags/x` or a commit id.
        into: our ref that gets it.
        timeout: seconds.
        commits: ids that are known to be commits; git is not asked what one of them is.

    Raises:
        FetchError: one of the classes of `fetch_failures`; `stop_class` is `fetch_failed` (or one of `_STOPS`).
        UpdateError: what was fetched is no commit.
    """
    wanted = ref if is_commit_id(ref) else f"+{ref}"
    options = [
        "--quiet",
        "--no-tags",
        "--no-recurse-submodules",
        "--no-write-fetch-head",
        "--no-auto-maintenance",
    ]
    answer = git.run(
        "fetch", *options, "--end-of-options", remote.url, f"{wanted}:{into}",
        protocol=remote.protocol, owner_config=True, timeout=timeout, ok=range(-64, 256),
    )  # fmt: skip
    if answer.code != 0:
        raise FetchError(remote, answer)
    fetched = read_ref(git.repo, into)
    if fetched and fetched in commits:
        return fetched
    found = git.run("rev-parse", "--verify", "--quiet", f"{into}^{{commit}}", ok=(0, 1, 128))
    if found.code != 0:
        name = ref.removeprefix("refs/heads/").removeprefix("refs/tags/")
        raise UpdateError(
            f"{clean(name, 80)} is no commit at the remote ({remote.shown}).",
            stop_class="fetch_failed",
            advice="Follow a branch: --branch main.",
        )
    return commit_id(found.text.strip())


def remote_tags(git: Git, remote: Remote, *, timeout: float = 60.0) -> dict[str, str]:
    """Tags of the remote: name -> commit id, annotated ones peeled.

    Raises:
        UpdateError: as `fetch_ref`.
    """
    answer = git.run(
        "ls-remote", "--tags", "--quiet", "--end-of-options", remote.url,
        protocol=remote.protocol, owner_config=True, timeout=timeout, ok=range(-64, 256),
    )  # fmt: skip
    if answer.code != 0:
        raise FetchError(remote, answer)
    tags: dict[str, str] = {}
    for line in answer.text.splitlines():
        oid, _, ref = line.partition("\t")
        name = ref.removeprefix("refs/tags/")
        if is_commit_id(oid) and ref.startswith("refs/tags/"):
            tags[name.removesuffix("^{}")] = oid if name.endswith("^{}") or name not in tags else tags[name]
    return tags
