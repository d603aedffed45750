"""Leaving a gateway's control group before its restart ends everything in it (decision 21, C079)."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import attrs

from nedura.fleet.model import Runtime
from nedura.fleet.supervision import UnitRef, in_family, unit_of_cgroup
from nedura.fleet.supervisors.systemctl import Systemctl, run_bounded
from nedura.product import NEDURA, Product
from nedura.programs import find_program

__all__ = ["mark_shared_cgroup", "own_unit", "scope_prefix"]

_PROBE_SECONDS: Final = 10.0


def own_unit(cgroup: str | None = None) -> UnitRef | None:
    """The service whose control group this process is in; None outside any.

    Args:
        cgroup: text of the cgroup file; default this process's own.
    """
    if cgroup is None:
        try:
            cgroup = Path("/proc/self/cgroup").read_text("utf-8", "replace")
        except OSError:
            return None
    return unit_of_cgroup(cgroup)


async def scope_prefix(
    name: str,
    *,
    product: Product = NEDURA,
    environ: Mapping[str, str] | None = None,
    unit: UnitRef | None = None,
) -> tuple[str, ...]:
    """What to put before a command line so that it runs in its own transient scope.

    Empty when this process is in no gateway's control group, or when the manager gives no scope: then the gateway whose group is
    shared must be treated like an ancestor (`mark_shared_cgroup`).

    Args:
        name: start of the scope's name, e.g. `nedura-update`.
        product: names.
        environ: where PATH and the runtime folder come from; default this process's.
        unit: the service we are in; default looked up.
    """
    environ = os.environ if environ is None else environ
    unit = own_unit() if unit is None else unit
    if unit is None or not in_family(unit.name, product.unit_families):
        return ()
    program = find_program("systemd-run", environ)
    if program is None:
        return ()
    prefix = (program, f"--{unit.scope}", "--scope", "--quiet", "--collect", f"--unit={name}-{os.getpid()}")
    environment = Systemctl(unit.scope, environ=environ).environment()
    probe = (*prefix[:-1], f"--unit={name}-probe-{os.getpid()}", "--", "/bin/true")
    ran = await run_bounded(probe, environment, _PROBE_SECONDS)
    return (*prefix, "--") if ran.status == 0 else ()


def mark_shared_cgroup(runtimes: Sequence[Runtime], unit: UnitRef | None) -> tuple[Runtime, ...]:
    """Treat the member whose control group we are in like an ancestor: it is told last and never waited for.

    Args:
        runtimes: the members.
        unit: the service we are in, None outside any.
    """
    if unit is None:
        return tuple(runtimes)
    return tuple(
        attrs.evolve(one, ancestor=True) if (one.unit, one.unit_scope) == (unit.name, unit.scope) else one
        for one in runtimes
    )
