"""What a restart of the fleet reports while it happens."""

from __future__ import annotations

from typing import Any, ClassVar, Final, final

import attrs

from nedura.text import clean

__all__ = [
    "EVENTS",
    "RESTART_EVENTS",
    "DrainWaiting",
    "LeftAlone",
    "MemberFailed",
    "MemberRestarted",
    "RestartEvent",
    "RestartPending",
    "RestartStarted",
    "RestartWaiting",
    "SettleWaiting",
]


def _who(profile: str, kind: str) -> str:
    return f"The {kind} of profile {clean(profile, 64)}"


def _span(seconds: float) -> str:
    """Seconds as people read them in a progress line."""
    whole = int(seconds)
    if whole < 120:
        return f"{whole} s"
    return (
        f"{whole // 60} min {whole % 60:02d} s"
        if whole < 7200
        else f"{whole // 3600} h {whole % 3600 // 60} min"
    )


@final
@attrs.frozen(kw_only=True)
class RestartStarted:
    """A member is about to be drained and restarted.

    Attributes:
        profile: whose it is.
        pid: the process that will go.
        member: gateway, serve or dashboard.
        supervisor: who starts its successor.
        unit: unit, label or task; empty without one.
        aliases: other units that name the same process.
    """

    kind: ClassVar[str] = "restart_started"
    profile: str
    pid: int
    member: str = "gateway"
    supervisor: str = ""
    unit: str = ""
    aliases: tuple[str, ...] = ()

    @property
    def copy(self) -> str:
        """Chat form."""
        return f"Restarting the {self.member} of profile {clean(self.profile, 64)}."

    @property
    def copy_terminal(self) -> str:
        """Terminal form."""
        where = f" ({clean(self.unit)})" if self.unit else f" ({self.supervisor})" if self.supervisor else ""
        also = f", also known as {', '.join(clean(name) for name in self.aliases)}" if self.aliases else ""
        return f"→ {clean(self.profile, 64)} {self.member} pid {self.pid}{where}{also}: restarting"


@final
@attrs.frozen(kw_only=True)
class DrainWaiting:
    """A member still finishes what it runs.

    Attributes:
        elapsed: seconds since it was asked.
        waiting_for: what it still does, in words.
        limit: seconds after which it is restarted the hard way; 0 when unknown.
    """

    kind: ClassVar[str] = "drain_waiting"
    profile: str
    pid: int
    elapsed: float
    waiting_for: str = ""
    limit: float = 0.0

    @property
    def copy(self) -> str:
        """Chat form."""
        return f"{_who(self.profile, 'gateway')} is finishing {clean(self.waiting_for) or 'its work'} ({_span(self.elapsed)})."

    @property
    def copy_terminal(self) -> str:
        """Terminal form."""
        limit = f" of at most {_span(self.limit)}" if self.limit else ""
        what = clean(self.waiting_for) or "the process to end"
        return f"  {clean(self.profile, 64)} pid {self.pid}: waiting for {what}, {_span(self.elapsed)}{limit}"


@final
@attrs.frozen(kw_only=True)
class RestartWaiting:
    """The old process is gone or going; its successor does not serve yet.

    Attributes:
        elapsed: seconds of this wait.
        waiting_for: whom we wait for, in words.
    """

    kind: ClassVar[str] = "restart_waiting"
    profile: str
    elapsed: float
    waiting_for: str
    unit: str = ""

    @property
    def copy(self) -> str:
        """Chat form."""
        return f"{_who(self.profile, 'gateway')} is starting ({_span(self.elapsed)})."

    @property
    def copy_terminal(self) -> str:
        """Terminal form."""
        unit = f" ({clean(self.unit)})" if self.unit else ""
        return (
            f"  {clean(self.profile, 64)}{unit}: waiting for {clean(self.waiting_for)}, {_span(self.elapsed)}"
        )


@final
@attrs.frozen(kw_only=True)
class SettleWaiting:
    """Everybody left serves again and is watched for a while, so that a build that dies soon after its start is seen.

    Attributes:
        waiting_for: members that are still watched.
        seconds_left: seconds until the last of these watches ends.
    """

    kind: ClassVar[str] = "settle_waiting"
    waiting_for: tuple[str, ...]
    seconds_left: float

    @property
    def _what(self) -> str:
        count = len(self.waiting_for)
        return (
            f"whether {count} restarted member{'' if count == 1 else 's'} stay{'s' if count == 1 else ''} up"
        )

    @property
    def copy(self) -> str:
        """Chat form."""
        return f"Watching {self._what}, {_span(self.seconds_left)} left."

    @property
    def copy_terminal(self) -> str:
        """Terminal form."""
        return f"  watching {self._what}, {_span(self.seconds_left)} left"


@final
@attrs.frozen(kw_only=True)
class MemberRestarted:
    """A member serves again, verified.

    Attributes:
        pid: the new process.
        downtime_ms: from the stop request to the verified answer, in milliseconds (decision 37).
        verdict: `current`, or `unknown` when nobody says what runs.
    """

    kind: ClassVar[str] = "member_restarted"
    profile: str
    pid: int
    downtime_ms: int
    verdict: str = "current"
    member: str = "gateway"
    unit: str = ""

    @property
    def copy(self) -> str:
        """Chat form."""
        return f"{_who(self.profile, self.member)} is back after {self.downtime_ms / 1000:.1f} s."

    @property
    def copy_terminal(self) -> str:
        """Terminal form."""
        return (
            f"✓ {clean(self.profile, 64)} {self.member} pid {self.pid}: {self.verdict}, "
            f"back after {self.downtime_ms / 1000:.2f} s"
        )


@final
@attrs.frozen(kw_only=True)
class MemberFailed:
    """A member is not verified on the code it should run. It stays owed.

    Attributes:
        check: closed token of the check that failed (`drain`, `start`, `boot`, `ready`, `version`, `health`, `settle`, `manager`, ...).
        reason: the same in words.
        incomplete: the manager still works on it; it may yet come up.
        command: what a person runs to finish it.
    """

    kind: ClassVar[str] = "member_failed"
    profile: str
    pid: int
    check: str
    reason: str
    incomplete: bool = False
    command: str = ""
    member: str = "gateway"
    unit: str = ""

    @property
    def copy(self) -> str:
        """Chat form."""
        state = "has not finished its restart yet" if self.incomplete else "did not come back as it should"
        return f"{_who(self.profile, self.member)} {state}. It stays on the list."

    @property
    def copy_terminal(self) -> str:
        """Terminal form."""
        run = f" Run: {clean(self.command, 300)}" if self.command else ""
        mark = "…" if self.incomplete else "✗"
        return f"{mark} {clean(self.profile, 64)} {self.member}: {self.check}: {clean(self.reason, 300)}{run}"


@final
@attrs.frozen(kw_only=True)
class RestartPending:
    """A member that this process runs under was told to restart; nobody waits for it here (decision 20)."""

    kind: ClassVar[str] = "restart_pending"
    profile: str
    pid: int
    unit: str = ""

    @property
    def copy(self) -> str:
        """Chat form."""
        return f"{_who(self.profile, 'gateway')} restarts when it has finished its own work."

    @property
    def copy_terminal(self) -> str:
        """Terminal form."""
        return f"↻ {clean(self.profile, 64)} gateway pid {self.pid}: told to restart after its running turns"


@final
@attrs.frozen(kw_only=True)
class LeftAlone:
    """A runtime that is not ours to restart. No failure.

    Attributes:
        name: unit, label or process as people know it.
        what: `systemd unit`, `launchd job`, `gateway process`.
        reason: in words.
        home: the home it runs on, empty when it could not be read.
    """

    kind: ClassVar[str] = "left_alone"
    name: str
    what: str
    reason: str
    home: str = ""

    @property
    def copy(self) -> str:
        """Chat form."""
        return f"{clean(self.name)} was left alone: {clean(self.reason)}."

    @property
    def copy_terminal(self) -> str:
        """Terminal form."""
        where = f" ({clean(self.home, 300)})" if self.home else ""
        return f"↷ {clean(self.name)}: {clean(self.what)} {clean(self.reason)}{where}, left alone"


RestartEvent = (
    RestartStarted
    | DrainWaiting
    | RestartWaiting
    | MemberRestarted
    | MemberFailed
    | RestartPending
    | SettleWaiting
    | LeftAlone
)

EVENTS: Final[tuple[type[Any], ...]] = (
    RestartStarted,
    DrainWaiting,
    RestartWaiting,
    MemberRestarted,
    MemberFailed,
    RestartPending,
    SettleWaiting,
    LeftAlone,
)

RESTART_EVENTS: Final[dict[str, type[Any]]] = {event.kind: event for event in EVENTS}
"""Kind -> class, for readers of the wire form."""
