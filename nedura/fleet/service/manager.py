"""One service manager as the verbs need it, and what it says about one service."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import attrs

from nedura.fleet.service.definition import Wanted

__all__ = ["ServiceManager", "ServiceState"]


@attrs.frozen(kw_only=True)
class ServiceState:
    """One service as its manager sees it.

    Attributes:
        name: unit or label.
        content: its definition, None when none is installed.
        path: where the definition is or would be.
        active: the manager's word.
        pid: its main process, 0 without one.
        enabled: whether it starts by itself.
        home: the home it is pinned to, drop-ins included; None when it names none.
        ours: its definition carries our marker.
        reason: why it does not run, in words; empty when it does.
        masked: the user turned it off on purpose.
        coming: without a process now, its manager starts it again by itself.
        ending: its process is on its way out.
    """

    name: str
    content: bytes | None
    path: Path
    active: str = ""
    pid: int = 0
    enabled: bool = False
    home: str | None = None
    ours: bool = False
    reason: str = ""
    masked: bool = False
    coming: bool = False
    ending: bool = False

    @property
    def up(self) -> bool:
        """Whether it runs and nobody has told it to end."""
        return self.pid > 0 and not self.ending

    @property
    def installed(self) -> bool:
        """Whether there is a definition."""
        return self.content is not None


class ServiceManager(Protocol):
    """What the verbs ask of systemd or launchd. Failures are `FleetError`s."""

    @property
    def scope(self) -> str:
        """`user`, `system`, or the launchd domain."""
        ...

    def name_for(self, home: Path) -> str:
        """Name of a home's service."""
        ...

    def names(self) -> tuple[str, ...]:
        """Services of our families that have a definition here."""
        ...

    def render(self, wanted: Wanted) -> bytes:
        """The definition as it should be."""
        ...

    def drift(self, installed: bytes, wanted: bytes) -> tuple[str, ...]:
        """Settings in which they differ in meaning."""
        ...

    async def state(self, name: str) -> ServiceState:
        """How a service stands."""
        ...

    async def publish(self, name: str, content: bytes, *, enable: bool) -> bool:
        """Write a definition and make the manager know it; False when it does so by itself in a moment, which ends this process."""
        ...

    async def withdraw(self, name: str) -> None:
        """Stop a service and remove its definition."""
        ...

    async def start(self, name: str) -> None:
        """Start a service and wait until its manager calls it started."""
        ...

    async def stop(self, name: str) -> None:
        """Stop a service and wait for its end."""
        ...
