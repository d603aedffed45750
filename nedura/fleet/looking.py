"""Asking one home's member who it is, and turning what was read into a `Runtime`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from nedura.fleet.control_client import ASK_TIMEOUT, ask
from nedura.fleet.model import Runtime, Source
from nedura.fleet.scope import home_key, same_home
from nedura.fleet.statefile import StateRecord, parse_state
from nedura.homes import profile_name

__all__ = ["look", "runtime_of"]

_DETAIL: Final = ("exit_reason", "restart_requested", "active_work", "platforms", "updated_at", "host")


def runtime_of(
    record: StateRecord,
    *,
    pid: int,
    start_time: int | None,
    home: Path,
    profile: str,
    source: Source,
    loop_age_s: float | None = None,
    detail: Mapping[str, Any] | None = None,
) -> Runtime:
    """A gateway as a record describes it.

    Args:
        record: what it or its file says.
        pid: its pid.
        start_time: the kernel's start time of that pid.
        home: its home.
        profile: its profile's name.
        source: what told us.
        loop_age_s: as in `Runtime`.
        detail: as in `Runtime`.
    """
    return Runtime(
        kind="gateway",
        profile=profile,
        pid=pid,
        start_time=start_time,
        home=home,
        supervisor=record.supervisor or "manual",
        unit=record.unit,
        unit_scope=record.unit_scope,
        code=record.code,
        state=record.state,
        active_turns=record.active_agents,
        served_profiles=tuple(name for name in record.served_profiles if name != profile),
        source=source,
        drain_budget_s=record.drain_budget_s,
        boot_s=record.boot_s,
        loop_age_s=loop_age_s,
        reported_stale=record.stale,
        detail=detail or {},
    )


async def look(
    home: Path,
    *,
    root: Path | None = None,
    verb: str = "status",
    timeout: float = ASK_TIMEOUT,
    environ: Mapping[str, str] | None = None,
) -> Runtime | None:
    """Who answers on a home's control socket now; None when nobody does. The pid is the kernel's word.

    Args:
        home: the home.
        root: the root home, for the profile's name.
        verb: `status` with details, or `identify`.
        timeout: seconds.
        environ: the environment, for the user's runtime folder.
    """
    answer = await ask(home, verb, timeout=timeout, environ=environ)
    record = parse_state(answer, time.time())
    if answer is None or record is None or record.pid is None:
        return None
    claimed = record.home and home_key(record.home)
    if not claimed or not same_home(claimed, home_key(home)):
        return None  # an answer for another home says nothing about this one
    age = answer.get("loop_age_s")
    return runtime_of(
        record,
        pid=record.pid,
        start_time=record.start_time,
        home=home,
        profile=profile_name(home, root),
        source="socket",
        loop_age_s=float(age) if isinstance(age, (int, float)) else None,
        detail={key: answer[key] for key in _DETAIL if key in answer},
    )
