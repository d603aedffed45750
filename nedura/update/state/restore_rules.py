"""What a restore may take back and what newer live data stays: decided without IO."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any

__all__ = ["count_jobs", "lost_settings", "merge_accounts"]

SETTINGS = ("model.provider", "model.default", "model.base_url", "model.api_key", "moa")
"""Keys that the config net guards (#64160)."""


def _subject(entry: Mapping[str, Any]) -> str:
    """Whose grant an entry is: the token's `sub`, else the free-tier credential; empty when neither can be read."""
    token = entry.get("access_token")
    if isinstance(token, str) and token.count(".") == 2:
        body = token.split(".")[1]
        try:
            claims = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
        except (ValueError, binascii.Error):
            claims = None
        if isinstance(claims, dict) and isinstance(claims.get("sub"), str):
            return f"sub:{claims['sub']}"
    free = entry.get("anon_token")
    return f"free:{free}" if isinstance(free, str) and free else ""


def _newer(live: Mapping[str, Any], saved: Mapping[str, Any]) -> bool:
    """Whether the live grant was obtained later. A spent refresh token must never come back (threats.md 6)."""
    return str(live.get("obtained_at") or "") > str(saved.get("obtained_at") or "")


def merge_accounts(saved: Any, live: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Content of `auth.json` after a restore: the saved one, but newer grants of the same identity stay.

    Args:
        saved: content from the snapshot.
        live: content now, None when there is none that can be read.

    Returns:
        The merged content, and the providers whose live grant stayed.

    Raises:
        ValueError: the saved content is no account store.
    """
    if not isinstance(saved, dict):
        raise ValueError("not an account store")
    merged = dict(saved)
    saved_providers, live_providers = _section(saved, "providers"), _section(live, "providers")
    kept = tuple(
        name
        for name, entry in live_providers.items()
        if isinstance(entry, dict)
        and isinstance(saved_providers.get(name), dict)
        and _subject(entry)
        and _subject(entry) == _subject(saved_providers[name])
        and _newer(entry, saved_providers[name])
    )
    if kept:
        merged["providers"] = {**saved_providers, **{name: live_providers[name] for name in kept}}
        pool, live_pool = _section(saved, "credential_pool"), _section(live, "credential_pool")
        merged["credential_pool"] = {**pool, **{name: live_pool[name] for name in kept if name in live_pool}}
    return merged, kept


def _section(content: Any, name: str) -> dict[str, Any]:
    value = content.get(name) if isinstance(content, dict) else None
    return value if isinstance(value, dict) else {}


def count_jobs(content: Any) -> int | None:
    """Number of cron jobs in `{"jobs": [...]}` or a bare list; None when it is neither (facts/update.md 4.4)."""
    if isinstance(content, dict):
        content = content.get("jobs")
    return len(content) if isinstance(content, list) else None


def _dig(config: Mapping[str, Any], key: str) -> Any:
    node: Any = config
    for part in key.split("."):
        node = node.get(part) if isinstance(node, Mapping) else None
    return node


def lost_settings(saved: Mapping[str, Any], live: Mapping[str, Any]) -> dict[str, Any]:
    """Guarded keys that the snapshot had a value for and that differ now: key -> value to put back."""
    return {
        key: value
        for key in SETTINGS
        if (value := _dig(saved, key)) not in (None, "", {}) and _dig(live, key) != value
    }
