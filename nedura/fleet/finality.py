"""Whether a member that is down stays down: then nobody waits for it any more (facts/update.md 8.2)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import attrs

from nedura.clock import Clock
from nedura.fleet.model import Runtime, RuntimeKind
from nedura.fleet.restart_lock import RestartLock
from nedura.fleet.supervisors.base import Supervisor

__all__ = ["Finality"]

STEADY_SECONDS: Final = 1.0
"""How long a manager must say so: between the stop and the start of a restart a unit is idle for an instant, too."""


@attrs.define(kw_only=True)
class Finality:
    """What is known about members that are down, over several looks.

    Attributes:
        supervisors: supervisor id -> who would start such a member again; those that the roll used, where it matters who was relaunched.
        clock: time.
    """

    supervisors: Mapping[str, Supervisor]
    clock: Clock
    _since: dict[tuple[RuntimeKind, Path], float] = attrs.field(factory=dict, init=False)

    async def settled(self, down: Iterable[Runtime]) -> bool:
        """Whether each of these has been given up for a while. No member at all proves nothing."""
        answers = [await self._given_up(one) for one in down]
        return bool(answers) and all(answers)

    async def _given_up(self, member: Runtime) -> bool:
        key = (member.kind, member.home)
        supervisor = self.supervisors.get(member.supervisor)
        said = supervisor is not None and bool(await supervisor.gave_up(member))
        if not said or RestartLock(member.home, member.kind).busy():
            self._since.pop(key, None)
            return False
        since = self._since.setdefault(key, self.clock.monotonic())
        return self.clock.monotonic() - since >= STEADY_SECONDS
