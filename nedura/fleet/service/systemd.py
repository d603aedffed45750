"""Services under a systemd manager, user or system scope."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from nedura.errors import FleetError, RecordMissing
from nedura.fleet.budget import SLACK_SECONDS, phase_limit, restart_budget
from nedura.fleet.service.definition import Wanted, drift, read_unit, unit_text
from nedura.fleet.service.manager import ServiceState
from nedura.fleet.service.names import unit_name
from nedura.fleet.service.place import ServicePlace
from nedura.fleet.supervision import in_family
from nedura.fleet.supervisors.listing import MARKER
from nedura.fleet.supervisors.systemctl import QUICK_SECONDS, Scope, Systemctl, run_bounded
from nedura.fleet.supervisors.unit_state import UnitState, parse_environment, why_down
from nedura.product import NEDURA, Product
from nedura.programs import find_program
from nedura.records import make_folder, read_bytes, remove, write_bytes
from nedura.text import clean

__all__ = ["SystemdManager"]

_RELOAD_SECONDS: Final = 30.0
_MASK: Final = "/dev/null"


class SystemdManager:
    """Installs and drives units of one manager.

    Args:
        scope: which manager.
        place: the machine and the account.
        environ: where PATH and the runtime folder come from; default this process's.
        product: names.
    """

    def __init__(
        self,
        scope: Scope,
        place: ServicePlace,
        *,
        environ: Mapping[str, str] | None = None,
        product: Product = NEDURA,
    ) -> None:
        self._place = place
        self._product = product
        self._environ = os.environ if environ is None else environ
        self._systemctl = Systemctl(scope, environ=self._environ)

    @property
    def scope(self) -> str:
        """As `ServiceManager.scope`."""
        return self._systemctl.scope

    @property
    def folder(self) -> Path:
        """Where its definitions are."""
        return self._place.system_units if self.scope == "system" else self._place.user_units

    def name_for(self, home: Path) -> str:
        """As `ServiceManager.name_for`."""
        return unit_name(home, self._place.account.home / self._product.home_folder, self._product)

    def names(self) -> tuple[str, ...]:
        """As `ServiceManager.names`."""
        try:
            found = sorted(os.listdir(self.folder))
        except OSError:
            return ()
        return tuple(
            name
            for name in found
            if name.endswith(".service") and in_family(name, self._product.unit_families)
        )

    def render(self, wanted: Wanted) -> bytes:
        """As `ServiceManager.render`."""
        return unit_text(wanted).encode()

    def drift(self, installed: bytes, wanted: bytes) -> tuple[str, ...]:
        """As `ServiceManager.drift`."""
        return drift(installed.decode("utf-8", "replace"), wanted.decode())

    async def state(self, name: str) -> ServiceState:
        """As `ServiceManager.state`.

        Raises:
            FleetError: the manager does not answer.
        """
        path = self.folder / name
        content, masked = self._read(path)
        if content is None and not masked:
            return ServiceState(name=name, content=None, path=path)
        unit = await self._systemctl.state(name)
        home = self._home(content, unit)
        check, reason = ("", "") if unit.running else why_down(unit)
        stopped = unit.active == "inactive" and unit.result in ("", "success")
        return ServiceState(
            name=name,
            content=content,
            path=path,
            active=unit.active,
            pid=unit.main_pid,
            enabled=await self._enabled(name),
            home=home,
            ours=content is not None and MARKER.encode() in content,
            reason="" if unit.running or stopped or check == "missing" else reason,
            masked=masked or unit.load == "masked",
            coming=unit.active == "activating",
            ending=unit.active == "deactivating",
        )

    def _read(self, path: Path) -> tuple[bytes | None, bool]:
        """A definition's bytes, and whether it is masked instead."""
        if os.path.islink(path) and os.path.realpath(path) == _MASK:
            return None, True
        try:
            return read_bytes(path), False
        except RecordMissing:
            return None, False

    def _home(self, content: bytes | None, unit: UnitState) -> str | None:
        """The pinned home: the manager's merged view (drop-ins win), else the file's own."""
        variable = self._product.env("HOME")
        if variable in unit.environment:
            return unit.environment[variable]
        if content is None:
            return None
        lines = read_unit(content.decode("utf-8", "replace")).get("Service.Environment", ())
        found = parse_environment(" ".join(lines)).get(variable)
        return None if found is None else found.replace("%%", "%")

    async def _enabled(self, name: str) -> bool:
        ran = await self._systemctl.call("is-enabled", name, timeout=QUICK_SECONDS)
        return ran.out.strip() in ("enabled", "enabled-runtime", "linked", "static")

    async def _must(self, *args: str, timeout: float) -> None:
        ran = await self._systemctl.call(*args, timeout=timeout)
        if ran.status != 0:
            reason = ran.err.rstrip(".") or f"exit code {ran.status}"
            raise FleetError(f"systemctl {args[0]} failed: {reason}.")

    async def publish(self, name: str, content: bytes, *, enable: bool) -> bool:
        """As `ServiceManager.publish`; drop-ins are never touched (C083).

        Raises:
            FleetError: the manager refuses.
            StoreError: the definition cannot be written.
        """
        await self._systemctl.state(name)  # a manager that does not answer gets no file
        make_folder(self.folder, 0o755)
        path = self.folder / name
        fresh = not os.path.lexists(path)
        write_bytes(path, content, 0o644)
        try:
            await self._must("daemon-reload", timeout=_RELOAD_SECONDS)
            await self._must("enable" if enable else "disable", name, timeout=_RELOAD_SECONDS)
        except FleetError:
            if fresh:  # half a service would be taken for one by every later verb
                remove(path)
                await self._systemctl.call("daemon-reload", timeout=_RELOAD_SECONDS)
            raise
        return True

    async def withdraw(self, name: str) -> None:
        """As `ServiceManager.withdraw`.

        Raises:
            FleetError: the manager refuses.
            StoreError: the definition cannot be removed.
        """
        unit = await self._systemctl.state(name)
        if unit.active not in ("inactive", "failed", ""):
            await self.stop(name)
        await self._systemctl.call("disable", name, timeout=_RELOAD_SECONDS)
        remove(self.folder / name)
        await self._must("daemon-reload", timeout=_RELOAD_SECONDS)
        await self._systemctl.call("reset-failed", name, timeout=QUICK_SECONDS)

    async def start(self, name: str) -> None:
        """As `ServiceManager.start`.

        Raises:
            FleetError: it did not come up; the reason is the unit's real status.
        """
        before = await self._systemctl.state(name)
        await self._systemctl.call("reset-failed", name, timeout=QUICK_SECONDS)
        verb = "restart" if before.sub.startswith("auto-restart") else "start"
        ending = before.active == "deactivating"  # a start that comes meanwhile waits for the end
        budget = restart_budget(before.stop_limit, before.start_limit, drained=not ending)
        ran = await self._systemctl.call(verb, name, timeout=budget)
        after = await self._systemctl.state(name)
        if ran.status != 0 or not after.running:
            raise FleetError(
                f"{clean(name)} did not start: {why_down(after)[1]}.", advice=self._log_hint(name)
            )

    def _log_hint(self, name: str) -> str:
        return f"See: journalctl {'--user ' if self.scope == 'user' else ''}-u {name} -e"

    async def stop(self, name: str) -> None:
        """As `ServiceManager.stop`.

        Raises:
            FleetError: the manager refuses or does not answer in time.
        """
        before = await self._systemctl.state(name)
        await self._must("stop", name, timeout=phase_limit(before.stop_limit) + SLACK_SECONDS)

    async def linger(self, user: str) -> str:
        """Let a user's manager live without a session; returns why it does not, empty when it does."""
        program = find_program("loginctl", self._environ)
        if program is None:
            return "there is no loginctl here"
        environment = self._systemctl.environment()
        shown = await run_bounded(
            (program, "show-user", user, "--property=Linger", "--value"), environment, QUICK_SECONDS
        )
        if shown.status == 0 and shown.out.strip() == "yes":
            return ""
        ran = await run_bounded((program, "enable-linger", user), environment, QUICK_SECONDS)
        return "" if ran.status == 0 else ran.err or f"loginctl ended with {ran.status}"
