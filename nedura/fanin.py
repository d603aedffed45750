"""Several tasks, one stream: the only place that owns background tasks on behalf of a generator (architecture.md, rule 6)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from typing import Final, TypeVar

import attrs

__all__ = ["DEFAULT_LIMIT", "Job", "Report", "stream"]

Item = TypeVar("Item")
Report = Callable[[Item], None]
"""What a job calls with each item; never blocks."""
Job = Callable[[Report[Item]], Awaitable[None]]
"""One piece of work that reports items while it runs."""

DEFAULT_LIMIT: Final = 8
"""How many jobs run at once (decision 20)."""


@attrs.frozen
class _Ended:
    error: BaseException | None


async def stream(jobs: Iterable[Job[Item]], *, limit: int = DEFAULT_LIMIT) -> AsyncGenerator[Item, None]:
    """Run jobs concurrently and yield what they report, in the order of reporting.

    Closing the generator cancels what still runs and waits for it. A job that raises ends the others and its error comes out here, so
    a job that must not hurt its siblings catches its own failures.

    Args:
        jobs: started in their order.
        limit: how many run at once, at least 1.
    """
    items: asyncio.Queue[Item | _Ended] = asyncio.Queue()
    slots = asyncio.Semaphore(max(1, limit))

    async def run(job: Job[Item]) -> None:
        error: BaseException | None = None
        try:
            async with slots:
                await job(items.put_nowait)
        except Exception as caught:  # border: carried to the consumer, where it is raised again
            error = caught
        items.put_nowait(_Ended(error))

    tasks = [asyncio.ensure_future(run(job)) for job in jobs]
    running = len(tasks)
    try:
        while running:
            item = await items.get()
            if not isinstance(item, _Ended):
                yield item
                continue
            running -= 1
            if item.error is not None:
                raise item.error
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
