"""Restart through systemd, user and system scope (facts/update.md 7.3, platform.md)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import attrs

from nedura.fleet.budget import restart_budget
from nedura.fleet.model import Runtime
from nedura.fleet.supervisors.base import RestartError, Say
from nedura.fleet.supervisors.systemctl import QUICK_SECONDS, ClientTimeout, Scope, Systemctl, run_bounded
from nedura.fleet.supervisors.unit_state import UnitState, why_down
from nedura.programs import find_program

__all__ = ["SystemdSupervisor", "start_verb"]

_HANDOVER_SECONDS: Final = 5.0
_ACTIVE_SECONDS: Final = 10.0
_IDLE_SECONDS: Final = 2.0
_LONG_DELAY: Final = 1.0
_FAST_STEP: Final = 0.02
_SLOW_STEP: Final = 0.25


_CGROUPS: Final = Path("/sys/fs/cgroup")


def processes_of(cgroup: str, root: Path = _CGROUPS) -> frozenset[int] | None:
    """Pids in a unit's control group; None when it cannot be read. An ended process that nobody waited for is not among them.

    Args:
        cgroup: as the manager prints it, absolute.
        root: where the unified hierarchy is mounted.
    """
    try:
        text = (root / cgroup.lstrip("/") / "cgroup.procs").read_text()
    except OSError:
        return None
    return frozenset(int(word) for word in text.split() if word.isdigit())


def start_verb(state: UnitState) -> str:
    """How a unit whose process has ended is started without its RestartSec delay.

    A `start` of a unit that waits for its automatic restart only joins that wait (seen with 252); a `restart` ends the wait. With a
    delay so short that the manager may be faster, a `restart` could hit the successor, so there `start` joins.
    """
    return (
        "restart" if state.sub.startswith("auto-restart") and state.restart_delay >= _LONG_DELAY else "start"
    )


@attrs.define
class _Armed:
    """What a unit was like before anything was stopped.

    Attributes:
        systemctl: who is asked.
        before: its state.
        may_manage: the rights to start it are there.
        visible: its main process was seen in its control group, so that an empty or missing group means an ended unit.
        why_not: why we may not manage it, in words.
    """

    systemctl: Systemctl
    before: UnitState
    may_manage: bool
    visible: bool = False
    why_not: str = ""

    def is_up(self, state: UnitState) -> bool:
        """Whether a start is done. A unit that never had a main process (a gateway that forked away) gets none by a restart."""
        return state.running or (self.unmanned and state.active == "active")

    @property
    def unmanned(self) -> bool:
        """It is active without a main process, so its state says nothing about the gateway in it."""
        return self.before.active == "active" and not self.before.main_pid

    @property
    def ended(self) -> bool:
        """Whether no process of the unit is left, neither the old ones nor a successor."""
        return self.visible and not processes_of(self.before.cgroup)


class SystemdSupervisor:
    """Restarts members whose unit a systemd manager owns; the manager is the runtime's own, never the other one.

    Args:
        environ: where PATH and the user's runtime folder come from; default this process's.
        uid: who we are; default the process's effective uid.
    """

    def __init__(self, *, environ: Mapping[str, str] | None = None, uid: int | None = None) -> None:
        self._environ = os.environ if environ is None else environ
        self._uid = os.geteuid() if uid is None else uid
        self._managers: dict[Scope, Systemctl] = {}
        self._allowed: dict[str, Systemctl | None] = {}
        self._armed: dict[tuple[str, str], _Armed] = {}

    def manager(self, scope: str) -> Systemctl:
        """The manager of a scope."""
        key: Scope = "system" if scope == "system" else "user"
        if key not in self._managers:
            self._managers[key] = Systemctl(key, environ=self._environ)
        return self._managers[key]

    async def _manageable(self, runtime: Runtime) -> Systemctl | None:
        """The manager with the rights that starting this unit needs; None without them. A prompt is never risked."""
        plain = self.manager(runtime.unit_scope)
        if plain.scope == "user" or self._uid == 0:
            return plain
        if runtime.unit not in self._allowed:
            self._allowed[runtime.unit] = await self._probe_rights(plain, runtime.unit)
        return self._allowed[runtime.unit]

    async def _probe_rights(self, plain: Systemctl, unit: str) -> Systemctl | None:
        candidates = [plain]
        sudo = find_program("sudo", self._environ)
        if sudo is not None:
            try:
                if (await run_bounded((sudo, "-n", "true"), plain.environment(), QUICK_SECONDS)).status == 0:
                    candidates.insert(0, plain.elevated((sudo, "-n")))
            except RestartError:
                pass  # no sudo that answers is no right
        for manager in candidates:
            try:
                if (await manager.call("reset-failed", unit, timeout=QUICK_SECONDS)).status == 0:
                    return manager
            except RestartError:
                continue
        return None

    async def able(self, runtime: Runtime) -> bool:
        """As `Supervisor.able`: the rights are there and the manager would start it."""
        try:
            state = await self.manager(runtime.unit_scope).state(runtime.unit)
        except RestartError:
            return False
        known = state.load == "loaded" and not state.refuses and not state.is_forgotten()
        return known and await self._manageable(runtime) is not None

    async def arm(self, runtime: Runtime) -> None:
        """Read the unit before anything is stopped; a unit that would not come back is left running.

        Raises:
            RestartError: the manager does not answer, or would not start it again.
        """
        plain = self.manager(runtime.unit_scope)
        before = await self._past_activation(plain, await plain.state(runtime.unit))
        if before.load != "loaded":
            check, reason = why_down(before)
            raise RestartError(f"{runtime.unit} was left running: {reason}.", check=check, final=True)
        able = None if before.refuses else await self._manageable(runtime)
        why_not = "" if able else "needs more rights than this user has"
        if before.refuses:
            why_not = "refuses to be started or stopped by hand"
        if before.is_forgotten() or (able is None and not before.returns()):
            reason = why_not or "is transient: its manager forgets it when it ends"
            raise RestartError(
                f"{runtime.unit} was left running: it {reason}, and nobody would start it again.",
                check="privileges" if able is None else "missing",
                final=True,
            )
        visible = bool(before.cgroup) and before.main_pid in (processes_of(before.cgroup) or ())
        self._armed[runtime.unit_scope, runtime.unit] = _Armed(
            able or plain, before, able is not None, visible, why_not
        )

    async def _past_activation(self, manager: Systemctl, state: UnitState) -> UnitState:
        """A unit that is just starting has no drain yet: give it its start budget to become ready."""
        loop = asyncio.get_running_loop()
        end = loop.time() + restart_budget(None, state.start_limit, drained=True)
        while state.active == "activating" and state.sub.startswith("start") and loop.time() < end:
            await asyncio.sleep(_SLOW_STEP)
            state = await manager.state(state.name)
        return state

    async def revive(self, runtime: Runtime, say: Say) -> None:
        """As `Supervisor.revive`.

        Raises:
            RestartError: it did not come up.
        """
        armed = self._armed[runtime.unit_scope, runtime.unit]
        if armed.may_manage and armed.before.restart_delay >= _LONG_DELAY and armed.ended:
            # The manager takes up the end of its own child before any request, and its own restart is far: no question is needed.
            say("systemctl restart")
            await self._start(armed, "restart", say)
            return
        say("its manager to notice the end")
        state = await self._handed_over(armed)
        if state.running:
            return  # the manager was faster
        if not armed.may_manage:
            await self._passive_wait(armed, say)
            return
        if state.active == "failed" and not state.transient:  # a transient one would be forgotten by that
            await armed.systemctl.call("reset-failed", runtime.unit, timeout=QUICK_SECONDS)
        verb = "restart" if armed.unmanned and state.active == "active" else start_verb(state)
        say(f"systemctl {verb}")
        await self._start(armed, verb, say)

    async def _start(self, armed: _Armed, verb: str, say: Say) -> None:
        budget = restart_budget(None, armed.before.start_limit, drained=True)
        answered = await self._run_job(armed, verb, budget, say)
        if not (
            answered and armed.before.notifies
        ):  # a job of a unit that notifies ends with the unit's own word
            await self._until_active(armed, _ACTIVE_SECONDS)

    async def _handed_over(self, armed: _Armed) -> UnitState:
        """Wait until the manager knows that the old main process ended; a start before that would do nothing."""
        loop = asyncio.get_running_loop()
        end = loop.time() + _HANDOVER_SECONDS
        state = await armed.systemctl.state(armed.before.name)
        while state.main_pid == armed.before.main_pid and state.main_pid and loop.time() < end:
            await asyncio.sleep(_FAST_STEP)
            state = await armed.systemctl.state(armed.before.name)
        if state.main_pid == armed.before.main_pid and state.main_pid:
            raise RestartError("The unit's main process outlived the gateway in it.", check="stop")
        return state

    async def _passive_wait(self, armed: _Armed, say: Say) -> None:
        """Without rights: the manager's own restart, its delay and its start limit (C075)."""
        limit = max(
            _ACTIVE_SECONDS,
            armed.before.restart_delay + restart_budget(None, armed.before.start_limit, drained=True),
        )
        say(f"the manager's own restart (it {armed.why_not})")
        await self._until_active(armed, limit)

    async def _run_job(self, armed: _Armed, verb: str, budget: float, say: Say) -> bool:
        """Run `start` or `restart` in its budget; when the client's time is up, watch the manager's job (it lives on).

        Returns:
            Whether the manager said that its job was done.

        Raises:
            RestartError: it failed, or it is still under way after as long again (`incomplete`).
        """
        unit = armed.before.name
        try:
            ran = await armed.systemctl.call(verb, unit, timeout=budget)
        except ClientTimeout:
            await self._watch_job(armed, verb, budget, say)
            return False
        if ran.status != 0:
            state = await armed.systemctl.state(unit)
            if armed.is_up(state):
                return False
            check, reason = why_down(state)
            timed_out = state.result == "timeout"
            raise RestartError(
                f"{unit}: {reason}.", check=check, final=timed_out or check in ("masked", "missing")
            )
        return True

    async def _watch_job(self, armed: _Armed, verb: str, budget: float, say: Say) -> None:
        unit = armed.before.name
        loop = asyncio.get_running_loop()
        end = loop.time() + budget
        while loop.time() < end:
            job = await armed.systemctl.job(unit)
            if not job:
                break
            say(f"the manager's own job ({job}), {verb} gave no answer in {budget:.0f} s")
            await asyncio.sleep(_SLOW_STEP)
        state = await armed.systemctl.state(unit)
        if armed.is_up(state) and (armed.unmanned or state.main_pid != armed.before.main_pid):
            return
        job = await armed.systemctl.job(unit)
        _, reason = why_down(state)
        raise RestartError(
            f"{unit}: the {verb} is not complete after {2 * budget:.0f} s: {f'{job}, ' if job else ''}{reason}.",
            check="manager",
            incomplete=bool(job),
        )

    async def _until_active(self, armed: _Armed, limit: float) -> UnitState:
        loop = asyncio.get_running_loop()
        start, step, idle_since = loop.time(), _FAST_STEP, None
        while True:
            state = await armed.systemctl.state(armed.before.name)
            if armed.is_up(state):
                return state
            now = loop.time()
            idle_since = (idle_since or now) if state.active in ("failed", "inactive") else None
            # a manager that will restart it says `activating`: idle for a while means that nobody will
            given_up = idle_since is not None and now - idle_since >= (
                0 if armed.may_manage else _IDLE_SECONDS
            )
            if (
                now - start >= limit
                or (given_up and state.active == "failed")
                or (given_up and not armed.may_manage)
            ):
                check, reason = why_down(state)
                raise RestartError(f"{state.name}: {reason}.", check=check)
            await asyncio.sleep(step)
            step = min(step * 2, _SLOW_STEP)

    async def force(self, runtime: Runtime, say: Say) -> None:
        """As `Supervisor.force`: `restart` with the whole budget, once more with the same budget.

        Raises:
            RestartError: it did not come up.
        """
        armed = self._armed[runtime.unit_scope, runtime.unit]
        if not armed.may_manage:
            raise RestartError(f"{runtime.unit} {armed.why_not}.", check="privileges", final=True)
        budget = restart_budget(armed.before.stop_limit, armed.before.start_limit)
        for last in (False, True):
            if not armed.before.transient:
                await armed.systemctl.call("reset-failed", runtime.unit, timeout=QUICK_SECONDS)
            say("systemctl restart" + (", second try" if last else ""))
            try:
                await self._run_job(armed, "restart", budget, say)
                await self._until_active(armed, _ACTIVE_SECONDS)
            except RestartError as error:
                if last or error.final or error.incomplete:
                    raise
            else:
                return

    async def gave_up(self, runtime: Runtime) -> str:
        """As `Supervisor.gave_up`: the unit has failed."""
        try:
            state = await self.manager(runtime.unit_scope).state(runtime.unit)
        except RestartError:
            return ""
        return why_down(state)[1] if state.active in ("failed", "inactive") else ""

    def command(self, runtime: Runtime) -> str:
        """As `Supervisor.command`."""
        scope = "systemctl --user" if runtime.unit_scope != "system" else "sudo systemctl"
        return f"{scope} restart {runtime.unit}"
