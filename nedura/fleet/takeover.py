"""Stopping the member that runs on a home: gently, with notice, and never anybody else (facts/runtime.md 2.4)."""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path
from typing import Final

import attrs

from nedura.errors import FleetError, StoreError
from nedura.fleet.claim import Holder, holds_claim, lock_holder
from nedura.fleet.identity import classify
from nedura.fleet.markers import MarkerKind, remove_marker, write_marker
from nedura.fleet.processes import Processes, system_processes
from nedura.fleet.scope import home_key, home_of_process, same_home
from nedura.fleet.signals import send_signal, wait_gone
from nedura.product import NEDURA, Product

__all__ = ["ANOTHER_HOME", "StopLimits", "doubts", "stop_member", "take_over"]


@attrs.frozen(kw_only=True)
class StopLimits:
    """Seconds that a member has after each signal."""

    term_s: float = 10.0
    kill_s: float = 5.0


_LIMITS: Final = StopLimits()
ANOTHER_HOME: Final = "it runs on another home"


def doubts(pid: int, home: Path, processes: Processes, product: Product = NEDURA) -> str:
    """Why a live process is not proven to be the gateway of a home; empty when it is. Live evidence outranks every record.

    A member in a host application's own daemon has another command line; then only the lock and the home speak for it.
    """
    environ = processes.environ(pid)
    argv = processes.argv(pid)
    if environ is None or argv is None:
        return "its command line or environment cannot be read"
    verdict = classify(argv, product=product)
    named = home_of_process(pid, environ, product)
    if verdict.may_host and verdict.profile is not None:
        return ""  # the profile flag outranks the environment it was started with
    if named is not None and same_home(home_key(named), home_key(home)):
        return ""
    # a sticky profile is chosen after the start: then only the lock that it really holds names its home
    return "" if holds_claim(home, pid, processes) else ANOTHER_HOME


async def stop_member(
    home: Path,
    *,
    notice: MarkerKind = "planned-stop",
    limits: StopLimits = _LIMITS,
    processes: Processes | None = None,
    product: Product = NEDURA,
) -> bool:
    """Stop the holder of a home's claim: notice, SIGTERM, then SIGKILL. True when it is gone, False when there was none.

    Args:
        home: the home.
        notice: what it is told the signal means.
        limits: seconds after each signal.
        processes: the process table.
        product: names.

    Raises:
        FleetError: it survives, or it cannot be proven to be this home's gateway; nothing was signalled then.
    """
    processes = system_processes() if processes is None else processes
    holder = lock_holder(home, processes)
    if holder.held is False:
        return False
    if holder.pid is None or holder.record is None or holder.record.start_time is None:
        raise FleetError("A gateway holds this home, but which process it is cannot be told.")
    pid, start = holder.pid, holder.record.start_time
    if reason := doubts(pid, home, processes, product):
        raise FleetError(f"Process {pid} was not signalled: {reason}.")
    gentle = _announce(home, notice, pid, start)
    for number, seconds in ((gentle, limits.term_s), (signal.SIGKILL, limits.kill_s)):
        sent = send_signal(
            pid,
            number,
            start_time=start,
            proof=lambda pid: doubts(pid, home, processes, product),
            processes=processes,
        )
        if sent.outcome == "refused":
            remove_marker(home, notice)
            raise FleetError(f"Process {pid} was not signalled: {sent.reason}.")
        if (stat := processes.stat(pid)) is not None and stat.halted:
            send_signal(
                pid, signal.SIGCONT, start_time=start, processes=processes
            )  # it sees SIGTERM only then
        if await asyncio.to_thread(wait_gone, pid, start, seconds):
            return True
    raise FleetError(f"Process {pid} does not end; two gateways never share a home.")


def _announce(home: Path, notice: MarkerKind, pid: int, start: int) -> signal.Signals:
    """Leave the note that makes SIGTERM a planned stop; where it cannot be written, SIGINT says the same by itself."""
    try:
        write_marker(home, notice, pid=pid, start_time=start, now=time.time())
    except StoreError:
        return signal.SIGINT
    return signal.SIGTERM


async def take_over(home: Path, *, limits: StopLimits = _LIMITS) -> Holder | None:
    """`--replace`: stop the member that runs here so that this process can claim the home. Returns whom it replaced.

    Raises:
        FleetError: it survives or cannot be proven.
    """
    holder = lock_holder(home)
    return holder if await stop_member(home, notice="takeover", limits=limits) else None
