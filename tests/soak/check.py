"""The invariants, from two looks at the disk and what the portal saw in between. No IO."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import attrs

from nedura.clock import parse_iso
from nedura.testing.portal import Family, Guest, LogEntry, Portal
from tests.soak.disk import Login, Seen, fingerprint
from tests.soak.plan import PROFILES, Op, Step

REFRESHING: Final = ("refresh", "tick", "drain", "sign_in")
SAVING: Final = ("sign_in", "mint")
FOLLOWING: Final = ("adopt", "import")
"""What takes the root's identity into a profile."""

DAY: Final = 86400.0


def record_id(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()[:24]


@attrs.define(kw_only=True)
class Ledger:
    """What has been true so far.

    Attributes:
        portal: the portal, for what it saw.
        attempts: guest record id -> attempts ever counted on disk.
        heirs: guest credential -> accounts whose sign-in replaced it.
        subs: e-mail -> `sub`.
    """

    portal: Portal
    attempts: dict[str, int] = attrs.field(factory=dict)
    heirs: dict[str, set[str]] = attrs.field(factory=dict)

    def live(self, sub: str) -> list[Family]:
        """Chains of an account that the portal still honours."""
        now = self.portal.now()
        return [
            f
            for f in self.portal.store.families
            if f.account.sub == sub and not f.revoked and now < f.expires
        ]

    def well(self, profile: str, sub: str, seen: Seen) -> bool:
        """Whether a profile can still renew its login: a live refresh token is in its store or where siblings look."""
        return bool({family.current for family in self.live(sub)} & seen.reachable(profile, sub))


@attrs.frozen(kw_only=True)
class Result:
    """How one process ended: done, error, crash or killed; `target` is who a sign-in or mint was for."""

    op: Op
    outcome: Mapping[str, str]
    target: tuple[str, str] = ("none", "")

    @property
    def done(self) -> bool:
        return "done" in self.outcome


def expect_heirs(ledger: Ledger, before: Seen, results: Sequence[Result]) -> None:
    """Note which accounts may receive which free tier's apps because of a step."""
    targets = [before.held.who, *(result.target for result in results if result.op.name in SAVING)]
    for result in results:
        if result.op.name not in ("sign_in", *FOLLOWING):
            continue
        accounts = [result.target] if result.op.name == "sign_in" else targets
        guests = {before.logins[result.op.profile].who, before.logins[""].who, *targets}
        for kind, token in guests:
            if kind == "guest":
                ledger.heirs.setdefault(token, set()).update(
                    name for what, name in accounts if what == "account"
                )


def violations(
    ledger: Ledger, step: Step, before: Seen, after: Seen, results: Sequence[Result], log: Sequence[LogEntry]
) -> list[str]:
    """Everything that must not be after a step."""
    found = list(after.broken)
    found += [
        f"{result.op.name}: {result.outcome['crash']}" for result in results if "crash" in result.outcome
    ]
    if ledger.portal.store.reuse:
        found.append("a refresh token was used twice")
    excused = _excused(step, results, log)
    for profile in PROFILES:
        found += _identity(ledger, profile, before, after, results, excused)
    found += _held(before, after, results)
    found += _accounts(ledger, before, after, results, excused)
    found += _apps(ledger.portal.store.guests, ledger.heirs)
    found += _records(ledger, before, after)
    return found


def _excused(step: Step, results: Sequence[Result], log: Iterable[LogEntry]) -> bool:
    """Whether an answer to a refresh can have been lost in this step: then its account may need a new sign-in."""
    lost = any(
        entry.route == "token.refresh"
        and (entry.status == 0 or "commit" in entry.fault or entry.fault == "200+commit")
        for entry in log
    )
    return lost or (step.kill is not None and any(not result.done for result in results))


def _identity(
    ledger: Ledger, profile: str, before: Seen, after: Seen, results: Sequence[Result], excused: bool
) -> list[str]:
    was, now = before.logins[profile], after.logins[profile]
    allowed = {was.who}
    must: tuple[str, str] | None = None
    for result in results:
        if result.op.profile == profile:
            allowed |= _results_of(result, before, results)
            must = (
                result.target if result.op.name == "sign_in" and result.done and len(results) == 1 else None
            )
    if was.kind == "account" and (excused or not ledger.well(profile, was.name, before)):
        allowed.add(("dead", was.name))
    if was.kind == "dead" and was.name:
        allowed.add(
            ("account", was.name)
        )  # a sign-in of the same account elsewhere heals it, and no other one
    if must is not None and now.who != must:
        return [f"profile {profile or 'default'} is {now.kind} after a sign-in that was saved"]
    if now.who not in allowed:
        return [
            f"profile {profile or 'default'} went from {was.kind} {was.name[:14]} to {now.kind} {now.name[:14]}"
        ]
    return []


def _results_of(result: Result, before: Seen, results: Sequence[Result]) -> set[tuple[str, str]]:
    saved = {other.target for other in results if other.op.name in SAVING}
    match result.op.name:
        case "sign_in" | "mint":
            return {result.target}
        case "sign_out":
            return {("none", "")}
        case "adopt" | "import":
            return {before.held.who, *saved}
        case _:
            return set()


def _held(before: Seen, after: Seen, results: Sequence[Result]) -> list[str]:
    allowed = {before.held.who, *(result.target for result in results if result.op.name in SAVING)}
    gone = after.held.who == Login().who
    if gone or after.held.who in allowed:
        return []
    return [f"the root's identity went from {before.held.kind} to {after.held.kind} without a sign-in"]


def _accounts(
    ledger: Ledger, before: Seen, after: Seen, results: Sequence[Result], excused: bool
) -> list[str]:
    """No account is lost: who was signed in and is not the target of the step can still renew afterwards."""
    touched = {
        result.op.profile
        for result in results
        if result.op.name in ("sign_in", "mint", "sign_out", *FOLLOWING)
    }
    found = []
    for profile in PROFILES:
        login = before.logins[profile]
        if login.kind != "account" or excused or profile in touched:
            continue
        if ledger.well(profile, login.name, before) and not ledger.well(profile, login.name, after):
            found.append(f"profile {profile or 'default'} can no longer renew the login of {login.name}")
    saved = [result for result in results if result.op.name == "sign_in" and result.done]
    if (
        len(results) == 1
        and saved
        and not excused
        and not ledger.well(saved[0].op.profile, saved[0].target[1], after)
    ):
        found.append(f"the saved sign-in of {saved[0].target[1]} is not on the disk")
    return found


def _apps(guests: Iterable[Guest], heirs: Mapping[str, set[str]]) -> list[str]:
    return [
        f"the apps of {guest.user_id} went to {guest.claimed_by}"
        for guest in guests
        if guest.status == "claimed" and guest.claimed_by not in heirs.get(guest.token, set())
    ]


def _records(ledger: Ledger, before: Seen, after: Seen) -> list[str]:
    found = []
    for key, record in after.records.items():
        old = before.records.get(key)
        attempts = int(record["attempts"])
        counted = attempts if old is None or _reopened(old, record) else attempts - int(old["attempts"])
        ledger.attempts[key[1]] = ledger.attempts.get(key[1], 0) + counted
        found += _record(record)
    sent: dict[str, int] = {}
    for entry in ledger.portal.log.on("anon.claim"):
        mark = entry.carried.get("token", "")
        sent[mark] = sent.get(mark, 0) + 1
    for guest in ledger.portal.store.guests:
        if sent.get(fingerprint(guest.token), 0) > ledger.attempts.get(record_id(guest.token), 0):
            found.append(f"a hand-off of {guest.user_id} left without being counted")
    return found


def _reopened(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    closed = old["state"] != "pending"
    return int(new["attempts"]) < int(old["attempts"]) or (closed and new["updated_at"] != old["updated_at"])


def _record(record: Mapping[str, Any]) -> list[str]:
    name = str(record["id"])[:8]
    if record["state"] != "pending":
        return [f"record {name} is closed and keeps its credential"] if record["token"] else []
    found = [f"record {name} was tried {record['attempts']} times"] if int(record["attempts"]) > 5 else []
    due, since = parse_iso(record["next_attempt_at"]) or 0, parse_iso(record["scheduled_at"]) or 0
    if not 0 <= due - since <= DAY:
        found.append(f"record {name} waits {due - since:.0f} s")
    return found


def unfinished(ledger: Ledger, seen: Seen) -> list[str]:
    """Records that must have ended by now: their account is signed in and well, and their schedule is over."""
    found = []
    for (profile, name), record in seen.records.items():
        owner = (
            "" if seen.logins[profile].kind == "none" else profile
        )  # a profile without an own login reads the root's
        login = seen.logins[owner]
        if record["state"] == "pending" and login.kind == "account" and ledger.well(owner, login.name, seen):
            found.append(f"record {name[:8]} of profile {profile or 'default'} never ended")
    return found
