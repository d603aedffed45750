"""Shipped test parts: development portal, fake clock, scripted transports, install builder. They need the extra `testing`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nedura._lazy import attach

if TYPE_CHECKING:
    from nedura.testing.clock import FakeClock
    from nedura.testing.http import PortalTransport, Scripted, ScriptedTransport, lost, reply
    from nedura.testing.portal import Fault, Knobs, Portal, PortalControl, portal_process, serve_portal

__all__ = [
    "FakeClock",
    "Fault",
    "Knobs",
    "Portal",
    "PortalControl",
    "PortalTransport",
    "Scripted",
    "ScriptedTransport",
    "lost",
    "portal_process",
    "reply",
    "serve_portal",
]

__getattr__, __dir__ = attach(
    __name__,
    {
        "FakeClock": "nedura.testing.clock",
        "Fault": "nedura.testing.portal",
        "Knobs": "nedura.testing.portal",
        "Portal": "nedura.testing.portal",
        "PortalControl": "nedura.testing.portal",
        "PortalTransport": "nedura.testing.http",
        "Scripted": "nedura.testing.http",
        "ScriptedTransport": "nedura.testing.http",
        "lost": "nedura.testing.http",
        "portal_process": "nedura.testing.portal",
        "reply": "nedura.testing.http",
        "serve_portal": "nedura.testing.portal",
    },
)
