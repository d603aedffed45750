"""Quick snapshots of every profile: the same set for each, several at once, one profile's failure kept from the others.

They are file-loss recovery; rollback of state belongs to the full backup (decision 44).
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Final, TypeVar

from nedura.clock import Clock, SystemClock
from nedura.errors import StoreError
from nedura.fanin import Job, Report, stream
from nedura.update.events import Progress, Skipped, SnapshotTaken
from nedura.update.events_snapshot import SnapshotFailed, SnapshotsStarted
from nedura.update.state.snapshot_set import FILE_CAP
from nedura.update.state.snapshot_take import Taken, Taking, take_snapshot
from nedura.update.state.sqlite import BUSY_LIMIT

__all__ = [
    "AT_ONCE",
    "MANUAL_KEEP",
    "MANUAL_LABEL",
    "PRE_UPDATE",
    "SnapshotEvent",
    "in_thread",
    "take_snapshots",
]

PRE_UPDATE: Final = "pre-update"
MANUAL_LABEL: Final = "manual"
MANUAL_KEEP: Final = 20
AT_ONCE: Final = 6
"""Profiles at once: some keep the processors busy while others wait for the disk (measured on two: 4 took 6 % longer, 8 no less)."""
PROGRESS_EVERY: Final = 1.0
PROGRESS_FROM: Final = 16 * 1024 * 1024

SnapshotEvent = SnapshotsStarted | SnapshotTaken | SnapshotFailed | Skipped | Progress
_Result = TypeVar("_Result")


async def in_thread(
    work: Callable[[threading.Event], _Result], tick: Callable[[], None], every: float = PROGRESS_EVERY
) -> _Result:
    """Run blocking work in a thread and call `tick` now and then until it ends.

    When cancelled it asks the work to stop and waits for it, so that nothing is written after this returns.
    """
    stop = threading.Event()
    task = asyncio.ensure_future(asyncio.to_thread(work, stop))
    try:
        while True:
            done, _ = await asyncio.wait({task}, timeout=every)
            if done:
                return task.result()
            tick()
    finally:
        stop.set()
        while not task.done():
            try:
                await asyncio.wait({task})
            except (
                asyncio.CancelledError
            ):  # asked twice; the thread still has to end before its files are anyone's
                continue
        if not task.cancelled():
            task.exception()  # seen, so that the loop does not complain


async def take_snapshots(
    profiles: Sequence[tuple[str, Path]],
    *,
    label: str = PRE_UPDATE,
    keep: int = 1,
    cap: int | None = FILE_CAP,
    clock: Clock | None = None,
    at_once: int = AT_ONCE,
    busy_limit: float = BUSY_LIMIT,
    progress_every: float = PROGRESS_EVERY,
) -> AsyncGenerator[SnapshotEvent, None]:
    """Snapshot every profile into its own `state-snapshots/` and tell about each.

    The first event comes before any file is touched; while a large file is copied a `Progress` comes every second. Never raises for a
    profile: `SnapshotFailed` names it and the others go on. `SnapshotTaken.incomplete` lists what a snapshot lacks; an incomplete one
    replaces no older one.

    Args:
        profiles: (name, home), the invoking profile first. Two names for one home are taken once.
        label: why; part of the id.
        keep: how many snapshots of this label stay in each home.
        cap: largest file in bytes, None for none.
        clock: time.
        at_once: profiles at once.
        busy_limit: seconds that a locked database is waited for.
        progress_every: seconds between two `Progress` of a profile.
    """
    clock = SystemClock() if clock is None else clock
    homes = {os.path.realpath(home): (name, home) for name, home in reversed(profiles)}
    chosen = [homes[key] for key in dict.fromkeys(os.path.realpath(home) for _, home in profiles)]
    yield SnapshotsStarted(profiles=tuple(name for name, _ in chosen), label=label)
    now = clock.time()
    jobs = [_job(name, home, label, keep, cap, now, busy_limit, progress_every) for name, home in chosen]
    async with aclosing(stream(jobs, limit=at_once)) as events:
        async for event in events:
            yield event  # noqa: ASYNC119 - the fan-in is what owns the tasks, and it is closed with us


def _job(
    name: str, home: Path, label: str, keep: int, cap: int | None, now: float, busy_limit: float, every: float
) -> Job[SnapshotEvent]:
    async def run(report: Report[SnapshotEvent]) -> None:
        taking = Taking()

        def work(stop: threading.Event) -> Taken | None:
            return take_snapshot(
                name,
                home,
                label=label,
                keep=keep,
                cap=cap,
                now=now,
                stop=stop,
                taking=taking,
                busy_limit=busy_limit,
            )

        def tick() -> None:
            if taking.size >= PROGRESS_FROM or taking.target is None:
                report(
                    Progress(
                        stage="snapshot",
                        label=f"{name}: {taking.current}",
                        done=taking.done(),
                        total=taking.size,
                    )
                )

        try:
            taken = await in_thread(work, tick, every)
        except StoreError as error:
            report(SnapshotFailed(profile=name, reason=error.diagnostics()))
        except OSError as error:  # border: one home's file system must not end the snapshots of the others
            report(SnapshotFailed(profile=name, reason=error.strerror or type(error).__name__))
        else:
            report(_told(name, taken))

    return run


def _told(name: str, taken: Taken | None) -> SnapshotEvent:
    if taken is None:
        return Skipped(name=f"snapshot of {name}", reason="it has nothing to save yet")
    manifest = taken.manifest
    return SnapshotTaken(
        profile=name,
        snapshot_id=manifest.id,
        files=len(manifest.files),
        size=manifest.total_size,
        incomplete=manifest.missing,
    )
