"""The content of an auth.json: shape, migration of the older one, and the changes made to it. No IO (facts/signin.md 2.1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from nedura.clock import iso
from nedura.errors import RecordCorrupt
from nedura.signin.identity import Entry, is_guest

__all__ = [
    "POOL_SOURCE",
    "PROVIDER",
    "check_document",
    "differs",
    "empty_document",
    "entry_of",
    "with_entry",
    "without_entry",
]

PROVIDER: Final = "nous"
POOL_SOURCE: Final = "device_code"
_COUNTDOWNS: Final = ("expires_in", "agent_key_expires_in")


def empty_document() -> dict[str, Any]:
    """A store without any login."""
    return {
        "version": 1,
        "providers": {},
        "active_provider": None,
        "credential_pool": {},
        "suppressed_sources": {},
    }


def check_document(value: object, what: str) -> dict[str, Any]:
    """Take decoded JSON as a store, moving the older `systems.nous_portal` to its place.

    Raises:
        RecordCorrupt: it has another shape; nobody may then take it for an empty one.
    """
    if not isinstance(value, dict):
        raise RecordCorrupt(f"{what} is not a store of accounts.")
    document = dict(value)
    for name in ("providers", "credential_pool"):
        if not isinstance(document.get(name, {}), dict):
            raise RecordCorrupt(f"{what} is not a store of accounts.")
    providers = dict(document.get("providers", {}))
    if not isinstance(providers.get(PROVIDER, {}), dict | None):
        raise RecordCorrupt(f"{what} is not a store of accounts.")
    systems = document.get("systems")
    if (
        PROVIDER not in providers
        and isinstance(systems, dict)
        and isinstance(systems.get("nous_portal"), dict)
    ):
        providers[PROVIDER] = systems["nous_portal"]
        rest = {name: item for name, item in systems.items() if name != "nous_portal"}
        document.pop("systems")
        if rest:
            document["systems"] = rest
    document["providers"] = providers
    return document


def entry_of(document: Entry) -> Entry | None:
    """The Nous entry of a store, None when there is none."""
    found = document.get("providers", {}).get(PROVIDER)
    return found if isinstance(found, Mapping) and found else None


def differs(before: Entry | None, after: Entry) -> bool:
    """Whether a write is worth it: a change of the two countdown fields alone is not."""

    def still(entry: Entry | None) -> dict[str, Any]:
        return {name: value for name, value in (entry or {}).items() if name not in _COUNTDOWNS}

    return before is None or still(before) != still(after)


def _pool_row(entry: Entry, label: str, priority: int | None) -> dict[str, Any]:
    names = (
        "access_token",
        "refresh_token",
        "obtained_at",
        "expires_at",
        "portal_base_url",
        "inference_base_url",
    )
    row: dict[str, Any] = {"id": f"{PROVIDER}-{POOL_SOURCE}", "source": POOL_SOURCE, "auth_type": "oauth"}
    row |= {name: entry[name] for name in names if entry.get(name) is not None}
    return row | ({"label": label} if label else {}) | ({} if priority is None else {"priority": priority})


def _pool(document: Entry, entry: Entry | None, label: str, priority: int | None) -> dict[str, Any]:
    """The pool with our derived row renewed; rows of other sources stay."""
    pool = dict(document.get("credential_pool", {}))
    rows = pool.get(PROVIDER)
    rows = rows if isinstance(rows, list) else []
    ours = [row for row in rows if isinstance(row, dict) and row.get("source") == POOL_SOURCE]
    kept = [row for row in rows if row not in ours]
    if entry is not None and not is_guest(entry) and entry.get("access_token"):
        before = ours[0] if ours else {}
        label = label or str(before.get("label") or "")
        priority = before.get("priority") if priority is None else priority
        kept.append(_pool_row(entry, label, priority))
    if kept:
        pool[PROVIDER] = kept
    else:
        pool.pop(PROVIDER, None)
    return pool


def with_entry(
    document: Entry, entry: Entry, now: float, *, activate: bool, label: str = "", priority: int | None = None
) -> dict[str, Any]:
    """The store with a new Nous entry and its pool row; every key that we do not know stays.

    Args:
        document: the store.
        entry: account or free-tier identity.
        now: unix seconds.
        activate: make it the active provider.
        label: name of the login, shown in lists.
        priority: order among several logins.
    """
    stored = dict(entry) | ({"label": label} if label else {})
    result = {
        **document,
        "updated_at": iso(now),
        "providers": {**document.get("providers", {}), PROVIDER: stored},
        "credential_pool": _pool(document, entry, label, priority),
    }
    if activate:
        result["active_provider"] = PROVIDER
    return result


def without_entry(document: Entry, now: float) -> dict[str, Any]:
    """The store after a sign-out."""
    providers = {name: value for name, value in document.get("providers", {}).items() if name != PROVIDER}
    active = document.get("active_provider")
    return {
        **document,
        "updated_at": iso(now),
        "providers": providers,
        "active_provider": None if active == PROVIDER else active,
        "credential_pool": _pool(document, None, "", None),
    }
