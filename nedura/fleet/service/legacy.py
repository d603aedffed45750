"""Unit names of before the families, and their removal."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Final, Literal

from nedura.fleet.identity import classify
from nedura.fleet.service.definition import read_unit
from nedura.fleet.service.events import ServiceChanged, ServiceEvent, ServiceNote
from nedura.fleet.service.manager import ServiceManager, ServiceState
from nedura.fleet.service.place import ServicePlace
from nedura.fleet.service.rules import check_rights, pinned_here
from nedura.fleet.service.systemd import SystemdManager
from nedura.fleet.supervisors.unit_state import split_words
from nedura.product import Product
from nedura.text import clean

__all__ = ["migrate"]

LEGACY_UNITS: Final = ("nedura.service", "hermes.service")
"""Ours only if they start our gateway on a home of ours."""


async def migrate(
    managers: Sequence[ServiceManager],
    homes: Sequence[Path],
    place: ServicePlace,
    product: Product,
    *,
    dry_run: bool,
) -> AsyncGenerator[ServiceEvent, None]:
    """Remove legacy units that start our gateway on one of these homes.

    Args:
        managers: where to look.
        homes: homes of the install.
        place: machine and account.
        product: names.
        dry_run: only name them.

    Raises:
        UsageError: too few or too many rights.
        FleetError: the manager refuses.
    """
    found = False
    for manager in managers:
        if not isinstance(manager, SystemdManager):
            continue
        for name in LEGACY_UNITS:
            state = await manager.state(name)
            if not state.installed or state.content is None:
                continue
            reason = _why_not(state, homes, product)
            if reason:
                yield ServiceNote(text=f"{name} ({manager.scope}) was left alone: {reason}.")
                continue
            found = True
            if not dry_run:
                check_rights(manager.scope, place)
                await manager.withdraw(name)
            change: Literal["would_remove", "removed"] = "would_remove" if dry_run else "removed"
            yield ServiceChanged(name=name, scope=manager.scope, change=change, path=str(state.path))
            if state.pid:
                ran = "would stop" if dry_run else "was stopped"
                yield ServiceNote(text=f"The gateway in it {ran}.", advice="Then run: nedura gateway install")
    if not found:
        yield ServiceNote(text="There is no legacy service of this install.")


def _why_not(state: ServiceState, homes: Sequence[Path], product: Product) -> str:
    """Why a unit is not ours to remove; empty when it is."""
    lines = read_unit((state.content or b"").decode("utf-8", "replace")).get("Service.ExecStart", ())
    argv = split_words(lines[-1].lstrip("-@:+!")) if lines else []
    if not classify(argv, product=product).gateway_run:
        return "it does not start this gateway"
    if not any(pinned_here(state, home) for home in homes):
        return f"it belongs to another home ({clean(state.home, 200) or 'unknown'})"
    return ""
