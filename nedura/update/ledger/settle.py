"""Asking the live fleet whether a recorded restart is still owed; positive proof clears it (facts/update.md 8.5 B)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from nedura.fleet import judge
from nedura.fleet.matrix import comes_back
from nedura.installs import CodeIdentity
from nedura.product import Product
from nedura.update.fleet_parts import FleetParts
from nedura.update.fleet_real import RealFleet
from nedura.update.ledger import restart_record
from nedura.update.ledger.obligations import RestartObligation
from nedura.update.ledger.restart_record import Live

__all__ = ["settle_from_fleet", "stale_members"]


async def settle_from_fleet(
    debt: RestartObligation,
    *,
    root_home: Path,
    install_id: str,
    expected: CodeIdentity,
    product: Product,
    environ: Mapping[str, str],
    fleet: FleetParts | None = None,
) -> tuple[str, ...] | None:
    """Judge what is owed by who lives now, and forget it where that is proven.

    Args:
        debt: the restart record.
        root_home: root home of the install.
        install_id: its id.
        expected: the code that is current.
        product: names.
        environ: the environment.
        fleet: seam.

    Returns:
        None when nothing is owed (any more), else the profiles that owe it; empty when nobody can say which.

    Raises:
        StoreError: the record cannot be removed.
    """
    record = debt.read()
    if record is None:
        return None
    fleet = fleet or RealFleet(root_home=root_home, install_id=install_id, product=product, environ=environ)
    found = await fleet.collect()
    returning = [one for one in found.gone if comes_back(one)]
    rows = [row for row in judge(expected, found, before=returning) if row.kind == "gateway"]
    live = [Live(profile=row.profile, state=row.state) for row in rows]
    asked = [str(row.get("profile", "")) for row in record.inventory or ()]
    seen = {row.profile for row in rows}
    idle = await fleet.idle([name for name in asked if name not in seen])
    nobody = not found.gateways and not returning
    if record.readable and restart_record.settled(record, live, idle=idle, expects_none=nobody):
        debt.clear(record)  # an update that armed it anew while we looked keeps what it armed
        return None
    stale = {row.profile for row in rows if row.state not in ("current", "external")}
    missing = {name for name in asked if name not in seen and name not in idle}
    return tuple(sorted(stale | missing))


async def stale_members(
    *,
    root_home: Path,
    install_id: str,
    expected: CodeIdentity,
    product: Product,
    environ: Mapping[str, str],
    fleet: FleetParts | None = None,
) -> tuple[str, ...]:
    """Profiles whose live gateway provably runs other code than is current, whether or not a restart is on record.

    Args:
        root_home: root home of the install.
        install_id: its id.
        expected: the code that is current.
        product: names.
        environ: the environment.
        fleet: seam.
    """
    fleet = fleet or RealFleet(root_home=root_home, install_id=install_id, product=product, environ=environ)
    rows = judge(expected, await fleet.collect())
    return tuple(sorted(row.profile for row in rows if row.kind == "gateway" and row.state == "stale"))
