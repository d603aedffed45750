"""What `gateway list` and `gateway status` say, as events that own their words."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Final, final

import attrs

from nedura.fleet.model import Foreign, MatrixRow, Probe, Runtime

__all__ = ["EVENTS", "GatewayList", "GatewayListRow", "GatewayStatus"]


@attrs.frozen(kw_only=True)
class GatewayListRow:
    """One profile and its gateway.

    Attributes:
        profile: its name.
        home: its home.
        running: whether a gateway serves it.
        row: its line of the version matrix, None when nothing runs.
        state: what the gateway says it does.
        supervisor: who starts it again.
        unit: its unit or label.
        served_by: the profile whose process serves it, when that is another one.
    """

    profile: str
    home: Path
    running: bool
    row: MatrixRow | None = None
    state: str = ""
    supervisor: str = ""
    unit: str = ""
    served_by: str = ""

    @property
    def copy_terminal(self) -> str:
        """The row as a line."""
        if self.served_by:
            return f"● {self.profile} served by {self.served_by}"
        if self.row is None:
            return f"○ {self.profile} not running"
        if not self.running:
            return self.row.copy_terminal
        unit = f" {self.unit}" if self.unit else ""
        return f"{self.row.copy_terminal} [{self.state or 'state unknown'}; {self.supervisor}{unit}]"


@final
@attrs.frozen(kw_only=True)
class GatewayList:
    """Every profile of the install with its gateway.

    Attributes:
        rows: one per profile.
        foreign: what was seen and left alone.
    """

    kind: ClassVar[str] = "gateway_list"
    rows: tuple[GatewayListRow, ...]
    foreign: tuple[Foreign, ...] = ()

    @property
    def copy(self) -> str:
        """Chat form."""
        running = sum(row.running for row in self.rows)
        return f"{running} of {len(self.rows)} profiles have a running gateway."

    @property
    def copy_terminal(self) -> str:
        """Terminal form."""
        return "\n".join(
            [*(row.copy_terminal for row in self.rows), *(item.copy_terminal for item in self.foreign)]
        )


@final
@attrs.frozen(kw_only=True)
class GatewayStatus:
    """One profile's gateway, as it answers itself.

    Attributes:
        profile: its name.
        home: its home.
        running: whether a gateway serves it.
        row: its line of the version matrix, None when nothing runs.
        runtime: what is known of it.
        socket: its control socket, None when there is none to be trusted.
        answer_ms: how long the socket took to answer, None without an answer.
        last_exit: why the last one ended, as its state file says.
        deep: show everything.
        probes: what was asked and what was skipped.
        log: newest lines of its log, when they were asked for.
    """

    kind: ClassVar[str] = "gateway_status"
    profile: str
    home: Path
    running: bool
    row: MatrixRow | None = None
    runtime: Runtime | None = None
    socket: Path | None = None
    answer_ms: float | None = None
    last_exit: str = ""
    deep: bool = False
    probes: tuple[Probe, ...] = ()
    log: tuple[str, ...] = ()

    @property
    def copy(self) -> str:
        """Chat form."""
        if self.runtime is None or self.row is None:
            return f"The gateway of {self.profile} is not running."
        return f"The gateway of {self.profile} is {self.runtime.state or 'alive'}; its version is {self.row.words}."

    @property
    def copy_terminal(self) -> str:
        """Terminal form."""
        if self.runtime is None or self.row is None:
            reason = f" (last end: {self.last_exit})" if self.last_exit else ""
            lines = [f"○ {self.profile} not running{reason}", f"  home        {self.home}"]
        else:
            lines = [self.row.copy_terminal, *self._facts(self.runtime)]
        if self.deep:
            lines += self._deep()
        lines += [f"  log         {line}" for line in self.log]
        return "\n".join(lines)

    def _facts(self, runtime: Runtime) -> list[str]:
        unit = f" {runtime.unit} ({runtime.unit_scope})" if runtime.unit else ""
        rows = [
            ("home", str(self.home)),
            (
                "state",
                f"halted by a signal; run: kill -CONT {runtime.pid}"
                if runtime.halted
                else runtime.state or "unknown",
            ),
            ("turns", str(runtime.active_turns)),
            ("supervisor", f"{runtime.supervisor}{unit}"),
        ]
        if runtime.reported_stale:
            rows.append(("note", "its install would start other code now; a restart is due"))
        return [f"  {name:<11} {value}" for name, value in rows]

    def _deep(self) -> list[str]:
        answered = f"answered in {self.answer_ms:.1f} ms" if self.answer_ms is not None else "no answer"
        lines = [f"  socket      {self.socket or 'none'} ({answered})"]
        if self.runtime is not None:
            detail = self.runtime.detail
            lines += [f"  turn        {_work(work)}" for work in detail.get("active_work") or ()]
            lines += [
                f"  platform    {name}: {facts.get('state', '?') if isinstance(facts, dict) else '?'}"
                for name, facts in sorted((detail.get("platforms") or {}).items())
            ]
            if self.runtime.loop_age_s is not None:
                lines.append(f"  event loop  silent for {self.runtime.loop_age_s:.1f} s")
        lines += [f"  looked at   {probe.what}: {probe.skipped or probe.count}" for probe in self.probes]
        return lines


def _work(work: Any) -> str:
    if not isinstance(work, dict):
        return "?"
    tool = f", {work['current_tool']}" if work.get("current_tool") else ""
    wedged = ", no sign of life" if work.get("wedged") else ""
    return f"{work.get('session') or work.get('kind')}: {work.get('elapsed_s', '?')} s{tool}{wedged}"


EVENTS: Final[tuple[type[Any], ...]] = (GatewayList, GatewayStatus)
"""The classes, for readers of the wire form."""
