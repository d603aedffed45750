"""The plan: a read-only inventory of what an update would touch (facts/update.md 3). It never raises."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, final

import attrs

from nedura.clock import Clock, SystemClock
from nedura.homes import current_home, root_home
from nedura.product import NEDURA, Product
from nedura.text import counted
from nedura.update.options import SnapshotMode
from nedura.update.source.unfinished import unfinished_text
from nedura.wire import LATER

__all__ = ["Plan", "PlanRuntime", "plan_update"]

_VIA = {
    "systemd": "restarted by systemd",
    "launchd": "restarted by launchd",
    "desktop": "restarted by the app",
    "windows-service": "restarted by the service manager",
    "respawn-argv": "started again with its own arguments",
    "manual": "restarted by us",
    "external": "restarted by its own supervisor",
    "s6": "restarted by s6",
}


@final
@attrs.frozen(kw_only=True)
class PlanRuntime:
    """One live runtime (facts/update.md 3.1)."""

    kind: str
    profile: str
    pid: int | None
    supervisor: str
    code_sha: str | None
    code_version: str | None
    restart_via: str
    detail: Mapping[str, Any] = attrs.field(factory=dict)

    @property
    def lines(self) -> tuple[str, str]:
        """Two lines for people."""
        code = f" @ {self.code_sha[:8]}" if self.code_sha else ""
        return (
            f"  {self.kind} [{self.profile}] pid {self.pid} — {self.supervisor}{code}",
            f"      {_VIA.get(self.restart_via, self.restart_via)}",
        )


@final
@attrs.frozen(kw_only=True)
class Plan:
    """What an update would touch.

    Attributes:
        install_method: git, docker, nix, apt, ... or the manager's name.
        updatable_in_place: this program updates it.
        update_mechanism: command or guidance.
        expected_sha: commit that runs now, None when unknown.
        expected_version: its version.
        profiles: `default` first, then by name.
        runtimes: live runtimes of this install.
        refusal: why it is not updatable in place.
        conflicts: what claims another install kind, and why it does not count; what is wrong with the home, so that no update works there.
        install_id: id of the install.
        layout: sealed, checkout or zip.
        generation: what is current in a sealed install.
        source: the owner's checkout, or the unpacked release.
        remote: where updates come from, without credentials.
        fork_of: what that remote is a fork of, empty when it is none.
        follows: branch or channel, and what chose it.
        pinned: release tag that a checkout is pinned to, empty otherwise.
        local_edits: paths that differ in the source, by what happens to them.
        ignored_programs: settings of the source that name programs; none of them runs.
        stopped: services of this install that are installed and do not run, by name with their profile; none of them is started.
        foreign: what was seen and is left alone.
        strays: folders among the profiles that are none, and why.
        fixed_definitions: unit files that name a generation's path and will be rewritten.
        unreadable: parts of the inventory that could not be read, and why.
        deadlines: seconds by stage.
        deadline_s: seconds of the whole run.
        deadline_given: whether the caller chose those seconds; else they are the sum of the stages.
        summary: one line about the fleet.
        moved_to: the source's own remote where it is another place than the pinned one, which updates keep to.
        old_git: git cannot merge local edits; edits that nobody has to bring back are no matter.
        unfinished: what somebody began in the source with git and did not finish, as `a rebase`; empty when nothing.
    """

    kind: ClassVar[str] = "plan"
    install_method: str = "unknown"
    updatable_in_place: bool = False
    update_mechanism: str = ""
    expected_sha: str | None = None
    expected_version: str | None = None
    profiles: tuple[str, ...] = ()
    runtimes: tuple[PlanRuntime, ...] = ()
    refusal: str = ""
    conflicts: tuple[str, ...] = ()
    install_id: str = ""
    layout: str = ""
    generation: str = ""
    source: str = ""
    remote: str = ""
    fork_of: str = ""
    follows: str = ""
    pinned: str = ""
    local_edits: Mapping[str, str] = attrs.field(factory=dict)
    ignored_programs: tuple[str, ...] = ()
    stopped: Mapping[str, str] = attrs.field(factory=dict)
    foreign: tuple[str, ...] = ()
    strays: Mapping[str, str] = attrs.field(factory=dict)
    fixed_definitions: tuple[str, ...] = ()
    unreadable: Mapping[str, str] = attrs.field(factory=dict)
    deadlines: Mapping[str, float] = attrs.field(factory=dict)
    deadline_s: float = 0.0
    deadline_given: bool = False
    summary: str = ""
    unfinished: str = attrs.field(default="", metadata=LATER)
    moved_to: str = attrs.field(default="", metadata=LATER)
    old_git: bool = attrs.field(default=False, metadata=LATER)

    @property
    def copy(self) -> str:
        """Chat form."""
        if not self.updatable_in_place:
            return "This install cannot be updated from here."
        count = len(self.runtimes)
        return (
            f"An update would restart {counted(count, 'member')}."
            if count
            else ("An update would change the code only; nothing is running.")
        )

    @property
    def copy_terminal(self) -> str:
        """Terminal form: the whole plan."""
        return "\n".join(
            [*self._install_lines(), *self._profile_lines(), *self._fleet_lines(), *self._deadline_lines()]
        )

    def _install_lines(self) -> list[str]:
        code = f"{self.expected_version or 'version unknown'}"
        code += f" ({self.expected_sha[:8]})" if self.expected_sha else ""
        told = self.layout and self.layout != self.install_method and self.updatable_in_place
        layout = f", {self.layout}" if told else ""
        generation = f", generation {self.generation}" if self.generation else ""
        lines = ["Update plan", f"  Install: {self.install_method}{layout}{generation}, {code}"]
        if not self.updatable_in_place:
            lines.append(f"  ⚠ Not updatable in place: {self.refusal}")
            lines += [f"    Update it with: {self.update_mechanism}"] if self.update_mechanism else []
        lines += [f"  Source: {self.source}"] if self.source else []
        lines += [f"  Updates come from {self.remote}, {self.follows}"] if self.remote else []
        if self.moved_to:
            lines.append(f"  ⚠ The source's remote is {self.moved_to} now; updates keep to the pinned one")
        lines += [f"  That is a fork of {self.fork_of}"] if self.fork_of else []
        lines += [f"  Pinned to {self.pinned}"] if self.pinned else []
        if self.unfinished:
            lines.append(f"  ⚠ {unfinished_text(self.unfinished, self.source)}")
        if self.old_git:
            lines.append(
                "  ⚠ git is older than 2.38, so an update cannot carry local edits: install a newer one"
            )
        lines += [f"  ⚠ {text}" for text in self.conflicts]
        lines += self._edit_lines()
        if self.ignored_programs:
            lines.append(
                f"  Settings of the source that name programs (never run): {', '.join(self.ignored_programs)}"
            )
        lines += [
            f"  ⚠ {name}: names a generation's path; an update rewrites it" for name in self.fixed_definitions
        ]
        lines += [f"  ⚠ {part} could not be read: {why}" for part, why in self.unreadable.items()]
        return lines

    def _edit_lines(self) -> list[str]:
        if not self.local_edits:
            return []
        shown = [f"    {path}: {what}" for path, what in sorted(self.local_edits.items())[:20]]
        more = len(self.local_edits) - len(shown)
        return [f"  Local edits ({len(self.local_edits)}):", *shown] + (
            [f"    and {more} more"] if more else []
        )

    def _profile_lines(self) -> list[str]:
        lines = [f"  Profiles: {', '.join(self.profiles)}" if self.profiles else "  Profiles: none found"]
        return lines + [f"  ⚠ profiles/{name}: {why}" for name, why in self.strays.items()]

    def _fleet_lines(self) -> list[str]:
        lines = [f"  {self.summary}"]
        for runtime in self.runtimes:
            lines += runtime.lines
        lines += [
            f"  {name} [{profile}] — installed, not running; an update does not start it"
            for name, profile in self.stopped.items()
        ]
        return lines + [f"  {line}" for line in self.foreign]

    def _deadline_lines(self) -> list[str]:
        if not self.deadlines:
            return []
        told = ", ".join(f"{stage} {seconds:.0f} s" for stage, seconds in self.deadlines.items())
        given = " (--deadline)" if self.deadline_given else ""
        return [f"  Deadlines: {told}; in all {self.deadline_s:g} s{given}"]


async def plan_update(
    *,
    home: Path | None = None,
    product: Product = NEDURA,
    clock: Clock | None = None,
    environ: Mapping[str, str] | None = None,
    anchor: Path | None = None,
    deadline: float | None = None,
    branch: str | None = None,
    channel: str | None = None,
    saves: SnapshotMode | None = None,
) -> Plan:
    """Collect the plan. Reads only, never raises; a part that cannot be read is named in `unreadable`.

    Args:
        home: the invoking profile's home; default the current one.
        product: names.
        clock: time seam.
        environ: environment seam.
        anchor: a file of the running code; default this one.
        deadline: seconds that the caller gives the whole run; default as much as its stages may take.
        branch: branch that the update is asked to follow.
        channel: channel that it is asked to follow; a branch wins.
        saves: how much the update is asked to save first; default what the configuration says.
    """
    from nedura.update.planning.plan_collect import collect_plan

    environ = dict(os.environ if environ is None else environ)
    home = current_home(environ) if home is None else home
    root = root_home(home, environ)
    clock = SystemClock() if clock is None else clock
    found = await collect_plan(root, home, product, environ, clock, anchor, (branch, channel), saves)
    return found if deadline is None else attrs.evolve(found, deadline_s=deadline, deadline_given=True)
