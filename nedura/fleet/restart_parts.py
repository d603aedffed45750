"""The real parts of a restart: every supervisor of this platform, the control socket, the process table."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from nedura.fleet.inventory import look
from nedura.fleet.restart import RestartParts
from nedura.fleet.supervisors.base import Supervisor
from nedura.fleet.supervisors.launchd import LaunchdSupervisor
from nedura.fleet.supervisors.manual import ManualSupervisor
from nedura.fleet.supervisors.passive import PassiveSupervisor
from nedura.fleet.supervisors.systemd import SystemdSupervisor
from nedura.product import NEDURA, Product

__all__ = ["default_parts", "default_supervisors"]


def default_supervisors(
    *, product: Product = NEDURA, environ: Mapping[str, str] | None = None, platform: str = sys.platform
) -> dict[str, Supervisor]:
    """Supervisor id -> who restarts such members. A desktop app restarts its own; it is not in here.

    Args:
        product: names.
        environ: environment of service manager calls and of successors; default this process's.
        platform: `sys.platform`.
    """
    environ = os.environ if environ is None else environ
    manual = ManualSupervisor(product=product, environ=environ)
    found: dict[str, Supervisor] = {
        "manual": manual,
        "manual-serve": manual,
        "s6": PassiveSupervisor("s6"),
        "external": PassiveSupervisor("its own supervisor"),
    }
    if platform.startswith("linux"):
        found["systemd"] = found["service"] = SystemdSupervisor(environ=environ)
    elif platform == "darwin":
        found["launchd"] = found["service"] = LaunchdSupervisor(environ=environ)
    return found


def default_parts(*, product: Product = NEDURA, environ: Mapping[str, str] | None = None) -> RestartParts:
    """The parts that a real restart works with.

    Args:
        product: names.
        environ: environment of service manager calls and of successors; default this process's.
    """
    return RestartParts(supervisors=default_supervisors(product=product, environ=environ), look=look)
