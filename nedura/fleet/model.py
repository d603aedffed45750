"""What a fleet is made of: runtimes, what is left alone, and the rows of the version matrix. Data only, no IO."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

import attrs

from nedura.installs import CodeIdentity
from nedura.wire import LATER

__all__ = [
    "RESTART_VIA",
    "Fleet",
    "Foreign",
    "ForeignReason",
    "MatrixRow",
    "Probe",
    "Runtime",
    "RuntimeKind",
    "ServiceInfo",
    "Source",
    "Verdict",
    "restart_via",
]

NOTHING_KNOWN: Final = CodeIdentity()

RuntimeKind = Literal["gateway", "serve", "dashboard"]
Source = Literal["socket", "file", "scan", "ledger"]
Verdict = Literal["current", "stale", "down", "unknown", "external", "restart_pending"]
ForeignReason = Literal[
    "another home", "home unreadable", "another install", "another product", "another user"
]

RESTART_VIA: Final[Mapping[str, str]] = {
    "systemd": "systemd",
    "launchd": "launchd",
    "service": "systemd",
    "windows-service": "windows-service",
    "desktop": "desktop",
    "desktop-ssh": "desktop",
    "s6": "s6",
    "external": "external",
    "manual": "manual",
    "manual-serve": "respawn-argv",
}
"""Supervisor -> how a runtime is restarted (facts/update.md 3.1). Display text derives from the id, never the reverse."""


def restart_via(supervisor: str) -> str:
    """How a runtime of this supervisor is restarted; what nobody knows is `manual`."""
    return RESTART_VIA.get(supervisor, "manual")


@attrs.frozen(kw_only=True)
class Runtime:
    """One live process that serves one or several homes of this install.

    Attributes:
        kind: what it serves.
        profile: profile of its process home, `default` for the root.
        pid: process id.
        start_time: the kernel's start time of that pid (Linux: ticks since boot), None when it cannot be read.
        home: its process home.
        supervisor: id of `RESTART_VIA`.
        restart_via: how it is restarted; derived from `supervisor`.
        unit: systemd unit or launchd label, with suffix; empty when it has none.
        unit_scope: `user` or `system`, empty without a unit.
        aliases: further units whose main process is the same one.
        code: identity of the code it imported.
        state: its own `gateway_state`: starting, running, degraded, draining, stopped, startup_failed; empty when unknown.
        active_turns: units of work it runs now.
        ancestor: whether it is an ancestor of the process that asks.
        served_profiles: further profiles that the same process serves.
        source: what told us: its socket, its files, a scan, the spawn ledger.
        drain_budget_s: seconds after which its own drain ends, as it declares them.
        boot_s: seconds from its start to its first `running`.
        loop_age_s: seconds since its event loop last ran, as its socket thread saw it; None without a socket answer.
        reported_stale: it says itself that its code is not what its install would start now (decision 31).
        halted: a signal (SIGSTOP, Ctrl-Z) or a debugger holds its process: it lives and serves nobody.
        detail: serve and dashboard: host, port; else what a reader may want to show.
    """

    kind: RuntimeKind
    profile: str
    pid: int
    start_time: int | None
    home: Path
    supervisor: str = "manual"
    unit: str = ""
    unit_scope: str = ""
    aliases: tuple[str, ...] = ()
    code: CodeIdentity = NOTHING_KNOWN
    state: str = ""
    active_turns: int = 0
    ancestor: bool = False
    served_profiles: tuple[str, ...] = ()
    source: Source = "scan"
    drain_budget_s: float | None = None
    boot_s: float | None = None
    loop_age_s: float | None = None
    reported_stale: bool = False
    halted: bool = False
    detail: Mapping[str, Any] = attrs.field(factory=dict)
    restart_via: str = attrs.field()

    @restart_via.default
    def _derived(self) -> str:
        return restart_via(self.supervisor)

    @property
    def wedged(self) -> bool:
        """Its event loop has proven to stand still for more than 90 s. Any doubt means alive (facts/runtime.md 5.7)."""
        return self.loop_age_s is not None and self.loop_age_s > 90

    @property
    def name(self) -> str:
        """How a row calls it: the profile, with the kind when it is no gateway."""
        return self.profile if self.kind == "gateway" else f"{self.profile} ({self.kind})"


@attrs.frozen(kw_only=True)
class Foreign:
    """A runtime, unit or label that is not ours: named and left alone, never a failure (decision 38).

    Attributes:
        what: `gateway process`, `systemd unit`, `launchd job`.
        name: unit, label or `pid N`.
        reason: why it is not ours.
        home: the home it runs on, None when that could not be read.
        pid: its process, when there is one.
        detail: one line more, e.g. the other install's id.
    """

    what: str
    name: str
    reason: ForeignReason
    home: Path | None = None
    pid: int | None = None
    detail: str = ""

    @property
    def unreadable(self) -> bool:
        """Nobody can say which home it runs on: it may be one of ours, so it counts as unknown (case C194)."""
        return self.home is None and self.reason in ("home unreadable", "another user")

    @property
    def copy_terminal(self) -> str:
        """One line for people."""
        where = {
            "another home": f"{self.what} of another home ({self.home})",
            "home unreadable": f"{self.what} whose home could not be read",
            "another install": f"{self.what} of another install on {self.home}",
            "another product": f"{self.what} of another product",
            "another user": f"{self.what} of another user",
        }[self.reason]
        return f"↷ {self.name}: {where}, left alone"


@attrs.frozen(kw_only=True)
class Probe:
    """What a collection looked at, for people who doubt its result.

    Attributes:
        what: `socket`, `state file`, `process table`, `spawn ledger`, `systemd (user)` and so on.
        count: how many of them were asked.
        skipped: why nothing (more) was asked; empty when it was.
    """

    what: str
    count: int = 0
    skipped: str = ""


@attrs.frozen(kw_only=True)
class Fleet:
    """Everything a collection found.

    Attributes:
        runtimes: live runtimes of this install, gateways first, `default` before the others.
        foreign: what was seen and left alone.
        gone: gateways whose files still claim to run although their process is dead.
        homes: the homes of this install that were looked at.
        probes: what was asked and what was skipped.
        collected_at: unix seconds.
    """

    runtimes: tuple[Runtime, ...] = ()
    foreign: tuple[Foreign, ...] = ()
    gone: tuple[Runtime, ...] = ()
    homes: tuple[Path, ...] = ()
    probes: tuple[Probe, ...] = ()
    collected_at: float = 0.0

    @property
    def gateways(self) -> tuple[Runtime, ...]:
        """The runtimes that serve messages."""
        return tuple(runtime for runtime in self.runtimes if runtime.kind == "gateway")


_MARKS: Final[Mapping[str, str]] = {
    "current": "✓",
    "stale": "✗",
    "down": "✗",
    "unknown": "?",
    "external": "◆",
    "restart_pending": "↻",
}
_WORDS: Final[Mapping[str, str]] = {
    "current": "up to date",
    "stale": "STALE",
    "down": "DOWN",
    "unknown": "version unknown",
    "external": "separate install, left alone",
    "restart_pending": "restart pending",
}


@attrs.frozen(kw_only=True)
class MatrixRow:
    """One line of the fleet version matrix (facts/update.md 8.2).

    Attributes:
        profile: whose gateway.
        pid: its process; for `down` the one that was there.
        state: the verdict.
        install_id: install that it belongs to, as far as known; so are the next three.
        generation: generation of a sealed install.
        code_sha: commit it runs.
        code_version: version it runs.
        kind: what it serves.
        home: its home.
        source: what told us.
        served_profiles: further profiles of the same process.
        identity_pending: it lives but has not published what it runs yet.
        note: one line more, e.g. the refusal that keeps it.
        unsteady: its restarted process did not stay up, whatever serves there now.
    """

    profile: str
    pid: int | None
    state: Verdict
    install_id: str = ""
    generation: str = ""
    code_sha: str = ""
    code_version: str = ""
    kind: RuntimeKind = "gateway"
    home: Path | None = None
    source: Source = "file"
    served_profiles: tuple[str, ...] = ()
    identity_pending: bool = False
    note: str = ""
    unsteady: bool = attrs.field(default=False, metadata=LATER)

    @property
    def failing(self) -> bool:
        """Whether this row leaves the fleet incomplete. Unknown, external and pending rows never do by themselves."""
        return self.unsteady or self.state in ("stale", "down")

    @property
    def mark(self) -> str:
        """The row's glyph."""
        return _MARKS["stale" if self.unsteady else self.state]

    @property
    def words(self) -> str:
        """The verdict as people read it."""
        if self.unsteady and self.state != "down":
            return "DID NOT STAY UP"
        return "identity not published yet" if self.identity_pending else _WORDS[self.state]

    @property
    def copy_terminal(self) -> str:
        """The row as a line of text."""
        name = self.profile if self.kind == "gateway" else f"{self.profile} ({self.kind})"
        served = f" +{','.join(self.served_profiles)}" if self.served_profiles else ""
        pid = f" (pid {self.pid})" if self.pid and self.state != "down" else ""
        short = self.code_sha[:8] or self.code_version
        code = f" @ {short}" if short else ""
        note = f" ({self.note})" if self.note else ""
        return f"{self.mark} {name}{served}{pid}{code} {self.words}{note}"


@attrs.frozen(kw_only=True)
class ServiceInfo:
    """A service manager's view of one unit or label, as a supervisor adapter reads it. Input of scope judgement.

    Attributes:
        name: full unit name (`nedura-gateway-work.service`) or label.
        what: `systemd unit` or `launchd job`.
        scope: `user` or `system`; launchd: the domain.
        state: the manager's own word (`active`, `activating`, `inactive`, `failed`).
        main_pid: its main process, None when it has none; may be a wrapper.
        pids: every process of its cgroup, as far as known.
        environment: the definition's environment.
        definition: its file, None when unknown.
        written_by_us: the definition carries our marker.
    """

    name: str
    what: str = "systemd unit"
    scope: str = "user"
    state: str = ""
    main_pid: int | None = None
    pids: tuple[int, ...] = ()
    environment: Mapping[str, str] = attrs.field(factory=dict)
    definition: Path | None = None
    written_by_us: bool = False
