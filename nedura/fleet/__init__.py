"""The fleet: what a process is, who belongs to an install, and what a daemon does to belong."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nedura._lazy import attach

if TYPE_CHECKING:
    from nedura.fleet.claim import ClaimTaken, lock_holder
    from nedura.fleet.control_client import ask, ask_now
    from nedura.fleet.drain import EXIT_CONFIG, EXIT_PLANNED, EXIT_RESTART, EXIT_UNEXPECTED, DrainSettings
    from nedura.fleet.events import FleetMatrix, FleetStatus, VerifyWaiting
    from nedura.fleet.identity import Classification, classify, display_command
    from nedura.fleet.inventory import collect, collect_now, look
    from nedura.fleet.ledger import LedgerEntry, SpawnLedger
    from nedura.fleet.markers import write_marker
    from nedura.fleet.matrix import RuntimeOutcome, complete, judge, reconcile, runs_expected
    from nedura.fleet.member import FleetMember, MemberOptions
    from nedura.fleet.model import Fleet, Foreign, MatrixRow, Probe, Runtime, ServiceInfo, restart_via
    from nedura.fleet.socketpath import Bound, bind_socket, find_socket, peer_of
    from nedura.fleet.storm import StormRule
    from nedura.fleet.takeover import stop_member, take_over
    from nedura.fleet.turns import Draining, Turn

_EXPORTS = {
    "Bound": "nedura.fleet.socketpath",
    "ClaimTaken": "nedura.fleet.claim",
    "Classification": "nedura.fleet.identity",
    "DrainSettings": "nedura.fleet.drain",
    "Draining": "nedura.fleet.turns",
    "EXIT_CONFIG": "nedura.fleet.drain",
    "EXIT_PLANNED": "nedura.fleet.drain",
    "EXIT_RESTART": "nedura.fleet.drain",
    "EXIT_UNEXPECTED": "nedura.fleet.drain",
    "Fleet": "nedura.fleet.model",
    "FleetMatrix": "nedura.fleet.events",
    "FleetMember": "nedura.fleet.member",
    "FleetStatus": "nedura.fleet.events",
    "Foreign": "nedura.fleet.model",
    "LedgerEntry": "nedura.fleet.ledger",
    "MatrixRow": "nedura.fleet.model",
    "MemberOptions": "nedura.fleet.member",
    "Probe": "nedura.fleet.model",
    "Runtime": "nedura.fleet.model",
    "RuntimeOutcome": "nedura.fleet.matrix",
    "ServiceInfo": "nedura.fleet.model",
    "SpawnLedger": "nedura.fleet.ledger",
    "StormRule": "nedura.fleet.storm",
    "Turn": "nedura.fleet.turns",
    "VerifyWaiting": "nedura.fleet.events",
    "ask": "nedura.fleet.control_client",
    "ask_now": "nedura.fleet.control_client",
    "bind_socket": "nedura.fleet.socketpath",
    "classify": "nedura.fleet.identity",
    "collect": "nedura.fleet.inventory",
    "collect_now": "nedura.fleet.inventory",
    "complete": "nedura.fleet.matrix",
    "display_command": "nedura.fleet.identity",
    "find_socket": "nedura.fleet.socketpath",
    "judge": "nedura.fleet.matrix",
    "lock_holder": "nedura.fleet.claim",
    "look": "nedura.fleet.inventory",
    "peer_of": "nedura.fleet.socketpath",
    "reconcile": "nedura.fleet.matrix",
    "restart_via": "nedura.fleet.model",
    "runs_expected": "nedura.fleet.matrix",
    "stop_member": "nedura.fleet.takeover",
    "take_over": "nedura.fleet.takeover",
    "write_marker": "nedura.fleet.markers",
}

__all__ = [
    "EXIT_CONFIG",
    "EXIT_PLANNED",
    "EXIT_RESTART",
    "EXIT_UNEXPECTED",
    "Bound",
    "ClaimTaken",
    "Classification",
    "DrainSettings",
    "Draining",
    "Fleet",
    "FleetMatrix",
    "FleetMember",
    "FleetStatus",
    "Foreign",
    "LedgerEntry",
    "MatrixRow",
    "MemberOptions",
    "Probe",
    "Runtime",
    "RuntimeOutcome",
    "ServiceInfo",
    "SpawnLedger",
    "StormRule",
    "Turn",
    "VerifyWaiting",
    "ask",
    "ask_now",
    "bind_socket",
    "classify",
    "collect",
    "collect_now",
    "complete",
    "display_command",
    "find_socket",
    "judge",
    "lock_holder",
    "look",
    "peer_of",
    "reconcile",
    "restart_via",
    "runs_expected",
    "stop_member",
    "take_over",
    "write_marker",
]

__getattr__, __dir__ = attach(__name__, _EXPORTS)
