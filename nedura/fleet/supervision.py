"""Who supervises a process, from its own environment, arguments and cgroup. Pure.

A unit is found by the cgroup, not by comparing with MainPID: a unit whose main process is a wrapper still owns what runs inside it
(#66900). A unit of none of our families counts only when the manager itself started this process or its wrapper (#108244).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from typing import Final, Literal

import attrs

from nedura.product import NEDURA, Product

__all__ = ["Supervision", "UnitRef", "in_family", "supervision_of", "unit_of_cgroup"]

_SYSTEMD_LINE: Final = re.compile(r"^(?:0:|\d+:name=systemd):(?P<path>/.*)$", re.MULTILINE)


@attrs.frozen(kw_only=True)
class UnitRef:
    """A systemd unit and the manager it belongs to."""

    name: str
    scope: Literal["user", "system"]


@attrs.frozen(kw_only=True)
class Supervision:
    """Who starts a process again.

    Attributes:
        supervisor: id of `model.RESTART_VIA`.
        unit: unit or label, empty when there is none.
        unit_scope: `user` or `system`.
    """

    supervisor: str = "manual"
    unit: str = ""
    unit_scope: str = ""


def unit_of_cgroup(text: str) -> UnitRef | None:
    """The service that a process runs in, by its cgroup file; None outside any (a login session's scope is none)."""
    paths = [match["path"] for match in _SYSTEMD_LINE.finditer(text)]
    for path in paths:
        parts = path.strip("/").split("/")
        services = [part for part in parts if part.endswith(".service")]
        if not services or parts[-1].endswith(".scope"):
            continue
        unit = services[-1]
        if unit.startswith("user@"):
            continue
        under_user = any(part.startswith("user@") for part in services[:-1]) or "app.slice" in parts
        return UnitRef(name=_unescape(unit), scope="user" if under_user else "system")
    return None


def _unescape(unit: str) -> str:
    """Cgroup names that begin with a reserved word carry a leading underscore."""
    return unit.removeprefix("_")


def in_family(name: str, families: Sequence[str]) -> bool:
    """Whether a unit or label is one of our families: exactly the base name, or the base name and a suffix after `-`."""
    stem = name.removesuffix(".service").removesuffix(".plist")
    return any(stem == family or stem.startswith(f"{family}-") for family in families)


def supervision_of(
    environ: Mapping[str, str],
    argv: Sequence[str],
    *,
    pid: int,
    ppid: int,
    cgroup: str,
    product: Product = NEDURA,
    platform: str = sys.platform,
) -> Supervision:
    """Who supervises a process.

    Args:
        environ: its environment.
        argv: its argument list.
        pid: its pid.
        ppid: its parent.
        cgroup: its cgroup file.
        product: names to go by.
        platform: its system.
    """
    unit = unit_of_cgroup(cgroup)
    if unit is not None and in_family(unit.name, product.unit_families):
        return Supervision(supervisor="systemd", unit=unit.name, unit_scope=unit.scope)
    if "--external-supervisor" in argv:
        label = environ.get("XPC_SERVICE_NAME", "")
        return Supervision(supervisor="launchd" if platform == "darwin" and label else "external", unit=label)
    if unit is not None and _started_by_manager(environ, pid, ppid):
        return Supervision(supervisor="systemd", unit=unit.name, unit_scope=unit.scope)
    if platform == "darwin":
        label = environ.get("XPC_SERVICE_NAME", "")
        if in_family(label, product.label_families) or environ.get("LAUNCHD_SOCKET"):
            return Supervision(supervisor="launchd", unit=label)
    if product.setting(environ, "DESKTOP_MANAGED"):
        return Supervision(supervisor="desktop")
    if product.setting(environ, "S6_SUPERVISED_CHILD"):
        return Supervision(supervisor="s6")
    return Supervision()


def _started_by_manager(environ: Mapping[str, str], pid: int, ppid: int) -> bool:
    """Whether systemd started this very process or the wrapper above it; children of a session only inherit its variables."""
    if not environ.get("INVOCATION_ID"):
        return False
    main = environ.get("SYSTEMD_EXEC_PID", "")
    return main in (str(pid), str(ppid)) if main else True
