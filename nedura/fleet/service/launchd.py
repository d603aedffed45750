"""Services under launchd: one agent for each home."""

from __future__ import annotations

import logging
import os
import plistlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.parsers.expat import ExpatError

from nedura.errors import FleetError, NeduraError, RecordMissing
from nedura.fleet.service.definition import Wanted, plist_bytes
from nedura.fleet.service.manager import ServiceState
from nedura.fleet.service.names import label_name
from nedura.fleet.service.place import ServicePlace
from nedura.fleet.supervision import in_family
from nedura.fleet.supervisors.launchctl import Launchctl, domains_of, why_job_down
from nedura.fleet.supervisors.launchd import LaunchdPace, LaunchdSupervisor
from nedura.fleet.supervisors.listing import MARKER
from nedura.product import NEDURA, Product
from nedura.records import make_folder, read_bytes, remove, write_bytes

__all__ = ["LaunchdManager"]

logger = logging.getLogger(__name__)


class LaunchdManager:
    """Installs and drives LaunchAgents. Labels are derived from homes, never globbed from the shared folder (#41403).

    Args:
        place: the machine and the account.
        environ: where PATH comes from; default this process's.
        product: names.
        pace: time limits.
    """

    def __init__(
        self,
        place: ServicePlace,
        *,
        environ: Mapping[str, str] | None = None,
        product: Product = NEDURA,
        pace: LaunchdPace | None = None,
    ) -> None:
        self._place = place
        self._product = product
        self._pace = pace or LaunchdPace()
        self._launchctl = Launchctl(environ)
        self._driver = LaunchdSupervisor(environ=environ, uid=place.account.uid, pace=pace)

    @property
    def scope(self) -> str:
        """As `ServiceManager.scope`."""
        return "launchd"

    def name_for(self, home: Path) -> str:
        """As `ServiceManager.name_for`."""
        return label_name(home, self._place.account.home / self._product.home_folder, self._product)

    def names(self) -> tuple[str, ...]:
        """As `ServiceManager.names`."""
        try:
            found = sorted(os.listdir(self._place.agents))
        except OSError:
            return ()
        labels = [name.removesuffix(".plist") for name in found if name.endswith(".plist")]
        return tuple(label for label in labels if in_family(label, self._product.label_families))

    def _path(self, label: str) -> Path:
        return self._place.agents / f"{label}.plist"

    def render(self, wanted: Wanted) -> bytes:
        """As `ServiceManager.render`."""
        return plist_bytes(wanted, self.name_for(wanted.home))

    def drift(self, installed: bytes, wanted: bytes) -> tuple[str, ...]:
        """As `ServiceManager.drift`: everything but the order of PATH."""
        old, new = (_definition(content) for content in (installed, wanted))
        for definition in (old, new):
            definition.get("EnvironmentVariables", {}).pop("PATH", None)
        return tuple(sorted(key for key in {*old, *new} if old.get(key) != new.get(key)))

    async def state(self, name: str) -> ServiceState:
        """As `ServiceManager.state`.

        Raises:
            FleetError: launchctl does not answer.
        """
        path = self._path(name)
        content = self._content(path)
        if content is None:
            return ServiceState(name=name, content=None, path=path)
        found = await self._launchctl.locate(name, self._place.account.uid)
        job = found[1] if found else None
        home = _definition(content).get("EnvironmentVariables", {}).get(self._product.env("HOME"))
        return ServiceState(
            name=name,
            content=content,
            path=path,
            active=job.state if job else "not loaded",
            pid=job.pid if job else 0,
            enabled=bool(_definition(content).get("RunAtLoad")),
            home=home if isinstance(home, str) else None,
            ours=MARKER.encode() in content,
            reason="" if job is None or job.running else why_job_down(job)[1],
            coming=job is not None and job.state in ("spawn scheduled", "xpcproxy"),
        )

    async def _domain(self, name: str) -> str:
        """The domain that has a label, else the one that is there."""
        found = await self._launchctl.locate(name, self._place.account.uid)
        if found is not None:
            return found[0]
        gui, user = domains_of(self._place.account.uid)
        ran = await self._launchctl.call("print", gui)
        return gui if ran.status == 0 else user

    async def publish(self, name: str, content: bytes, *, enable: bool) -> bool:
        """As `ServiceManager.publish`: an agent that is loaded is unloaded first, and really gone before it is loaded again.

        Whatever fails then, the definition of before is back and loaded: a label is never left unloaded.

        Raises:
            FleetError: launchd refuses.
            StoreError: the plist cannot be written.
        """
        definition = _definition(content)
        definition["RunAtLoad"] = enable
        make_folder(self._place.agents, 0o755)
        if (log := definition.get("StandardOutPath")) is not None:
            make_folder(Path(log).parent)
        path, wanted = self._path(name), plistlib.dumps(definition, sort_keys=False)
        before = self._content(path)
        domain = await self._domain(name)
        try:
            if self._driver.inside(name):
                write_bytes(path, wanted, 0o644)
                await self._driver.reload_from_outside(domain, name, path)
                return False
            await self._driver.bootout(domain, name, self._pace.bootstrap)
            write_bytes(path, wanted, 0o644)
            await self._driver.bootstrap(domain, path, lambda words: None)
        except NeduraError:
            if before is not None:
                write_bytes(path, before, 0o644)
                await self._load_again(domain, path)
            raise
        return True

    def _content(self, path: Path) -> bytes | None:
        try:
            return read_bytes(path)
        except RecordMissing:
            return None

    async def _load_again(self, domain: str, path: Path) -> None:
        try:
            await self._driver.bootstrap(domain, path, lambda words: None)
        except FleetError as error:
            logger.warning("%s is not loaded: %s", path.name, error.message)  # why it came to this is raised

    async def withdraw(self, name: str) -> None:
        """As `ServiceManager.withdraw`.

        Raises:
            FleetError: launchd refuses.
            StoreError: the plist cannot be removed.
        """
        await self._driver.bootout(await self._domain(name), name, self._pace.bootstrap)
        remove(self._path(name))

    async def start(self, name: str) -> None:
        """As `ServiceManager.start`.

        Raises:
            FleetError: no process came.
        """
        domain = await self._domain(name)
        if await self._launchctl.job(domain, name) is None:
            await self._driver.bootstrap(domain, self._path(name), lambda words: None)
        ran = await self._launchctl.call("kickstart", f"{domain}/{name}")
        if ran.status != 0:
            raise FleetError(f"launchctl kickstart failed: {ran.err or ran.status}.")

    async def stop(self, name: str) -> None:
        """As `ServiceManager.stop`: a booted-out agent stays out until it is started or the user logs in again.

        Raises:
            FleetError: launchd refuses.
        """
        await self._driver.bootout(await self._domain(name), name, self._pace.bootstrap)


def _definition(content: bytes) -> dict[str, Any]:
    """A plist as a dict; empty when it is none."""
    try:
        found = plistlib.loads(content)
    except (plistlib.InvalidFileException, ValueError, ExpatError):
        return {}
    return found if isinstance(found, dict) else {}
