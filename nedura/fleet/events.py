"""Events of looking at a fleet and of verifying it. Restart events are in `restart_events`."""

from __future__ import annotations

from typing import Any, ClassVar, Final, final

import attrs

from nedura.fleet.model import Foreign, MatrixRow
from nedura.installs import CodeIdentity
from nedura.text import spoken_wait

__all__ = ["FLEET_EVENTS", "FleetMatrix", "VerifyWaiting"]


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
        settled: False when the deadline ended the wait.
    """

    kind: ClassVar[str] = "fleet_matrix"
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
    def copy(self) -> str:
        """Chat form."""
        current = sum(row.state == "current" for row in self.rows)
        if self.complete:
            return f"All {current} gateways run the new version." if current else "No gateway was running."
        return f"{current} of {len(self.rows)} gateways run the new version; the rest still owe a restart."

    @property
    def copy_terminal(self) -> str:
        """Terminal form."""
        lines = [row.copy_terminal for row in self.rows] + [item.copy_terminal for item in self.foreign]
        if self.failing:
            count = len(self.failing)
            lines.append(
                f"⚠ {count} gateway{'s' if count > 1 else ''} still owe{'' if count > 1 else 's'} a restart. "
                "Run: nedura gateway restart; see: nedura fleet status"
            )
        elif not self.complete:
            lines.append("⚠ A gateway that should be running could not be seen. See: nedura fleet status")
        return "\n".join(lines)


FLEET_EVENTS: Final[dict[str, type[Any]]] = {event.kind: event for event in (FleetMatrix, VerifyWaiting)}
"""Kind -> class, for readers of the wire form."""
