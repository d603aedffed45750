"""A run that is stopped while its commit fails ends with that alone: no traceback of a failure that nobody asked for any more."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

import attrs
import pytest

from nedura.update.commit.checkout import move_checkout
from nedura.update.commit.zip import ZipJob, move_zip
from nedura.update.source.source_git import SourceGit
from nedura.wire import Event
from tests.integration.checkout.trees import ahead, make_tree


async def _consume(events: AsyncGenerator[Event, None]) -> None:
    async with aclosing(events) as stream:
        async for _ in stream:
            pass


async def _stopped(events: AsyncGenerator[Event, None]) -> None:
    task = asyncio.create_task(_consume(events))
    for _ in range(5):
        await asyncio.sleep(0)  # its thread is at work
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    del task
    gc.collect()
    await asyncio.sleep(0)


async def test_of_a_checkout(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tree = make_tree(tmp_path)
    target, program = ahead(tree), tmp_path / "bin/git"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\nsleep 0.2\nexit 9\n")
    program.chmod(0o755)
    job = attrs.evolve(tree.job(target), git=SourceGit(str(program), tree.checkout, tree.checkout / ".git"))
    gc.collect()  # what other tests left is not ours
    with caplog.at_level(logging.ERROR, "asyncio"):
        await _stopped(move_checkout(job))
    assert caplog.messages == []


async def test_of_a_release(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    live = tmp_path / "live"
    live.mkdir()
    for number in range(2000):
        (live / f"f{number}").write_text("x")
    record = tmp_path / "record.json"
    record.write_text('{"files": {}}')
    gc.collect()  # what other tests left is not ours
    with caplog.at_level(logging.ERROR, "asyncio"):
        await _stopped(move_zip(ZipJob(tree=tmp_path / "none", live=live, record=record)))
    assert caplog.messages == []
