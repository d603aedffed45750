"""The service verbs: install, uninstall, start, stop, status, list, migrate-legacy. Async generators of events, like everything else.

Restart is the roll of `nedura.fleet.rolling` on the members of the chosen homes; a service that is installed and down is started.
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncGenerator, Awaitable, Iterable, Sequence
from pathlib import Path
from typing import Literal

import attrs

from nedura.config import read_config
from nedura.errors import FleetError, NeduraError, RefusedError, UsageError
from nedura.fleet.claim import lock_holder
from nedura.fleet.drain import DrainSettings
from nedura.fleet.markers import write_marker
from nedura.fleet.scope import home_key, same_home
from nedura.fleet.service.definition import STANDARD_PATH, Wanted
from nedura.fleet.service.events import ServiceChanged, ServiceEvent, ServiceNote, ServiceRow
from nedura.fleet.service.holder import unit_of
from nedura.fleet.service.legacy import migrate
from nedura.fleet.service.manager import ServiceManager, ServiceState
from nedura.fleet.service.place import ServicePlace
from nedura.fleet.service.rules import (
    check_definition,
    check_home,
    check_owner,
    check_place,
    check_rights,
    left_behind,
    pinned_here,
)
from nedura.fleet.service.systemd import SystemdManager
from nedura.fleet.takeover import stop_member
from nedura.homes import profile_name, root_home
from nedura.product import NEDURA, Product
from nedura.text import clean

__all__ = ["Services"]

Stream = AsyncGenerator[ServiceEvent, None]


@attrs.frozen(kw_only=True)
class Services:
    """The services of one install.

    Attributes:
        home: the home a verb is about.
        place: machine and account.
        managers: what there is to install into, the default first.
        homes: every home of the install, for `--all` and the listing.
        product: names.
        environ: environment of the drain settings.
    """

    home: Path
    place: ServicePlace
    managers: Sequence[ServiceManager]
    homes: Sequence[Path] = ()
    product: Product = NEDURA
    environ: dict[str, str] = attrs.field(factory=dict)

    def check(self) -> None:
        """Refuse to act on the home of another user.

        Raises:
            RefusedError: with the command line that has the right user.
        """
        check_owner(self.home, self.place)

    # ---- choosing ----

    async def manager(self, scope: Literal["", "user", "system"] = "") -> ServiceManager:
        """The manager a verb works on: the named one; else the only one where this home's service is; else the first."""
        if scope:
            found = [
                one
                for one in self.managers
                if one.scope == scope or (scope == "user" and one.scope != "system")
            ]
            if not found:
                raise UsageError(f"There is no {scope} service manager here.")
            return found[0]
        for one in self.managers:
            if (await one.state(one.name_for(self.home))).installed:
                return one
        if not self.managers:
            raise UsageError("There is no service manager here.", advice="Run: nedura gateway run")
        return self.managers[0]

    def wanted(self, scope: str, home: Path) -> Wanted:
        """What the definition of a home should start."""
        root = root_home(home)
        folders = [str(folder) for folder in (root / "bin", *self.place.path_folders) if folder.is_dir()]
        return Wanted(
            launcher=root / "bin" / self.product.command,
            home=home,
            profile=profile_name(home, root),
            account=self.place.account,
            path=":".join((*folders, *STANDARD_PATH)),
            scope="system" if scope == "system" else "user",
            settings=DrainSettings.read(read_config(home).get, self.environ, self.product),
            product=self.product,
        )

    # ---- verbs ----

    async def install(
        self,
        *,
        scope: Literal["", "user", "system"] = "",
        start: bool = True,
        enable: bool = True,
        run_as: str = "",
        force: bool = False,
    ) -> Stream:
        """Write (or refresh) the definition of this home, and start it.

        Args:
            scope: user or system; empty for where it is, else user.
            start: start it now.
            enable: let it start by itself.
            run_as: the user that was named for a system unit.
            force: write it again although it is as it should be. What belongs to another home stays refused.

        Raises:
            RefusedError: a temporary home, another home's definition, a container, no launcher.
            UsageError: too few or too many rights.
            FleetError: the manager refuses.
        """
        manager = await self.manager(scope)
        check_home(self.home, self.place)
        check_place(manager.scope, self.place, run_as=run_as)
        for other in self.managers:
            if other is not manager and (await other.state(other.name_for(self.home))).installed:
                raise RefusedError(
                    f"This home has a {other.scope} service already.",
                    advice="Remove that one first: nedura gateway uninstall",
                )
        wanted = self.wanted(manager.scope, self.home)
        if not wanted.launcher.is_file():
            raise RefusedError(
                f"There is no launcher at {wanted.launcher}.", advice="Run: nedura install --source DIR"
            )
        name = manager.name_for(self.home)
        state = await manager.state(name)
        check_definition(state, self.home, "install")
        changed = await self._refresh(manager, state, wanted, enable=enable, force=force)
        yield changed
        if changed.change == "handed_over":
            return
        for note in await self._linger(manager):
            yield note
        state = await manager.state(name)
        if start and not state.up:
            self._check_free(manager, state)
            await manager.start(name)
            yield ServiceChanged(name=name, scope=manager.scope, change="started")

    async def _refresh(
        self,
        manager: ServiceManager,
        state: ServiceState,
        wanted: Wanted,
        *,
        enable: bool,
        force: bool = False,
    ) -> ServiceChanged:
        content = manager.render(wanted)
        keys = () if state.content is None else manager.drift(state.content, content)
        if state.content is not None and not keys and state.enabled == enable and not force:
            return ServiceChanged(
                name=state.name, scope=manager.scope, change="unchanged", path=str(state.path)
            )
        loaded = await manager.publish(
            state.name, content if keys or force or state.content is None else state.content, enable=enable
        )
        change: Literal["refreshed", "installed", "handed_over"] = (
            "refreshed" if state.installed else "installed"
        )
        if not loaded:
            change = "handed_over"
        return ServiceChanged(
            name=state.name, scope=manager.scope, change=change, path=str(state.path), keys=keys
        )

    async def _linger(self, manager: ServiceManager) -> tuple[ServiceNote, ...]:
        if not isinstance(manager, SystemdManager):
            return ()
        reason = await manager.linger(self.place.account.name)
        if not reason:
            return ()
        return (
            ServiceNote(
                text=f"The gateway may stop when {self.place.account.name} logs out: {reason}.",
                advice=f"Run: sudo loginctl enable-linger {self.place.account.name}",
            ),
        )

    async def uninstall(self, *, scope: Literal["", "user", "system"] = "") -> Stream:
        """Stop this home's service and remove its definition.

        Raises:
            RefusedError: it pins another home.
            UsageError: too few or too many rights.
            FleetError: the manager refuses.
        """
        gone = not os.path.lexists(self.home)
        if not gone:
            check_owner(self.home, self.place)
        manager = await self.manager(scope)
        check_rights(manager.scope, self.place)
        state = await manager.state(manager.name_for(self.home))
        if gone and not state.installed:
            check_owner(self.home, self.place)  # says that there is no such home
        check_definition(state, self.home, "uninstall")
        if not state.installed:
            yield ServiceChanged(name=state.name, scope=manager.scope, change="unchanged")
            return
        self._announce_stop(self.home)
        await manager.withdraw(state.name)
        yield ServiceChanged(name=state.name, scope=manager.scope, change="removed", path=str(state.path))

    async def start(self, *, scope: Literal["", "user", "system"] = "", everyone: bool = False) -> Stream:
        """Start this home's service, or every service of the install. A definition that is outdated is refreshed first.

        Raises:
            RefusedError: nothing is installed, or it pins another home.
            FleetError: it did not come up (one home); with `everyone` each failure is a note and the others go on.
        """
        check_owner(self.home, self.place)
        chosen, notes = await self._chosen(scope, everyone, "start")
        for note in notes:
            yield note
        for manager, state in chosen:
            if state.up:
                yield ServiceChanged(name=state.name, scope=manager.scope, change="unchanged")
                continue
            for event in await self._isolated(everyone, self._start_one(manager, state)):
                yield event

    async def _start_one(self, manager: ServiceManager, state: ServiceState) -> list[ServiceEvent]:
        check_rights(manager.scope, self.place)
        if left_behind(state, self.home):
            raise FleetError(
                f"{clean(state.name)} was not started: its home {clean(state.home, 200)} is gone.",
                advice=f"Remove it: NEDURA_HOME={clean(state.home, 200)} nedura gateway uninstall",
            )
        self._check_free(manager, state)
        done: list[ServiceEvent] = []
        if state.ours and state.home is not None:
            event = await self._refresh(
                manager, state, self.wanted(manager.scope, Path(state.home)), enable=state.enabled
            )
            done += [event] if event.change != "unchanged" else []
        await manager.start(state.name)
        return [*done, ServiceChanged(name=state.name, scope=manager.scope, change="started")]

    async def stop(self, *, scope: Literal["", "user", "system"] = "", everyone: bool = False) -> Stream:
        """Stop this home's gateway, or every one of the install: its service, else the process that holds the claim.

        Raises:
            RefusedError: it pins another home.
            FleetError: it does not end (one home); with `everyone` each failure is a note and the others go on.
        """
        check_owner(self.home, self.place)
        try:
            chosen, notes = await self._chosen(scope, everyone, "stop", may_be_missing=True)
        except NeduraError as error:
            # its service is not ours to stop, or its manager is not there; the process that serves this home still is,
            # unless that very service runs it (C080)
            if await self._runs_in_foreign_unit(self.home):
                raise
            done = await self._stop_process(self.home, scope)
            if not done:
                raise
            for event in (*done, ServiceNote(text=error.message, advice=error.advice)):
                yield event
            return
        for note in notes:
            yield note
        served: set[str] = set()
        for manager, state in chosen:
            if not state.installed or not (state.pid or state.coming):
                continue
            if not self._outside(manager, state):
                served.add(home_key(state.home or self.home).path)
            for event in await self._isolated(everyone, self._stop_one(manager, state)):
                yield event
        for home in self.homes if everyone else (self.home,):
            if home_key(home).path not in served:
                for event in await self._isolated(everyone, self._stop_process(home, scope)):
                    yield event

    async def _runs_in_foreign_unit(self, home: Path) -> bool:
        """Whether the unit that runs a home's gateway is by its definition another home's."""
        manager, unit = self._unit_of(home)
        if manager is None:
            return False
        state = await manager.state(unit)
        return state.home is not None and not self._ours(state)

    def _outside(self, manager: ServiceManager, state: ServiceState) -> bool:
        """Whether a process that is none of a unit's serves its home: one started by hand, or by another unit."""
        home = Path(state.home or self.home)
        if not isinstance(manager, SystemdManager) or not home.is_dir() or lock_holder(home).pid is None:
            return False
        return self._unit_of(home) != (manager, state.name)

    def _check_free(self, manager: ServiceManager, state: ServiceState) -> None:
        """Refuse to start a service beside a gateway that serves its home already: it would fail, again and again.

        Raises:
            FleetError: with the process that serves it.
        """
        if not self._outside(manager, state):
            return
        home = Path(state.home or self.home)
        unit = self._unit_of(home)[1]
        raise FleetError(
            f"{clean(state.name)} was not started: process {lock_holder(home).pid} "
            f"({f'of {clean(unit)}' if unit else 'started by hand'}) serves this home already.",
            advice="Run: nedura gateway stop, then: nedura gateway start",
        )

    async def _stop_process(
        self, home: Path, scope: Literal["", "user", "system"] = ""
    ) -> list[ServiceEvent]:
        """Stop a home's gateway that no service of our names owns; what another unit owns is stopped through its manager."""
        manager, unit = self._unit_of(home)
        if scope and (manager is None or manager is not await self.manager(scope)):
            return []  # the verb is about one manager's services, and this gateway is not one of them
        if manager is not None:
            # the process alone would be started again by its unit
            return await self._stop_one(
                manager, ServiceState(name=unit, content=None, path=Path(unit), home=str(home))
            )
        if not await stop_member(home, product=self.product):
            return []
        return [ServiceChanged(name=profile_name(home), scope="by hand", change="stopped")]

    def _unit_of(self, home: Path) -> tuple[ServiceManager | None, str]:
        return unit_of(home, self.managers, self.product)

    async def _stop_one(self, manager: ServiceManager, state: ServiceState) -> list[ServiceEvent]:
        check_rights(manager.scope, self.place)
        self._announce_stop(Path(state.home or self.home))
        await manager.stop(state.name)
        return [ServiceChanged(name=state.name, scope=manager.scope, change="stopped")]

    def _announce_stop(self, home: Path) -> None:
        """Tell the member that the coming signal is meant, so that it ends with 0 and nobody starts it again.

        Root leaves no file in another user's home; there the unit's own stop notice does it.
        """
        try:
            if home.stat().st_uid != self.place.euid:
                return
        except FileNotFoundError:
            return  # it was removed under its service
        holder = lock_holder(home)
        if holder.pid is not None and holder.record is not None:
            write_marker(
                home, "planned-stop", pid=holder.pid, start_time=holder.record.start_time, now=time.time()
            )

    async def _isolated(self, everyone: bool, work: Awaitable[list[ServiceEvent]]) -> list[ServiceEvent]:
        """One service's failure is its own when the verb is about every one of them."""
        try:
            return await work
        except NeduraError as error:
            if not everyone:
                raise
            return [ServiceNote(text=error.message, advice=error.advice, failed=True)]

    async def _chosen(
        self, scope: Literal["", "user", "system"], everyone: bool, verb: str, *, may_be_missing: bool = False
    ) -> tuple[list[tuple[ServiceManager, ServiceState]], list[ServiceNote]]:
        """The services a verb is about, and those that could not be looked at: this home's, or every one that is pinned to this install."""
        if not everyone:
            manager = await self.manager(scope)
            state = await manager.state(manager.name_for(self.home))
            check_definition(state, self.home, verb)
            if not state.installed and not may_be_missing:
                raise RefusedError("This home has no service.", advice="Run: nedura gateway install")
            return [(manager, state)], []
        found: list[tuple[ServiceManager, ServiceState]] = []
        notes: list[ServiceNote] = []
        for manager in self.managers if not scope else (await self.manager(scope),):
            for name in manager.names():
                try:
                    state = await manager.state(name)
                except NeduraError as error:
                    notes.append(ServiceNote(text=f"{clean(name)}: {error.message}", failed=True))
                    continue
                if not state.masked and self._ours(state):
                    found.append((manager, state))
        return found, notes

    def _ours(self, state: ServiceState) -> bool:
        """Whether a definition is pinned to this install: to one of its homes, or to a profile of it whose folder is gone."""
        here = any(pinned_here(state, home) for home in (self.home, *self.homes))
        return here or left_behind(state, self.home)

    async def revive(
        self, *, scope: Literal["", "user", "system"] = "", everyone: bool = False, skip: Iterable[Path] = ()
    ) -> Stream:
        """Start what is installed, should run and does not: the other half of a restart.

        Args:
            scope: whose services; empty for every manager's.
            everyone: of the whole install.
            skip: homes that are served already.

        Raises:
            FleetError: it did not come up (one home); with `everyone` each failure is a note and the others go on.
        """
        check_owner(self.home, self.place)
        done = [home_key(home) for home in skip]
        if not everyone and any(same_home(home_key(self.home), key) for key in done):
            return  # whatever its service is like, it is not what serves this home
        chosen, notes = await self._chosen(scope, everyone, "restart", may_be_missing=True)
        for note in notes:
            yield note
        for manager, state in chosen:
            here = state.home is not None and any(same_home(home_key(state.home), key) for key in done)
            if state.installed and not state.pid and not here:
                for event in await self._isolated(everyone, self._start_one(manager, state)):
                    yield event

    # ---- looking ----

    async def status(self, *, scope: Literal["", "user", "system"] = "") -> Stream:
        """This home's service as it stands, in one scope or in all."""
        rows = 0
        for manager in self.managers if not scope else (await self.manager(scope),):
            for event in await self._isolated(True, self._look(manager, manager.name_for(self.home))):
                rows += 1
                yield event
        if not rows:
            scopes = " or ".join(manager.scope for manager in self.managers) or "any"
            yield ServiceRow(name="", scope=scopes, state="not installed", home=str(self.home), enabled=True)

    async def listing(self) -> Stream:
        """Every service of our families, those of other homes named as such."""
        for manager in self.managers:
            for name in manager.names():
                for event in await self._isolated(True, self._look(manager, name)):
                    yield event

    async def _look(self, manager: ServiceManager, name: str) -> list[ServiceEvent]:
        state = await manager.state(name)
        return [self._row(manager, state)] if state.installed or state.masked else []

    def _row(self, manager: ServiceManager, state: ServiceState) -> ServiceRow:
        homes = (self.home, *self.homes)
        ours = self._ours(state) or (state.masked and state.name in map(manager.name_for, homes))
        gone = left_behind(state, self.home)
        outdated: tuple[str, ...] = ()
        if ours and not gone and state.ours and state.content is not None and state.home is not None:
            outdated = manager.drift(
                state.content, manager.render(self.wanted(manager.scope, Path(state.home)))
            )
        return ServiceRow(
            name=state.name, scope=manager.scope, state="masked" if state.masked else state.active, pid=state.pid,
            home=state.home or "", ours=ours, enabled=state.enabled, outdated=outdated,
            reason="its home is gone" if gone else state.reason,
            path=str(state.path),
        )  # fmt: skip

    # ---- legacy ----

    def migrate_legacy(self, *, dry_run: bool = False) -> Stream:
        """Remove unit names of before the families, if they start our gateway on a home of ours.

        Args:
            dry_run: only name them.
        """
        homes = (self.home, *self.homes)
        return migrate(self.managers, homes, self.place, self.product, dry_run=dry_run)
