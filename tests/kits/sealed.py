"""Runs the sealed stages of an installed toy, as an update does, and keeps what they said."""

from __future__ import annotations

import os
from typing import Any

import attrs

from nedura.clock import SystemClock
from nedura.testing.installs import Site
from nedura.update.commit.sealed import commit_sealed
from nedura.update.generation.prepare import prepare
from nedura.update.options import UpdateOptions
from nedura.update.run import Run
from nedura.update.validation.validate import validate
from nedura.wire import Event

__all__ = ["Stages"]


@attrs.define
class Stages:
    """Runs prepare, validate and commit of a site, and keeps what they said."""

    site: Site
    events: list[Event] = attrs.field(factory=list)

    def run(self, **options: Any) -> Run:
        return Run(
            run_id="test", root_home=self.site.home, home=self.site.home, clock=SystemClock(),
            started_at=SystemClock().time(), environ=dict(os.environ), product=self.site.product,
            options=UpdateOptions(**options), install=self.site.paths,
        )  # fmt: skip

    async def prepare(self, run: Run | None = None, **options: Any) -> Run:
        run = run or self.run(**options)
        self.events = [event async for event in prepare(run)]
        return run

    async def update(self, **options: Any) -> Run:
        """Prepare, validate and commit."""
        run = await self.prepare(**options)
        self.events += [event async for event in validate(run)]
        assert run.candidate is not None
        run.previous = commit_sealed(self.site.paths, run.candidate)
        return run

    def told(self, kind: str) -> list[Any]:
        return [event for event in self.events if event.kind == kind]
