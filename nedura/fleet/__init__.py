"""The fleet: what a process is, who belongs to an install, and what a daemon does to belong."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nedura._lazy import attach

if TYPE_CHECKING:
    from nedura.fleet.budget import restart_budget
    from nedura.fleet.cgroup import own_unit, scope_prefix
    from nedura.fleet.claim import ClaimTaken, lock_holder
    from nedura.fleet.control_client import ask, ask_now
    from nedura.fleet.drain import EXIT_CONFIG, EXIT_PLANNED, EXIT_RESTART, EXIT_UNEXPECTED, DrainSettings
    from nedura.fleet.events import FleetMatrix, FleetStatus, VerifyWaiting
    from nedura.fleet.explain import Explanation, explain_argv, explain_pid
    from nedura.fleet.finality import Finality
    from nedura.fleet.identity import Classification, classify, classify_text, display_command
    from nedura.fleet.inventory import collect, collect_now, look
    from nedura.fleet.ledger import LedgerEntry, SpawnLedger
    from nedura.fleet.markers import write_marker
    from nedura.fleet.matrix import (
        RuntimeOutcome,
        complete,
        judge,
        reconcile,
        runs_expected,
        unsettled,
        with_failed,
    )
    from nedura.fleet.member import FleetMember, own_supervision
    from nedura.fleet.member_options import MemberOptions
    from nedura.fleet.model import Fleet, Foreign, MatrixRow, Probe, Runtime, ServiceInfo, restart_via
    from nedura.fleet.processes import system_processes
    from nedura.fleet.restart import RestartParts
    from nedura.fleet.restart_events import (
        RESTART_EVENTS,
        DrainWaiting,
        LeftAlone,
        MemberFailed,
        MemberRestarted,
        RestartPending,
        RestartStarted,
        RestartWaiting,
        SettleWaiting,
    )
    from nedura.fleet.restart_parts import default_parts
    from nedura.fleet.restart_recovery import Recovered, run_recovery
    from nedura.fleet.rolling import (
        attach_restarts,
        left_alone,
        pick_first,
        restart_first,
        restart_rest,
        restarts_under_way,
        roll,
    )
    from nedura.fleet.scope import homes_of
    from nedura.fleet.scoped import ScopedLock, lock_folder
    from nedura.fleet.service.events import ServiceChanged, ServiceNote, ServiceRow
    from nedura.fleet.service.real import gateway_services
    from nedura.fleet.socketpath import Bound, bind_socket, find_socket, peer_of
    from nedura.fleet.statefile import last_exit
    from nedura.fleet.status_events import GatewayList, GatewayListRow, GatewayStatus
    from nedura.fleet.storm import StormRule
    from nedura.fleet.supervisors.listing import Listing, list_services
    from nedura.fleet.takeover import stop_member, take_over
    from nedura.fleet.turns import Draining, Turn
    from nedura.fleet.verify import settle_deadline, verify_fleet

_EXPORTS = {
    "Bound": "nedura.fleet.socketpath",
    "ClaimTaken": "nedura.fleet.claim",
    "Classification": "nedura.fleet.identity",
    "DrainSettings": "nedura.fleet.drain",
    "DrainWaiting": "nedura.fleet.restart_events",
    "Draining": "nedura.fleet.turns",
    "EXIT_CONFIG": "nedura.fleet.drain",
    "EXIT_PLANNED": "nedura.fleet.drain",
    "EXIT_RESTART": "nedura.fleet.drain",
    "EXIT_UNEXPECTED": "nedura.fleet.drain",
    "Explanation": "nedura.fleet.explain",
    "Fleet": "nedura.fleet.model",
    "FleetMatrix": "nedura.fleet.events",
    "FleetMember": "nedura.fleet.member",
    "FleetStatus": "nedura.fleet.events",
    "Foreign": "nedura.fleet.model",
    "GatewayList": "nedura.fleet.status_events",
    "GatewayListRow": "nedura.fleet.status_events",
    "GatewayStatus": "nedura.fleet.status_events",
    "LedgerEntry": "nedura.fleet.ledger",
    "LeftAlone": "nedura.fleet.restart_events",
    "Listing": "nedura.fleet.supervisors.listing",
    "MatrixRow": "nedura.fleet.model",
    "MemberFailed": "nedura.fleet.restart_events",
    "MemberOptions": "nedura.fleet.member_options",
    "MemberRestarted": "nedura.fleet.restart_events",
    "Probe": "nedura.fleet.model",
    "RESTART_EVENTS": "nedura.fleet.restart_events",
    "Recovered": "nedura.fleet.restart_recovery",
    "RestartParts": "nedura.fleet.restart",
    "RestartPending": "nedura.fleet.restart_events",
    "RestartStarted": "nedura.fleet.restart_events",
    "RestartWaiting": "nedura.fleet.restart_events",
    "SettleWaiting": "nedura.fleet.restart_events",
    "Runtime": "nedura.fleet.model",
    "RuntimeOutcome": "nedura.fleet.matrix",
    "ScopedLock": "nedura.fleet.scoped",
    "ServiceChanged": "nedura.fleet.service.events",
    "ServiceInfo": "nedura.fleet.model",
    "ServiceNote": "nedura.fleet.service.events",
    "ServiceRow": "nedura.fleet.service.events",
    "SpawnLedger": "nedura.fleet.ledger",
    "StormRule": "nedura.fleet.storm",
    "Turn": "nedura.fleet.turns",
    "VerifyWaiting": "nedura.fleet.events",
    "attach_restarts": "nedura.fleet.rolling",
    "ask": "nedura.fleet.control_client",
    "ask_now": "nedura.fleet.control_client",
    "bind_socket": "nedura.fleet.socketpath",
    "classify": "nedura.fleet.identity",
    "classify_text": "nedura.fleet.identity",
    "collect": "nedura.fleet.inventory",
    "collect_now": "nedura.fleet.inventory",
    "complete": "nedura.fleet.matrix",
    "default_parts": "nedura.fleet.restart_parts",
    "display_command": "nedura.fleet.identity",
    "explain_argv": "nedura.fleet.explain",
    "explain_pid": "nedura.fleet.explain",
    "find_socket": "nedura.fleet.socketpath",
    "gateway_services": "nedura.fleet.service.real",
    "homes_of": "nedura.fleet.scope",
    "judge": "nedura.fleet.matrix",
    "last_exit": "nedura.fleet.statefile",
    "left_alone": "nedura.fleet.rolling",
    "list_services": "nedura.fleet.supervisors.listing",
    "lock_folder": "nedura.fleet.scoped",
    "lock_holder": "nedura.fleet.claim",
    "look": "nedura.fleet.inventory",
    "own_supervision": "nedura.fleet.member",
    "own_unit": "nedura.fleet.cgroup",
    "peer_of": "nedura.fleet.socketpath",
    "pick_first": "nedura.fleet.rolling",
    "reconcile": "nedura.fleet.matrix",
    "restart_budget": "nedura.fleet.budget",
    "restart_first": "nedura.fleet.rolling",
    "restart_rest": "nedura.fleet.rolling",
    "restart_via": "nedura.fleet.model",
    "restarts_under_way": "nedura.fleet.rolling",
    "roll": "nedura.fleet.rolling",
    "run_recovery": "nedura.fleet.restart_recovery",
    "runs_expected": "nedura.fleet.matrix",
    "scope_prefix": "nedura.fleet.cgroup",
    "settle_deadline": "nedura.fleet.verify",
    "stop_member": "nedura.fleet.takeover",
    "system_processes": "nedura.fleet.processes",
    "take_over": "nedura.fleet.takeover",
    "unsettled": "nedura.fleet.matrix",
    "verify_fleet": "nedura.fleet.verify",
    "with_failed": "nedura.fleet.matrix",
    "Finality": "nedura.fleet.finality",
    "write_marker": "nedura.fleet.markers",
}

__all__ = [
    "EXIT_CONFIG",
    "EXIT_PLANNED",
    "EXIT_RESTART",
    "EXIT_UNEXPECTED",
    "RESTART_EVENTS",
    "Bound",
    "ClaimTaken",
    "Classification",
    "DrainSettings",
    "DrainWaiting",
    "Draining",
    "Explanation",
    "Finality",
    "Fleet",
    "FleetMatrix",
    "FleetMember",
    "FleetStatus",
    "Foreign",
    "GatewayList",
    "GatewayListRow",
    "GatewayStatus",
    "LedgerEntry",
    "LeftAlone",
    "Listing",
    "MatrixRow",
    "MemberFailed",
    "MemberOptions",
    "MemberRestarted",
    "Probe",
    "Recovered",
    "RestartParts",
    "RestartPending",
    "RestartStarted",
    "RestartWaiting",
    "Runtime",
    "RuntimeOutcome",
    "ScopedLock",
    "ServiceChanged",
    "ServiceInfo",
    "ServiceNote",
    "ServiceRow",
    "SettleWaiting",
    "SpawnLedger",
    "StormRule",
    "Turn",
    "VerifyWaiting",
    "ask",
    "ask_now",
    "attach_restarts",
    "bind_socket",
    "classify",
    "classify_text",
    "collect",
    "collect_now",
    "complete",
    "default_parts",
    "display_command",
    "explain_argv",
    "explain_pid",
    "find_socket",
    "gateway_services",
    "homes_of",
    "judge",
    "last_exit",
    "left_alone",
    "list_services",
    "lock_folder",
    "lock_holder",
    "look",
    "own_supervision",
    "own_unit",
    "peer_of",
    "pick_first",
    "reconcile",
    "restart_budget",
    "restart_first",
    "restart_rest",
    "restart_via",
    "restarts_under_way",
    "roll",
    "run_recovery",
    "runs_expected",
    "scope_prefix",
    "settle_deadline",
    "stop_member",
    "system_processes",
    "take_over",
    "unsettled",
    "verify_fleet",
    "with_failed",
    "write_marker",
]

__getattr__, __dir__ = attach(__name__, _EXPORTS)
