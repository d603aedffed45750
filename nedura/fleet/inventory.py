"""Who is there: every runtime of this install, and what was seen and left alone. Read-only and never raises.

The control socket answers for everything that is well. Files and scans are for old, starting and crashed processes only.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from nedura.fleet.collector import Collector
from nedura.fleet.control_client import ASK_TIMEOUT
from nedura.fleet.looking import look
from nedura.fleet.model import Fleet, Probe, ServiceInfo
from nedura.fleet.processes import Processes, system_processes
from nedura.fleet.scope import Scope, homes_of
from nedura.fleet.service_scope import judge_services, note_unit_homes
from nedura.installs import running_code
from nedura.product import NEDURA, Product

__all__ = ["collect", "collect_now", "look"]


async def collect(
    root_home: Path,
    *,
    product: Product = NEDURA,
    extra_homes: Iterable[Path] = (),
    install_id: str | None = None,
    services: Sequence[ServiceInfo] = (),
    scan: bool = True,
    processes: Processes | None = None,
    environ: Mapping[str, str] | None = None,
    timeout: float = ASK_TIMEOUT,
) -> Fleet:
    """Everything that serves the homes of this install, and what was seen and left alone.

    Args:
        root_home: the install's root home.
        product: names.
        extra_homes: homes outside the tree, e.g. the invoking one.
        install_id: this install's id; default that of the running code.
        services: units and labels as the supervisor adapters list them.
        scan: look at the process table too.
        processes: the process table.
        environ: the environment.
        timeout: seconds that a socket has for its answer.
    """
    collector = Collector(
        root=root_home,
        scope=Scope.of(
            homes_of(root_home, *extra_homes),
            running_code().install_id if install_id is None else install_id,
        ),
        product=product,
        processes=system_processes() if processes is None else processes,
        environ=os.environ if environ is None else environ,
        now=time.time(),
    )
    note_unit_homes(collector, services)
    silent = await collector.ask_sockets(timeout)
    collector.read_files(silent)
    collector.read_ledger()
    if scan:
        collector.scan()
    else:
        collector.probes.append(Probe(what="process table", skipped="not asked for"))
    judge_services(collector, services)
    return collector.fleet()


def collect_now(root_home: Path, **options: Any) -> Fleet:
    """`collect` for code without an event loop; same arguments."""
    return asyncio.run(collect(root_home, **options))
