"""Every unit and label that may be ours, as the inventory judges it (facts/update.md 7.3, 7.4): by our families' names, or by the
home that its definition names, whatever it is called (case C005).
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import attrs

from nedura.fleet.model import Probe, ServiceInfo
from nedura.fleet.service.place import real_place
from nedura.fleet.supervision import in_family
from nedura.fleet.supervisors.base import RestartError
from nedura.fleet.supervisors.launchctl import Job, Launchctl
from nedura.fleet.supervisors.systemctl import ManagerAbsent, Scope, Systemctl
from nedura.fleet.supervisors.unit_state import UnitState
from nedura.product import NEDURA, Product
from nedura.text import clean

__all__ = ["MARKER", "Listing", "list_services", "plist_environment", "written_by_us"]

MARKER: Final = "X-Nedura-Definition"
"""Key in definitions that we write; managers ignore keys that begin with `X-`."""

_CGROUP_ROOT: Final = Path("/sys/fs/cgroup")
_MAX_DEFINITION: Final = 64 * 1024


@attrs.frozen(kw_only=True)
class Listing:
    """What the service managers said.

    Attributes:
        services: units of our families or with a home of ours in their definition, in the managers' order.
        probes: what was asked, and why a manager was skipped.
    """

    services: tuple[ServiceInfo, ...] = ()
    probes: tuple[Probe, ...] = ()


async def list_services(
    *,
    product: Product = NEDURA,
    environ: Mapping[str, str] | None = None,
    cgroup_root: Path = _CGROUP_ROOT,
    platform: str = sys.platform,
    agents: Path | None = None,
) -> Listing:
    """Ask every manager at once; one that is not there or does not answer is skipped and the others kept. Never raises.

    Args:
        product: names.
        environ: where PATH and the runtime folder come from; default this process's.
        cgroup_root: where the control groups are mounted.
        platform: `sys.platform`.
        agents: folder of LaunchAgents; default the account's.
    """
    environ = os.environ if environ is None else environ
    if platform == "darwin":
        return await _launch_agents(agents or real_place(environ).agents, product, environ)
    scopes: tuple[Scope, ...] = ("user", "system")
    asked = await asyncio.gather(*(_ask(scope, product, environ, cgroup_root) for scope in scopes))
    return Listing(
        services=tuple(service for found, _ in asked for service in found),
        probes=tuple(probe for _, probe in asked),
    )


async def _ask(
    scope: Scope, product: Product, environ: Mapping[str, str], cgroup_root: Path
) -> tuple[tuple[ServiceInfo, ...], Probe]:
    manager = Systemctl(scope, environ=environ)
    name = f"systemd ({scope})"
    try:
        states = await manager.show("*.service")
    except ManagerAbsent:
        return (), Probe(what=name, skipped="not here")
    except RestartError as error:
        return (), Probe(what=name, skipped=clean(error.message).rstrip("."))
    exact = [state for state in states if _may_be_ours(state, product)]
    return tuple(_service(state, scope, cgroup_root) for state in exact), Probe(what=name, count=len(exact))


def _may_be_ours(state: UnitState, product: Product) -> bool:
    """The name is only a hint: a unit that sets our home variable runs on a home, and the home decides whose it is (decision 38)."""
    return in_family(state.name, product.unit_families) or bool(product.setting(state.environment, "HOME"))


async def _launch_agents(agents: Path, product: Product, environ: Mapping[str, str]) -> Listing:
    """Labels of our families that have a plist, each judged by the home in it; one that does not answer is skipped."""
    launchctl = Launchctl(environ)
    services, skipped = [], ""
    for path in sorted(agents.glob("*.plist")):
        if not in_family(path.stem, product.label_families) and not product.setting(
            plist_environment(path), "HOME"
        ):
            continue
        try:
            found = await launchctl.locate(path.stem, os.getuid())
        except RestartError as error:
            skipped = clean(error.message).rstrip(".")
            continue
        services.append(_agent(path, found))
    return Listing(
        services=tuple(services), probes=(Probe(what="launchd", count=len(services), skipped=skipped),)
    )


def _agent(path: Path, found: tuple[str, Job] | None) -> ServiceInfo:
    domain, job = found or ("", Job())
    return ServiceInfo(
        name=path.stem,
        what="launchd job",
        scope=domain,
        state=job.state or "not loaded",
        main_pid=job.pid or None,
        environment=plist_environment(path),
        definition=path,
        written_by_us=written_by_us(path),
    )


def plist_environment(path: Path) -> dict[str, str]:
    """Environment of an agent's plist; empty when it cannot be read or is none."""
    import plistlib  # with its XML parser, for launchd's files alone
    from xml.parsers.expat import ExpatError

    try:
        found = plistlib.loads(path.read_bytes())
    except (OSError, ValueError, ExpatError):
        return {}
    variables = found.get("EnvironmentVariables") if isinstance(found, dict) else None
    if not isinstance(variables, dict):
        return {}
    return {str(name): value for name, value in variables.items() if isinstance(value, str)}


def _service(state: UnitState, scope: Scope, cgroup_root: Path) -> ServiceInfo:
    definition = Path(state.definition) if state.definition else None
    return ServiceInfo(
        name=state.name,
        scope=scope,
        state=state.active,
        main_pid=state.main_pid or None,
        pids=_pids(cgroup_root, state.cgroup),
        environment=state.environment,
        definition=definition,
        written_by_us=definition is not None and written_by_us(definition),
    )


def _pids(root: Path, cgroup: str) -> tuple[int, ...]:
    if not cgroup:
        return ()
    try:
        text = (root / cgroup.lstrip("/") / "cgroup.procs").read_text("ascii")
    except OSError:
        return ()
    return tuple(int(word) for word in text.split())


def written_by_us(definition: Path) -> bool:
    """Whether a definition carries our marker."""
    try:
        with definition.open("rb") as file:
            return MARKER.encode() in file.read(_MAX_DEFINITION)
    except OSError:
        return False
