"""Several tasks, one stream: the only place that owns background tasks on behalf of a generator (architecture.md, rule 6)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from typing import Any, Final, TypeVar

__all__ = ["DEFAULT_LIMIT", "Job", "Report", "run_all", "stream"]

Item = TypeVar("Item")
Report = Callable[[Item], None]
"""What a job calls with each item; never blocks."""
Job = Callable[[Report[Item]], Awaitable[None]]
"""One piece of work that reports items while it runs."""

DEFAULT_LIMIT: Final = 8
"""How many jobs run at once (decision 20)."""


_END: Final = object()


async def run_all(jobs: Iterable[Job[Item]], report: Report[Item], *, limit: int = DEFAULT_LIMIT) -> None:
    """Run jobs concurrently with one reporter. The first error ends the others and comes out as it is.

    Args:
        jobs: started in their order.
        report: gets what they report.
        limit: how many run at once, at least 1.
    """
    slots = asyncio.Semaphore(max(1, limit))

    async def run(job: Job[Item]) -> None:
        async with slots:
            await job(report)

    try:
        async with asyncio.TaskGroup() as group:
            for job in jobs:
                group.create_task(run(job))
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None


async def stream(jobs: Iterable[Job[Item]], *, limit: int = DEFAULT_LIMIT) -> AsyncGenerator[Item, None]:
    """Run jobs as `run_all` and yield what they report, in the order of reporting.

    Closing the generator cancels what still runs and waits for it. A job that must not hurt its siblings catches its own failures.
    """
    items: asyncio.Queue[Any] = asyncio.Queue()
    driver = asyncio.ensure_future(run_all(jobs, items.put_nowait, limit=limit))
    driver.add_done_callback(lambda _: items.put_nowait(_END))
    try:
        while (item := await items.get()) is not _END:
            yield item
        driver.result()
    finally:
        driver.cancel()
        await asyncio.gather(driver, return_exceptions=True)
