"""What both halves of an update ask of the fleet, as one seam over fleet's public names."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from typing import Any, Protocol

from nedura.fleet import Fleet, Runtime
from nedura.installs import CodeIdentity
from nedura.wire import Event

__all__ = ["FleetParts"]


class FleetParts(Protocol):
    """The fleet as an update sees it."""

    async def collect(self) -> Fleet:
        """Everything of this install that is live."""
        ...

    def first(self, runtimes: Sequence[Runtime], expected: CodeIdentity) -> AsyncGenerator[Event, None]:
        """Restart one eligible member and watch it; no event at all when none is eligible."""
        ...

    def rest(
        self, runtimes: Sequence[Runtime], expected: CodeIdentity, skip: Collection[int]
    ) -> AsyncGenerator[Event, None]:
        """Restart the others, each with its own failure."""
        ...

    def verify(
        self, before: Fleet, expected: CodeIdentity, restarted: Collection[str]
    ) -> AsyncGenerator[Event, None]:
        """Wait until the fleet has settled; the last event is the `FleetMatrix`."""
        ...

    async def account(
        self, before: Fleet, failed: Mapping[int, str], deferred: Mapping[int, str]
    ) -> tuple[Mapping[str, Any], ...]:
        """What became of each runtime of before, as rows."""
        ...

    async def recover(self, runtimes: Sequence[Runtime], expected: CodeIdentity) -> tuple[bool, str]:
        """The restart phase itself broke: try once more in a fresh process; whether all are verified, and one line."""
        ...

    async def idle(self, profiles: Collection[str]) -> frozenset[str]:
        """Those of these profiles whose gateway provably does not run: the claim is free. Doubt leaves one out."""
        ...
