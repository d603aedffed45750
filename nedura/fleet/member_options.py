"""Seams and switches of a member."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import attrs

from nedura.fleet.drain import DrainSettings
from nedura.fleet.processes import Processes, system_processes
from nedura.fleet.storm import StormRule
from nedura.product import NEDURA, Product

__all__ = ["MemberOptions"]


@attrs.frozen(kw_only=True)
class MemberOptions:
    """Seams and switches of a member; the defaults are for a daemon's main thread.

    Attributes:
        product: names.
        settings: drain budgets; None reads the home's config and the environment.
        signals: install handlers for SIGUSR1, SIGTERM and SIGINT.
        watchdogs: end the process when its loop or its stop hangs.
        storm: rule against respawn storms, None for none.
        auto_ready: running as soon as the block is entered; False waits for `ready()`.
        environ: the process environment.
        processes: the process table.
        hard_exit: ends the process at once.
        rescan: looks for profiles again; answers `rescan-profiles` of a member that serves several.
    """

    product: Product = NEDURA
    settings: DrainSettings | None = None
    signals: bool = True
    watchdogs: bool = True
    storm: StormRule | None = None
    auto_ready: bool = True
    environ: Mapping[str, str] = attrs.field(factory=lambda: dict(os.environ))
    processes: Processes = attrs.field(factory=system_processes)
    hard_exit: Callable[[int], Any] = os._exit
    rescan: Callable[[], Awaitable[Mapping[str, Any]]] | None = None
