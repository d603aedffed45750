"""An install that follows a fork: its upstream is followed too while the fork has nothing of its own (facts/update.md 5.2 steps 7, 16, 19).

A fork is told by a remote named `upstream` that is another place than the followed one. Its address is pinned when it is first seen.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Final

import attrs

from nedura.errors import NeduraError
from nedura.text import clean
from nedura.update.bounded import in_thread
from nedura.update.commit_point import paths_of
from nedura.update.events import Notice, StepDone
from nedura.update.generation.prepare import Work, choose_target
from nedura.update.generation.record import read_record, write_record
from nedura.update.run import Run
from nedura.update.source.fetch import fetch_ref
from nedura.update.source.git import Git, commit_id, find_git
from nedura.update.source.urls import Remote, parse_remote, upstream_of
from nedura.wire import Event

__all__ = ["BRANCH", "PUSH_NOTE", "choose_on_fork", "push_back"]

BRANCH: Final = "main"
"""The one branch on which a fork follows its upstream."""
UPSTREAM_TIP: Final = "refs/nedura/upstream"
PUSH_TIMEOUT: Final = 30.0
"""Seconds; the update waits for it, and its failure is only told."""
PUSH_NOTE: Final = "fork_push"
"""Note of the run: the upstream's commit that the fork gets after the move."""


async def choose_on_fork(work: Work) -> AsyncGenerator[Event, None]:
    """`choose_target`; on a fork's main the target becomes the upstream's commit when that only adds to the fork's.

    Args:
        work: the preparation; its target is set.

    Raises:
        UpdateError: as `choose_target`. An upstream that cannot be fetched is only told.
    """
    chosen = choose_target(work)
    try:
        async for event in chosen:
            yield event
    finally:
        await chosen.aclose()
    upstream, warning = await in_thread(_upstream, work)
    if warning:
        yield Notice(text=warning, warning=True)
    if upstream is None or work.run.notes.get("target_commit"):
        return
    yield Notice(text=f"This install follows a fork, {work.remote.shown}. Its upstream is {upstream.shown}.")
    if work.choice.branch != BRANCH or work.source is None or work.source.branch != BRANCH:
        return
    try:
        step = await in_thread(_follow, work, upstream)
    except NeduraError as error:
        yield Notice(text=f"The upstream was not looked at: {error.message}", warning=True)
        return
    yield step


def _upstream(work: Work) -> tuple[Remote | None, str]:
    """The pinned upstream, and what to say when the checkout names another one now. The first one seen is pinned."""
    now = upstream_of(work.remote, work.source.upstream_url) if work.source is not None else None
    pinned = work.record.upstream_url
    if not pinned:
        if now is not None:
            work.record = attrs.evolve(work.record, upstream_url=now.url)
            write_record(work.paths, work.record)
        return now, ""
    if now is None:  # the owner took it away: nothing is followed that nobody names
        return None, ""
    known = parse_remote(pinned)
    if now.same_place(known):
        return now, ""
    return None, (
        f"The upstream is {now.shown} now, and was {known.shown}. It is not followed; install again to follow the new one."
    )


def _follow(work: Work, upstream: Remote) -> StepDone:
    """Make the upstream's tip the target where the fork and this checkout have no commits of their own. Blocks."""
    target, source, git = work.target, work.source, work.git
    assert target is not None
    assert source is not None
    tip = fetch_ref(git, upstream, f"refs/heads/{BRANCH}", into=UPSTREAM_TIP)
    runs = work.manifest.identity.code_sha if work.manifest is not None else source.head
    for commit in dict.fromkeys([target.fetched, target.commit, source.head, runs]):
        if commit and not _is_ancestor(git, commit, tip):
            return StepDone(name="upstream", detail="not followed: the fork or this checkout has own commits")
    if tip == target.commit:
        return StepDone(name="upstream", detail="the fork is up to date with it")
    answer = git.run("rev-list", "--count", f"{runs}..{tip}", ok=range(256))
    commits = int(answer.text) if answer.code == 0 and answer.text.isdigit() else -1
    work.target = attrs.evolve(target, commit=tip, move="forward", commits=commits)
    work.run.notes[PUSH_NOTE] = tip
    return StepDone(name="upstream", detail=f"{upstream.shown} {BRANCH} {tip[:12]}")


def _is_ancestor(git: Git, old: str, new: str) -> bool:
    return git.run("merge-base", "--is-ancestor", old, new, ok=range(256)).code == 0


async def push_back(run: Run) -> AsyncGenerator[Event, None]:
    """After the move: give the fork what its upstream had. Never forced; a failure is told and changes nothing.

    Args:
        run: the update, moved.
    """
    tip = str(run.notes.get(PUSH_NOTE, ""))
    if not tip:
        return
    try:
        shown, reason = await in_thread(_push, run, commit_id(tip))
    except NeduraError as error:
        shown, reason = "the fork", error.message
    if reason:
        yield Notice(text=f"The upstream's commits were not pushed to {shown}: {reason}")
    else:
        yield Notice(text=f"The upstream's commits were pushed to {shown}.")


def _push(run: Run, tip: str) -> tuple[str, str]:
    """From our own repository, so that nothing of the checkout's configuration runs; returns the fork and why it failed."""
    paths = paths_of(run)
    remote = parse_remote(read_record(paths).remote_url)
    git = Git(program=find_git(run.environ), repo=paths.repo, environ=run.environ)
    answer = git.run(
        "push", "--quiet", "--no-verify", "--no-follow-tags", "--no-signed", "--recurse-submodules=no",
        "--end-of-options", remote.url, f"{tip}:refs/heads/{BRANCH}",
        protocol=remote.protocol, owner_config=True, timeout=PUSH_TIMEOUT, ok=range(-64, 256),
    )  # fmt: skip
    if answer.timed_out:
        return remote.shown, "it took too long"
    return remote.shown, "" if answer.code == 0 else clean(answer.first_error, 200)
