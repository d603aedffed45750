"""Events of looking at a fleet and of verifying it. Restart events are in `restart_events`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, final

import attrs

from nedura.fleet.model import Foreign, MatrixRow, Probe, Runtime
from nedura.installs import CodeIdentity
from nedura.text import spoken_wait

__all__ = ["EVENTS", "FleetMatrix", "FleetStatus", "VerifyWaiting"]


@final
@attrs.frozen(kw_only=True)
class VerifyWaiting:
    """Verification waits for runtimes to settle.

    Attributes:
        waiting_for: profiles that are down or have not published what they run.
        elapsed: seconds so far.
        deadline: seconds after which the last look counts.
    """

    kind: ClassVar[str] = "verify_waiting"
    waiting_for: tuple[str, ...]
    elapsed: float
    deadline: float

    @property
    def copy(self) -> str:
        """Chat form."""
        return f"Still waiting for {', '.join(self.waiting_for) or 'the fleet'} to come back."

    @property
    def copy_terminal(self) -> str:
        """Terminal form."""
        left = spoken_wait(max(0.0, self.deadline - self.elapsed))
        return f"Waiting for {', '.join(self.waiting_for) or 'the fleet'} ({self.elapsed:.0f} s, at most {left} more)."


@final
@attrs.frozen(kw_only=True)
class FleetMatrix:
    """The version matrix: what each runtime runs against what it should run.

    Attributes:
        expected: identity the fleet should have.
        rows: one per runtime.
        foreign: what was named and left alone.
        complete: no row failed and no expected row is missing.
        waited: seconds until the fleet had settled.
        settled: False when the wait ended with somebody still missing: at the deadline, or because nobody starts them any more.
    """

    kind: ClassVar[str] = "matrix"
    expected: CodeIdentity
    rows: tuple[MatrixRow, ...]
    foreign: tuple[Foreign, ...] = ()
    complete: bool = True
    waited: float = 0.0
    settled: bool = True

    @property
    def failing(self) -> tuple[MatrixRow, ...]:
        """The rows that leave it incomplete."""
        return tuple(row for row in self.rows if row.failing)

    @property
    def unreadable(self) -> int:
        """How many things could not be read, so that nothing is known about them."""
        return sum(item.unreadable for item in self.foreign)

    @property
    def copy(self) -> str:
        """Chat form."""
        current = sum(row.state == "current" and not row.failing for row in self.rows)
        if self.complete and self.unreadable:
            return f"{current} gateways run the new version; {self.unreadable} could not be read and may not."
        if self.complete:
            return f"All {current} gateways run the new version." if current else "No gateway was running."
        return f"{current} of {len(self.rows)} gateways run the new version; the rest still owe a restart."

    @property
    def copy_terminal(self) -> str:
        """Terminal form."""
        lines = [row.copy_terminal for row in self.rows] + [item.copy_terminal for item in self.foreign]
        if self.failing:
            owing = _owing(len(self.failing))
            lines.append(f"⚠ {owing} a restart. Run: nedura gateway restart --all; see: nedura fleet status")
        elif not self.complete:
            lines.append("⚠ A gateway that should be running could not be seen. See: nedura fleet status")
        lines += unreadable_lines(self.foreign)
        return "\n".join(lines)


@final
@attrs.frozen(kw_only=True)
class FleetStatus:
    """What runs now, for `fleet status`: the matrix, each runtime's state, and what was looked at.

    Attributes:
        expected: identity that a start now would give.
        rows: the matrix.
        runtimes: every live runtime of this install.
        foreign: what was seen and left alone.
        homes: the homes that were looked at.
        probes: what was asked and what was skipped.
    """

    kind: ClassVar[str] = "fleet_status"
    expected: CodeIdentity
    rows: tuple[MatrixRow, ...] = ()
    runtimes: tuple[Runtime, ...] = ()
    foreign: tuple[Foreign, ...] = ()
    homes: tuple[Path, ...] = ()
    probes: tuple[Probe, ...] = ()

    @property
    def owing(self) -> int:
        """How many rows owe a restart."""
        return sum(row.failing for row in self.rows)

    @property
    def copy(self) -> str:
        """Chat form."""
        if not self.rows:
            return "No gateway is running."
        current = sum(row.state == "current" and not row.failing for row in self.rows)
        return f"{current} of {len(self.rows)} gateways are up to date."

    @property
    def copy_terminal(self) -> str:
        """Terminal form: the matrix as lines."""
        by_pid = {runtime.pid: runtime for runtime in self.runtimes}
        lines = [f"{self.homes[0] if self.homes else 'no home'}: expected version {self.expected.short()}"]
        lines += [f"  {row.copy_terminal}{_living(by_pid.get(row.pid or 0))}" for row in self.rows]
        if not self.rows:
            lines.append("  no gateway runs")
        lines += [f"  {item.copy_terminal}" for item in self.foreign]
        if self.owing:
            lines.append(f"⚠ {_owing(self.owing)} a restart. Run: nedura gateway restart --all")
        if any(row.state == "down" for row in self.rows):
            lines.append("  One that is down and has no service is started by: nedura gateway run")
        lines += unreadable_lines(self.foreign)
        probes = ", ".join(f"{probe.what}: {probe.skipped or probe.count}" for probe in self.probes)
        lines.append(f"Looked at {len(self.homes)} home{'' if len(self.homes) == 1 else 's'} ({probes}).")
        return "\n".join(lines)


def unreadable_lines(foreign: Sequence[Foreign]) -> list[str]:
    """What to say about things that could not be read; nothing when there are none."""
    count = sum(item.unreadable for item in foreign)
    if not count:
        return []
    return [f"? {count} of these could not be read: unknown whether they are ours and what they run"]


def _owing(count: int) -> str:
    return f"{count} gateways still owe" if count > 1 else f"{count} gateway still owes"


def _living(runtime: Runtime | None) -> str:
    """State, turns and supervisor of a live row."""
    if runtime is None:
        return ""
    turns = f", {runtime.active_turns} active" if runtime.active_turns else ""
    wedged = ", its event loop stands still" if runtime.wedged else ""
    unit = f" {runtime.unit}" if runtime.unit else ""
    return f" [{runtime.state or 'state unknown'}{turns}{wedged}; {runtime.supervisor}{unit}]"


EVENTS: Final[tuple[type[Any], ...]] = (FleetMatrix, FleetStatus, VerifyWaiting)
"""The classes, for readers of the wire form."""
