"""Every unit of our families that a systemd manager knows, as the inventory judges it (facts/update.md 7.3)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import attrs

from nedura.fleet.model import Probe, ServiceInfo
from nedura.fleet.supervision import in_family
from nedura.fleet.supervisors.base import RestartError
from nedura.fleet.supervisors.systemctl import Scope, Systemctl
from nedura.fleet.supervisors.unit_state import UnitState
from nedura.product import NEDURA, Product
from nedura.text import clean

__all__ = ["MARKER", "Listing", "list_services", "written_by_us"]

MARKER: Final = "X-Nedura-Definition"
"""Key in definitions that we write; managers ignore keys that begin with `X-`."""

_CGROUP_ROOT: Final = Path("/sys/fs/cgroup")
_MAX_DEFINITION: Final = 64 * 1024


@attrs.frozen(kw_only=True)
class Listing:
    """What the service managers said.

    Attributes:
        services: units of our families, in the managers' order.
        probes: what was asked, and why a manager was skipped.
    """

    services: tuple[ServiceInfo, ...] = ()
    probes: tuple[Probe, ...] = ()


async def list_services(
    *, product: Product = NEDURA, environ: Mapping[str, str] | None = None, cgroup_root: Path = _CGROUP_ROOT
) -> Listing:
    """Ask both managers at once; one that is not there or does not answer is skipped and the other kept. Never raises.

    Args:
        product: names.
        environ: where PATH and the runtime folder come from; default this process's.
        cgroup_root: where the control groups are mounted.
    """
    environ = os.environ if environ is None else environ
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
        states = await manager.show(*(f"{family}*" for family in product.unit_families))
    except RestartError as error:
        return (), Probe(what=name, skipped=clean(error.message))
    exact = [state for state in states if in_family(state.name, product.unit_families)]
    return tuple(_service(state, scope, cgroup_root) for state in exact), Probe(what=name, count=len(exact))


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
