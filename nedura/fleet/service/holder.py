"""Which manager's unit the process runs in that serves a home."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from nedura.fleet.claim import lock_holder
from nedura.fleet.processes import system_processes
from nedura.fleet.service.manager import ServiceManager
from nedura.fleet.supervision import supervision_of
from nedura.fleet.takeover import doubts
from nedura.product import Product

__all__ = ["unit_of"]


def unit_of(
    home: Path, managers: Iterable[ServiceManager], product: Product
) -> tuple[ServiceManager | None, str]:
    """The manager and the unit that the holder of a home's claim runs in, whatever its name; found by its control group.

    Args:
        home: whose claim.
        managers: those to choose among.
        product: names.

    Returns:
        None and an empty name for a process started by hand, for none, and for one that is in doubt.
    """
    pid = lock_holder(home).pid
    table = system_processes()
    environ, stat = (table.environ(pid), table.stat(pid)) if pid is not None else (None, None)
    if pid is None or environ is None or stat is None:
        return None, ""
    found = supervision_of(
        environ,
        table.argv(pid) or (),
        pid=pid,
        ppid=stat.ppid,
        cgroup=table.cgroup(pid),
        product=product,
    )
    if found.supervisor != "systemd" or doubts(pid, home, table, product):
        return None, ""
    return next((one for one in managers if one.scope == found.unit_scope), None), found.unit
