"""The shared store's rules: which identity a root holds, and whose newest tokens lie beside it. No IO (decisions 12, facts/signin.md 7.8).

Only a sign-in changes the held identity. A refresh of another identity is kept under `renewal`, a map from the account's `sub` to its
newest token set, where sibling profiles find their next single-use refresh token.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from nedura.clock import iso
from nedura.signin.identity import Entry, identity_key, is_guest, obtained_at

__all__ = [
    "MAX_RENEWALS",
    "SharedWrite",
    "after_drop",
    "after_sign_out",
    "after_write",
    "held_of",
    "newest_for",
    "renewals_of",
]

MAX_RENEWALS: Final = 64
"""How many other accounts' token sets are kept, newest first."""

_SHARED_FIELDS: Final = (
    "access_token", "refresh_token", "token_type", "scope", "client_id", "portal_base_url", "inference_base_url",
    "obtained_at", "expires_at", "signed_in_at", "auth_method", "account_tier", "anon_token", "user_id", "org_id",
)  # fmt: skip
_OWN_FIELDS: Final = (*_SHARED_FIELDS, "_schema", "updated_at", "renewal")


@attrs.frozen(kw_only=True)
class SharedWrite:
    """What a write does to the shared store.

    Attributes:
        document: the new content; None leaves the file as it is.
        replaced: the identity that the write took out of the held place; None when it was not replaced.
    """

    document: dict[str, Any] | None = attrs.field(default=None, repr=False)
    replaced: Entry | None = attrs.field(default=None, repr=False)


def held_of(document: Entry | None) -> Entry | None:
    """The held identity: a free tier's credential, or an account's access and refresh token; anything else is missing."""
    if not document:
        return None
    if document.get("anon_token") or (document.get("access_token") and document.get("refresh_token")):
        return {name: value for name, value in document.items() if name != "renewal"}
    return None


def renewals_of(document: Entry | None) -> dict[str, Entry]:
    """Token sets kept beside the held identity, by account. A lone token set (one-slot form) is read as a map of one."""
    raw = (document or {}).get("renewal")
    if not isinstance(raw, Mapping):
        return {}
    sets = (
        [raw]
        if isinstance(raw.get("access_token"), str)
        else [v for v in raw.values() if isinstance(v, Mapping)]
    )
    found: dict[str, Entry] = {}
    for entry in sets:
        key = identity_key(entry)
        if key is not None and key[0] == "account":
            found[key[1]] = entry
    return found


def newest_for(document: Entry | None, subject: str) -> Entry | None:
    """The newest token set of an account in the store: the held one or its renewal (row 6)."""
    candidates = [renewals_of(document).get(subject)]
    held = held_of(document)
    if identity_key(held) == ("account", subject):
        candidates.append(held)
    present = [entry for entry in candidates if entry is not None]
    return max(present, key=obtained_at) if present and subject else None


def _body(entry: Entry) -> dict[str, Any]:
    return {name: entry[name] for name in _SHARED_FIELDS if entry.get(name) is not None}


def _compose(
    document: Entry | None, held: Entry | None, renewals: Mapping[str, Entry], now: float
) -> dict[str, Any]:
    foreign = {name: value for name, value in (document or {}).items() if name not in _OWN_FIELDS}
    result: dict[str, Any] = foreign | (_body(held) if held else {})
    newest = sorted(renewals.items(), key=lambda item: obtained_at(item[1]), reverse=True)[:MAX_RENEWALS]
    if newest:
        result["renewal"] = {subject: _body(entry) for subject, entry in newest}
    return result | {"_schema": 1, "updated_at": iso(now)}


def after_write(document: Entry | None, entry: Entry, *, renewal: bool, now: float) -> SharedWrite:
    """Decide a write of `entry` into the store.

    Args:
        document: the store as it is; None when there is none.
        entry: an account or a free-tier identity.
        renewal: False for a sign-in or a mint (row 1), True for a refresh or re-exchange (rows 2 to 5, 7).
        now: unix seconds.
    """
    if not (entry.get("anon_token") or entry.get("refresh_token")):
        return SharedWrite()  # nothing that could be renewed
    held, renewals = held_of(document), renewals_of(document)
    key, held_key = identity_key(entry), identity_key(held)
    same = key is not None and key == held_key
    if not renewal:
        return _sign_in(document, entry, same, held, renewals, now)
    if same:
        if held is not None and obtained_at(held) > obtained_at(entry):
            return SharedWrite()
        return SharedWrite(document=_compose(document, entry, renewals, now))
    if key is None or key[0] == "guest":
        return SharedWrite()  # rows 5 and 7: never replaces anything
    if obtained_at(renewals.get(key[1])) > obtained_at(entry):
        return SharedWrite()
    return SharedWrite(document=_compose(document, held, renewals | {key[1]: entry}, now))


def _sign_in(
    document: Entry | None,
    entry: Entry,
    same: bool,
    held: Entry | None,
    renewals: dict[str, Entry],
    now: float,
) -> SharedWrite:
    kept, held_key, key = dict(renewals), identity_key(held), identity_key(entry)
    if held is not None and not same and held_key is not None and held_key[0] == "account":
        before = kept.get(held_key[1])
        kept[held_key[1]] = max((e for e in (before, held) if e is not None), key=obtained_at)
    if key is not None and not is_guest(entry):
        kept.pop(key[1], None)  # row 9: superseded
    replaced = held if held is not None and not same else None
    return SharedWrite(document=_compose(document, entry, kept, now), replaced=replaced)


def after_drop(document: Entry | None, entry: Entry, now: float) -> SharedWrite:
    """Decide the removal of one identity after a terminal failure or a sign-out: never a sibling's (row 8)."""
    key, held, renewals = identity_key(entry), held_of(document), renewals_of(document)
    token = entry.get("refresh_token")
    if document is None or (key is None and not token):
        return SharedWrite()
    if not (token or entry.get("access_token") or entry.get("anon_token")):
        return SharedWrite()  # a login that ended: what the store holds is a newer one
    kept = {subject: value for subject, value in renewals.items() if ("account", subject) != key}
    held_key = identity_key(held)
    same = (
        key == held_key
        if key is not None
        else held_key is None and (held or {}).get("refresh_token") == token
    )
    if held is not None and same:
        return SharedWrite(document=_compose(document, None, kept, now))
    if len(kept) == len(renewals):
        return SharedWrite()
    return SharedWrite(document=_compose(document, held, kept, now))


def after_sign_out(document: Entry | None, entry: Entry, now: float, *, still_used: bool) -> SharedWrite:
    """Decide a sign-out of one profile.

    The identity is held no longer, so that nobody adopts it. While another profile lives on the same account its newest token set
    stays under `renewal`: without it that profile would redeem a spent token.

    Args:
        document: the store.
        entry: the login that ends.
        now: unix seconds.
        still_used: whether another profile of the root has the same account.
    """
    key = identity_key(entry)
    newest = newest_for(document, key[1]) if key is not None and key[0] == "account" else None
    dropped = after_drop(document, entry, now)
    if not still_used or newest is None or key is None or dropped.document is None:
        return dropped
    kept = renewals_of(dropped.document) | {key[1]: newest}
    return SharedWrite(document=_compose(document, held_of(dropped.document), kept, now))
