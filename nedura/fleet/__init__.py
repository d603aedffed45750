"""The fleet: what a process is, who belongs to an install, and what a daemon does to belong."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nedura._lazy import attach

if TYPE_CHECKING:
    from nedura.fleet.events import FLEET_EVENTS, FleetMatrix, VerifyWaiting
    from nedura.fleet.model import (
        Fleet,
        Foreign,
        MatrixRow,
        Probe,
        Runtime,
        ServiceInfo,
        restart_via,
    )

_EXPORTS = {
    "FLEET_EVENTS": "nedura.fleet.events",
    "Fleet": "nedura.fleet.model",
    "FleetMatrix": "nedura.fleet.events",
    "Foreign": "nedura.fleet.model",
    "MatrixRow": "nedura.fleet.model",
    "Probe": "nedura.fleet.model",
    "Runtime": "nedura.fleet.model",
    "ServiceInfo": "nedura.fleet.model",
    "VerifyWaiting": "nedura.fleet.events",
    "restart_via": "nedura.fleet.model",
}

__all__ = [
    "FLEET_EVENTS",
    "Fleet",
    "FleetMatrix",
    "Foreign",
    "MatrixRow",
    "Probe",
    "Runtime",
    "ServiceInfo",
    "VerifyWaiting",
    "restart_via",
]

__getattr__, __dir__ = attach(__name__, _EXPORTS)
