"""When a login is refreshed and what an answer to it means. No IO (facts/signin.md 9, decision 12).

A refresh token works once. Three rules keep it so: the fingerprint of a token is on disk as spent before the token leaves; a token
whose fingerprint is there never leaves again; and "newest" is an order that no wall clock can turn round.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, Final

import attrs

from nedura.clock import iso, parse_iso
from nedura.codes import server_code
from nedura.signin.identity import Entry, identity_key, is_guest, obtained_at
from nedura.signin.tokens import INVOKE_SCOPE, MIN_LIFE, expiry_of, fingerprint, scopes_of, subject_of

__all__ = [
    "ADOPTED_FIELDS",
    "TERMINAL_CODES",
    "Meaning",
    "Need",
    "Plan",
    "RefreshReply",
    "adopted",
    "is_closed",
    "next_step",
    "read_refresh",
    "rotated",
    "seconds_left",
    "stamped",
]

TERMINAL_CODES: Final = frozenset({"invalid_grant", "invalid_token", "refresh_token_reused"})
"""Answers after which only a new sign-in helps (facts/signin.md 1.3)."""

GRACE: Final = 60.0
_LAST_TIME: Final = 250e9  # within the year 9892, near the end of what ISO 8601 can say
SCOPE_RETRY: Final = 900.0
"""A token set that was obtained less than this many seconds ago is not refreshed again for a missing scope."""

ADOPTED_FIELDS: Final = (
    "access_token", "refresh_token", "token_type", "scope", "client_id", "portal_base_url", "inference_base_url",
    "obtained_at", "expires_at", "signed_in_at",
)  # fmt: skip
"""What a profile takes over from a sibling's newer token set."""


class Need(Enum):
    """What has to be done before a token can be used."""

    NOTHING = "nothing"
    ADOPT = "adopt"
    REDEEM = "redeem"
    LOST = "lost"
    """The refresh token was sent and its answer never came."""

    ENDED = "ended"
    NO_ACCOUNT = "no_account"


@attrs.frozen(kw_only=True)
class Plan:
    """The next step for a profile's login.

    Attributes:
        need: what to do.
        entry: the token set that it concerns, the newest that is known.
    """

    need: Need
    entry: Entry | None = attrs.field(default=None, repr=False)


def seconds_left(entry: Entry | None, now: float) -> float:
    """Life of an access token in seconds, by its own claim, else by the stored time; negative when it is over or unknown."""
    access = (entry or {}).get("access_token")
    if not entry or not isinstance(access, str) or not access:
        return -1.0
    expiry = expiry_of(access)
    if expiry is None:
        expiry = parse_iso(str(entry.get("expires_at") or ""))
    return -1.0 if expiry is None else expiry - now


def _good(entry: Entry, now: float, min_life: float) -> bool:
    age = now - obtained_at(entry)
    if 0 <= age < _grace(entry):
        return True  # refreshing again would bring the same: our clock is ahead, or the server grants no more
    if seconds_left(entry, now) <= min_life:
        return False
    return 0 <= age < SCOPE_RETRY or INVOKE_SCOPE in scopes_of(entry.get("access_token"))


def _grace(entry: Entry) -> float:
    """Seconds for which a token set that was just obtained is not questioned: half its life, a minute at most."""
    end = parse_iso(str(entry.get("expires_at") or ""))
    return 0.0 if end is None else min(GRACE, max(0.0, end - obtained_at(entry)) / 2)


def next_step(
    entry: Entry | None,
    newest: Entry | None,
    spent: Iterable[str],
    now: float,
    *,
    force: bool = False,
    rejected: str = "",
    min_life: float = MIN_LIFE,
) -> Plan:
    """Decide for one profile. Asked again under the locks, so that a sibling's rotation is adopted instead of repeated.

    Args:
        entry: the profile's login.
        newest: the newest token set of the same account in the shared store.
        spent: fingerprints of refresh tokens that were sent.
        now: unix seconds.
        force: refresh even when the token is good.
        rejected: the bearer that a server just refused: a different good one is adopted, the same one is refreshed.
        min_life: seconds a token must still live.
    """
    if not entry or is_guest(entry):
        return Plan(need=Need.NO_ACCOUNT)
    sets = [entry]
    if newest is not None and identity_key(newest) == identity_key(entry) is not None:
        sets.append(newest)
    gone = set(spent)

    def redeemable(one: Entry) -> bool:
        return bool(_refresh_of(one)) and fingerprint(_refresh_of(one)) not in gone

    sets.sort(key=obtained_at, reverse=True)
    # A chain that can go on is never given up for a newer one that cannot.
    sets = [one for one in sets if redeemable(one)] or sets
    good = _first_good(sets, now, force=force, rejected=rejected, min_life=min_life)
    if good is not None:
        return Plan(need=Need.NOTHING if _same_tokens(good, entry) else Need.ADOPT, entry=good)
    if redeemable(sets[0]):
        return Plan(need=Need.REDEEM, entry=sets[0])
    if _refresh_of(entry):
        return Plan(
            need=Need.LOST, entry=sets[0]
        )  # it left and nothing came back: this profile must let go of it
    alive = not rejected and any(seconds_left(one, now) > 0 for one in sets)
    return Plan(need=Need.NOTHING if alive else Need.ENDED, entry=sets[0])


def _first_good(
    sets: Iterable[Entry], now: float, *, force: bool, rejected: str, min_life: float
) -> Entry | None:
    """The newest token set that needs no refresh. A forced caller that names its bearer is content with any other good one."""
    if force and not rejected:
        return None
    found = (one for one in sets if one.get("access_token") != rejected and _good(one, now, min_life))
    return next(found, None)


def _refresh_of(entry: Entry) -> str:
    value = entry.get("refresh_token")
    return value if isinstance(value, str) else ""


def _same_tokens(first: Entry, second: Entry) -> bool:
    return all(first.get(name) == second.get(name) for name in ("access_token", "refresh_token"))


def is_closed(entry: Entry | None) -> bool:
    """Whether a login was already ended: its tokens are gone and the cause is noted. Nothing is sent or written for it again (#98338)."""
    return (
        entry is not None
        and not entry.get("access_token")
        and isinstance(entry.get("last_auth_error"), Mapping)
    )


def adopted(entry: Entry, newer: Entry) -> dict[str, Any]:
    """The profile's login with a sibling's token set; everything else of it stays, but not why an earlier one ended."""
    fields = {name: newer[name] for name in ADOPTED_FIELDS if newer.get(name) is not None}
    kept = _without_end(entry)
    return _mirrored({**kept, **({"agent_key": None} if "account_sub" in entry else {}), **fields})


def _without_end(entry: Entry) -> dict[str, Any]:
    return {name: value for name, value in entry.items() if name not in ("account_sub", "last_auth_error")}


def stamped(entry: Entry, *previous: Entry | None) -> dict[str, Any]:
    """The entry with an `obtained_at` later than every earlier set of the same account: newest stays newest when clocks go back."""
    key = identity_key(entry)
    same = [obtained_at(other) for other in previous if other is not None and identity_key(other) == key]
    floor = max(same, default=float("-inf"))
    own = obtained_at(entry)
    if own > floor or not -_LAST_TIME < floor < _LAST_TIME:
        return dict(entry)  # nothing earlier says a sane time, as in old or edited stores
    return {**entry, "obtained_at": iso(floor + 2e-6)}


def _mirrored(entry: dict[str, Any]) -> dict[str, Any]:
    """The agent key is the access token under another name (facts/signin.md 1.8)."""
    if "agent_key" not in entry:
        return entry
    times = {
        f"agent_key_{name}": entry.get(name)
        for name in ("expires_at", "expires_in", "obtained_at")
        if name in entry
    }
    return {**entry, "agent_key": entry.get("access_token"), **times}


class Meaning(Enum):
    """What an answer to a refresh means."""

    ROTATED = "rotated"
    ENDED = "ended"
    LATER = "later"
    LOST = "lost"


@attrs.frozen(kw_only=True)
class RefreshReply:
    """One answer, judged.

    Attributes:
        meaning: what it means for the login.
        code: the server's code, for the log.
        fields: the token answer when it rotated.
        retry_after: seconds the server asked for.
    """

    meaning: Meaning
    code: str = ""
    fields: Mapping[str, Any] = attrs.field(factory=dict, repr=False)
    retry_after: float | None = None


def read_refresh(status: int, body: object, retry_after: float | None = None) -> RefreshReply:
    """Judge a complete answer of the token endpoint.

    A success without a token may have spent ours, so it counts as lost. 429, 5xx and codes we do not know end nothing.
    """
    fields = body if isinstance(body, Mapping) else {}
    if 200 <= status < 300:
        access = fields.get("access_token")
        if isinstance(access, str) and access:
            return RefreshReply(meaning=Meaning.ROTATED, fields=fields)
        return RefreshReply(meaning=Meaning.LOST, code="malformed")
    code = server_code(fields.get("error"))
    text = fields.get("error_description")
    # A server error proves nothing about the login, whatever its body says.
    if 400 <= status < 500 and status not in (408, 429):
        if code in TERMINAL_CODES:
            return RefreshReply(meaning=Meaning.ENDED, code=code)
        if code and isinstance(text, str) and "reuse" in text.lower():
            return RefreshReply(meaning=Meaning.ENDED, code="refresh_token_reused")
    return RefreshReply(meaning=Meaning.LATER, code=code or f"http_{status}", retry_after=retry_after)


def rotated(
    entry: Entry, fields: Mapping[str, Any], times: Mapping[str, Any], inference_url: str
) -> dict[str, Any] | None:
    """The login after a rotation; None when the answer is for another account than the one that asked.

    Args:
        entry: the login whose refresh token was redeemed.
        fields: the token answer.
        times: `identity.token_times` of it.
        inference_url: the checked model address; empty keeps the stored one.
    """
    access = str(fields["access_token"])
    if subject_of(access) != subject_of(entry.get("access_token")):
        return None
    result = {**_without_end(entry), "access_token": access, **times}
    for name in ("refresh_token", "token_type", "scope"):
        if isinstance(fields.get(name), str) and fields[name]:
            result[name] = fields[name]
    if inference_url:
        result["inference_base_url"] = inference_url
    return _mirrored(stamped(result, entry))
