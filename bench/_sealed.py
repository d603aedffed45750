"""Running the sealed stages of an install, as an update does."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from nedura.clock import SystemClock
from nedura.testing.installs import Site
from nedura.update.generation.prepare import prepare
from nedura.update.options import UpdateOptions
from nedura.update.run import Run

__all__ = ["prepare_once", "run_of"]


def run_of(site: Site, **options: Any) -> Run:
    """An update's state for a site."""
    clock = SystemClock()
    return Run(
        run_id="bench", root_home=site.home, home=site.home, clock=clock, started_at=clock.time(),
        environ=dict(os.environ), product=site.product, options=UpdateOptions(**options), install=site.paths,
    )  # fmt: skip


def prepare_once(site: Site) -> Run:
    """Prepare a candidate."""
    run = run_of(site)

    async def work() -> None:
        async for _ in prepare(run):
            pass

    asyncio.run(work())
    return run
