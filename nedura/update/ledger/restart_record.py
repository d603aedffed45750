"""What the restart record says and when it may be forgotten: pure transitions over data (facts/update.md 8.5 B, decision 18).

The record is host-wide per install. A record that is corrupt or of a later version counts as armed: it fails closed.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

import attrs

from nedura.installs import CodeIdentity

__all__ = [
    "VERSION",
    "Live",
    "RestartRecord",
    "armed",
    "covers",
    "decode",
    "encode",
    "joined",
    "restarted",
    "settled",
]

VERSION: Final = 1


@attrs.frozen(kw_only=True)
class RestartRecord:
    """A restart of the fleet that is owed.

    Attributes:
        started: unix seconds of arming.
        pid: who armed it.
        armed_by_profile: from which profile.
        expected: the code that every gateway should run.
        owners: tokens (run ids) that have a stake.
        found: what stood in its place, base64, for undo; None when nothing did.
        inventory: gateways that owe it, `None` when nobody could say; an explicit empty list is never armed (#115311).
        restarted: the expected code's restart that a run has done, so that another profile's update attaches to it.
        readable: False for a record of a later version or with damaged bytes.
        extra: keys of later versions, kept verbatim.
    """

    started: float = 0.0
    pid: int = 0
    armed_by_profile: str = ""
    expected: CodeIdentity = attrs.field(factory=CodeIdentity)
    owners: tuple[str, ...] = ()
    found: str | None = None
    inventory: tuple[Mapping[str, Any], ...] | None = None
    restarted: Mapping[str, Any] | None = None
    readable: bool = True
    extra: Mapping[str, Any] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class Live:
    """A live gateway as far as clearing needs it."""

    profile: str
    state: str


def decode(data: bytes) -> RestartRecord:
    """Read a record; damaged or later ones come back unreadable, which means armed."""
    try:
        value = json.loads(data.decode("utf-8"))
        if not isinstance(value, dict) or value.get("version") != VERSION:
            return RestartRecord(readable=False)
        inventory = value.get("inventory")
        rows = inventory.get("runtimes") if isinstance(inventory, dict) else None
        done = value.get("restarted")
        if not (_are_rows(rows) and (done is None or isinstance(done, dict))):
            return RestartRecord(readable=False)
        known = {field.name for field in attrs.fields(CodeIdentity)}
        expected = value.get("expected") or {"code_sha": value.get("expected_sha", "")}
        return RestartRecord(
            started=float(value["started"]),
            pid=int(value["pid"]),
            armed_by_profile=str(value.get("armed_by_profile", "")),
            expected=CodeIdentity(**{key: str(item) for key, item in expected.items() if key in known}),
            owners=tuple(str(owner) for owner in value.get("owners") or ()),
            found=value.get("found"),
            inventory=tuple(rows) if isinstance(rows, list) else None,
            restarted=done,
            extra={key: item for key, item in value.items() if key not in _KEYS},
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return RestartRecord(readable=False)


def _are_rows(rows: object) -> bool:
    """Whether an inventory can be asked: rows that each name one profile, or none at all."""
    if not isinstance(rows, list):
        return rows is None
    return all(isinstance(row, dict) and isinstance(row.get("profile", ""), str) for row in rows)


_KEYS: Final = frozenset(
    {
        "version", "started", "pid", "armed_by_profile", "expected", "expected_sha", "owners", "found", "inventory",
        "restarted",
    }
)  # fmt: skip


def encode(record: RestartRecord) -> dict[str, Any]:
    """The record as it is written."""
    return {
        **record.extra,
        "version": VERSION,
        "started": record.started,
        "pid": record.pid,
        "armed_by_profile": record.armed_by_profile,
        "expected_sha": record.expected.code_sha,
        "expected": attrs.asdict(record.expected),
        "owners": list(record.owners),
        "found": record.found,
        "inventory": None
        if record.inventory is None
        else {"version": 1, "runtimes": [dict(row) for row in record.inventory]},
        "restarted": None if record.restarted is None else dict(record.restarted),
    }


def armed(
    found: bytes | None,
    *,
    now: float,
    pid: int,
    profile: str,
    expected: CodeIdentity,
    owner: str,
    inventory: Iterable[Mapping[str, Any]] | None,
) -> RestartRecord:
    """The record a run arms before its commit point.

    Args:
        found: bytes in its place, kept for undo.
        now: unix seconds.
        pid: the arming process.
        profile: the invoking profile.
        owner: the arming run's id.
        expected: the code the fleet will owe.
        inventory: gateways known to be live; None when the look failed.
    """
    old = decode(found) if found is not None else None
    rows: tuple[Mapping[str, Any], ...] | None = None if inventory is None else tuple(map(dict, inventory))
    if old is not None and old.readable and old.inventory and rows is not None:
        names = {row.get("profile") for row in rows}
        rows = (
            *rows,
            *(row for row in old.inventory if row.get("profile") not in names),
        )  # still owed from before
    return RestartRecord(
        started=now,
        pid=pid,
        armed_by_profile=profile,
        expected=expected,
        owners=tuple(dict.fromkeys([*(old.owners if old is not None else ()), owner])),
        found=None if found is None else base64.b64encode(found).decode(),
        inventory=rows,
        extra=old.extra if old is not None and old.readable else {},
    )


def joined(record: RestartRecord, owner: str) -> RestartRecord:
    """A second run with a stake in the same restart."""
    return attrs.evolve(record, owners=tuple(dict.fromkeys([*record.owners, owner])))


def restarted(record: RestartRecord, *, pid: int, now: float) -> RestartRecord:
    """The record after a run has restarted the fleet on the expected code."""
    done = {"sha": record.expected.code_sha, "generation": record.expected.generation, "pid": pid, "at": now}
    return attrs.evolve(record, restarted=done)


def with_inventory(record: RestartRecord, owed: Iterable[Mapping[str, Any]]) -> RestartRecord:
    """The record narrowed to what a verification has found still owed."""
    return attrs.evolve(record, inventory=tuple(dict(row) for row in owed))


def covers(record: RestartRecord, live: Iterable[Live], idle: Collection[str] = ()) -> bool:
    """Whether every gateway that owed the restart is live and current, or provably not running."""
    fine = {row.profile for row in live if row.state == "current"} | set(idle)
    return record.inventory is not None and all(row.get("profile") in fine for row in record.inventory)


def settled(
    record: RestartRecord,
    live: Iterable[Live] | None,
    *,
    idle: Collection[str] = (),
    expects_none: bool = False,
) -> bool:
    """Whether positive evidence shows that nothing is owed any more. Doubt keeps the record (#95294).

    Args:
        record: what is owed.
        live: live gateways judged against the code that is current; None when the look failed.
        idle: profiles whose gateway provably does not run: its claim is free and its files do not say it should.
        expects_none: it is proven that no gateway of this install runs or should.
    """
    if live is None or not record.readable:
        return False
    rows = list(live)
    if any(row.state not in ("current", "external") for row in rows):
        return False
    if record.inventory is not None:
        return covers(record, rows, idle)  # an empty look alone proves nothing (facts/update.md 10.4)
    return expects_none if not rows else any(row.state == "current" for row in rows)
