"""The development portal: every endpoint of the Nous Portal that nedura talks to, on loopback, with every fault as a knob.

In a test's own process::

    portal = Portal()
    async with serve_portal(portal) as server:
        ...  # NEDURA_PORTAL_BASE_URL=server.url

For other processes: `python -m nedura.testing.portal --port N --ready-file F --log-file F`, or `nedura dev portal` for people;
`PortalControl` (stdlib only) drives such a portal from outside. `PortalTransport` in `nedura.testing.http` serves a portal to an
httpx client without any socket.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nedura._lazy import attach

if TYPE_CHECKING:
    from nedura.testing.portal.control import PortalControl, portal_process
    from nedura.testing.portal.core import Portal
    from nedura.testing.portal.knobs import Fault, Knobs
    from nedura.testing.portal.log import LogEntry, RequestLog
    from nedura.testing.portal.server import PortalServer, run_portal, serve_portal
    from nedura.testing.portal.state import Account, DeviceGrant, Family, Guest, Store

__all__ = [
    "Account",
    "DeviceGrant",
    "Family",
    "Fault",
    "Guest",
    "Knobs",
    "LogEntry",
    "Portal",
    "PortalControl",
    "PortalServer",
    "RequestLog",
    "Store",
    "portal_process",
    "run_portal",
    "serve_portal",
]

_PACKAGE = "nedura.testing.portal"

__getattr__, __dir__ = attach(
    __name__,
    {
        "Account": f"{_PACKAGE}.state",
        "DeviceGrant": f"{_PACKAGE}.state",
        "Family": f"{_PACKAGE}.state",
        "Fault": f"{_PACKAGE}.knobs",
        "Guest": f"{_PACKAGE}.state",
        "Knobs": f"{_PACKAGE}.knobs",
        "LogEntry": f"{_PACKAGE}.log",
        "Portal": f"{_PACKAGE}.core",
        "PortalControl": f"{_PACKAGE}.control",
        "PortalServer": f"{_PACKAGE}.server",
        "RequestLog": f"{_PACKAGE}.log",
        "Store": f"{_PACKAGE}.state",
        "portal_process": f"{_PACKAGE}.control",
        "run_portal": f"{_PACKAGE}.server",
        "serve_portal": f"{_PACKAGE}.server",
    },
)
