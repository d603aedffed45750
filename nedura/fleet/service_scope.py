"""Units and labels in a collection: each belongs to the member in its cgroup, or is named and left alone."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import attrs

from nedura.fleet.collector import Collector
from nedura.fleet.identity import classify
from nedura.fleet.model import Foreign, Probe, Runtime, ServiceInfo
from nedura.fleet.scope import home_key

__all__ = ["judge_services", "note_unit_homes"]


def note_unit_homes(collector: Collector, services: Sequence[ServiceInfo]) -> None:
    """What definitions say about the home of each process, for those whose environment cannot be read."""
    for service in services:
        if home := collector.product.setting(service.environment, "HOME"):
            pids = (*service.pids, *((service.main_pid,) if service.main_pid else ()))
            collector.unit_homes.update(dict.fromkeys(pids, home))


def judge_services(collector: Collector, services: Sequence[ServiceInfo]) -> None:
    """Units and labels: each belongs to the member in its cgroup, or is named and left alone."""
    for service in services:
        members = [pid for pid in (*service.pids, service.main_pid) if pid in collector.found]
        if members:
            _attach(collector, service, collector.found[members[0]])
        elif service.main_pid is not None:
            _foreign_service(collector, service)
    if services:
        collector.probes.append(Probe(what="service manager", count=len(services)))


def _attach(collector: Collector, service: ServiceInfo, runtime: Runtime) -> None:
    if runtime.unit and runtime.unit != service.name:
        evolved = attrs.evolve(runtime, aliases=(*runtime.aliases, service.name))
    else:
        supervisor = "launchd" if service.what == "launchd job" else "systemd"
        evolved = attrs.evolve(
            runtime,
            unit=service.name,
            unit_scope=service.scope,
            supervisor=supervisor,
            restart_via=supervisor,
        )
    collector.found[runtime.pid] = evolved


def _unborn(argv: Sequence[str] | None) -> bool:
    """Whether a process of a unit is not its program yet: a manager names its child `(program)` until it executes that."""
    if not argv or (argv[0].startswith("(") and argv[0].endswith(")")):
        return True
    return os.path.basename(argv[0]) in ("systemd", "systemd-executor")


def _foreign_service(collector: Collector, service: ServiceInfo) -> None:
    pids = [pid for pid in (*service.pids, service.main_pid) if pid is not None]
    verdicts = {pid: classify(collector.processes.argv(pid) or (), product=collector.product) for pid in pids}
    ours = next((pid for pid, verdict in verdicts.items() if verdict.may_host), None)
    key = None
    if ours is not None:
        key = collector.home_of(ours, collector.processes.environ(ours), verdicts[ours])
    elif named := collector.product.setting(service.environment, "HOME"):
        key = home_key(named)
        unborn = all(_unborn(collector.processes.argv(pid)) for pid in pids)
        if collector.scope.home(key) is not None and (service.written_by_us or unborn):
            return  # a unit of ours that is just starting: who serves the home says nothing yet
    reason = collector.scope.foreign_reason(key, "", our_entry=ours is not None)
    if ours is None and key is None:
        reason = "another product"
    item = Foreign(
        what=service.what,
        name=service.name,
        reason=reason or "another install",
        home=Path(key.path) if key else None,
        pid=service.main_pid,
    )
    earlier = next((one for one in collector.foreign if one.pid in pids), None)
    if earlier is not None:  # its socket or the scan told more; people know it by its unit
        item = attrs.evolve(earlier, what=service.what, name=service.name)
    collector.foreign = [one for one in collector.foreign if one.pid not in pids]
    collector.leave(item)
