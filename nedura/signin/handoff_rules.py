"""What becomes of a hand-off record: states, answers, and the transition table. No IO (facts/signin.md 7.3 to 7.5, decision 11)."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, Final

import attrs

from nedura.text import Secret, clean

__all__ = [
    "CLOCK_SLACK",
    "KEEP_CLOSED",
    "LEASE",
    "MAX_ATTEMPTS",
    "MAX_WAIT",
    "SCHEDULE",
    "TRANSITIONS",
    "Answer",
    "Record",
    "Reply",
    "State",
    "abandon",
    "advanced",
    "after",
    "is_due",
    "lease",
    "note",
    "prolonged",
    "pruned",
    "read_reply",
    "record_id",
    "renewed",
    "returned",
    "settle",
]

SCHEDULE: Final = (60.0, 600.0, 3600.0, 21600.0)
"""Seconds to wait after attempts 1 to 4; the fifth attempt is the last."""

MAX_ATTEMPTS: Final = len(SCHEDULE) + 1
LEASE: Final = 30.0
"""Seconds for which a sent record is nobody else's."""

MAX_WAIT: Final = 24 * 3600.0
"""Longest Retry-After that is believed."""

CLOCK_SLACK: Final = 60.0
"""A wall clock this far before the moment a record was scheduled was set back; the schedule then says nothing."""

KEEP_CLOSED: Final = 5
MAX_APPS: Final = 200
"""Apps of one answer that are kept."""


class State(Enum):
    """A record's state; all but PENDING are terminal."""

    PENDING = "pending"
    CLAIMED = "claimed"
    GONE = "gone"
    FAILED = "failed"


class Answer(Enum):
    """What an answer to a claim means. The server's JSON code decides, never the HTTP number."""

    CLAIMED = "claimed"
    UNKNOWN_TOKEN = "unknown_token"
    ALREADY_RETIRED = "already_retired"
    REFUSED = "refused"
    TRANSIENT = "transient"


@attrs.frozen(kw_only=True)
class Reply:
    """One answer, or the lack of one.

    Attributes:
        answer: its meaning.
        code: the server's own code, for the log only.
        moved, reconnect: app slugs.
        connectors_known: the answer said what happened to the apps.
        cohort_carried: the account changed and its token must be renewed.
        retry_after: seconds the server asked for.
    """

    answer: Answer = Answer.TRANSIENT
    code: str = ""
    moved: tuple[str, ...] = ()
    reconnect: tuple[str, ...] = ()
    connectors_known: bool = False
    cohort_carried: bool = False
    retry_after: float | None = None


@attrs.frozen(kw_only=True)
class Record:
    """One free-tier identity that an account replaced. Times are unix seconds.

    Attributes:
        id: hash of its credential, the record's name.
        token: the credential itself; None once the record is closed.
        portal_base_url: the portal that issued it, the only place it is ever sent to.
        account_sub: the account that replaced it, the only one that may receive its apps.
        attempts: requests counted so far; one is counted before it leaves.
        next_attempt_at: not due before this; a lease while a request is under way.
        scheduled_at: wall clock at which `next_attempt_at` was set.
        updated_at: strictly increasing with each write.
        probably_moved: an earlier answer was lost, so "unknown" most likely means "done".
        renewal_owed: the account's token must still be renewed, because the account changed (`cohort_carried`).
        extra: keys of another version, kept.
    """

    id: str
    token: Secret | None = None
    portal_base_url: str = ""
    guest_user_id: str = ""
    account_sub: str = ""
    state: State = State.PENDING
    attempts: int = 0
    next_attempt_at: float = 0.0
    scheduled_at: float = 0.0
    created_at: float = 0.0
    updated_at: float = 0.0
    moved: tuple[str, ...] = ()
    reconnect: tuple[str, ...] = ()
    connectors_known: bool = False
    probably_moved: bool = False
    cohort_carried: bool = False
    renewal_owed: bool = False
    last_code: str = ""
    extra: Mapping[str, Any] = attrs.field(factory=dict, repr=False)

    @property
    def open(self) -> bool:
        """Whether it still has to be sent."""
        return self.state is State.PENDING


_CODES: Final[Mapping[str, Answer]] = {
    "claimed": Answer.CLAIMED,
    "unknown_token": Answer.UNKNOWN_TOKEN,
    "already_retired": Answer.ALREADY_RETIRED,
    "client_not_allowed": Answer.REFUSED,
    "account_locked": Answer.REFUSED,
    "invalid_request": Answer.REFUSED,
}
"""The codes that end a record; every other one, known or not, is tried again."""

TRANSITIONS: Final[Mapping[tuple[Answer, bool], State]] = {
    (Answer.CLAIMED, False): State.CLAIMED,
    (Answer.CLAIMED, True): State.CLAIMED,
    (Answer.UNKNOWN_TOKEN, False): State.GONE,
    (Answer.UNKNOWN_TOKEN, True): State.GONE,
    (Answer.ALREADY_RETIRED, False): State.GONE,
    (Answer.ALREADY_RETIRED, True): State.GONE,
    (Answer.REFUSED, False): State.FAILED,
    (Answer.REFUSED, True): State.FAILED,
    (Answer.TRANSIENT, False): State.PENDING,
    (Answer.TRANSIENT, True): State.FAILED,
}
"""(answer, was it the last attempt) -> state."""


def record_id(token: str) -> str:
    """A record's name: derived from the credential, so that both write seams name the same one."""
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()[:24]


def note(
    known: Record | None, *, token: str, portal: str, guest: str, account: str, now: float
) -> Record | None:
    """The pending record for a replacement; None when the one that is known stays as it is.

    A claimed record is never opened again. An open one keeps its account once a request has left for it; before that the newest
    sign-in decides. A gone or failed one is opened again: this is a new sign-in over the same identity.
    """
    if known is not None and known.state is State.CLAIMED:
        return None
    if known is not None and known.open and (known.attempts > 0 or known.account_sub == account):
        return None
    return Record(
        id=record_id(token),
        token=Secret(token),
        portal_base_url=portal,
        guest_user_id=guest,
        account_sub=account,
        next_attempt_at=now,
        scheduled_at=now,
        created_at=known.created_at if known else now,
        updated_at=_later(known, now),
        extra=known.extra if known else {},
    )


def is_due(record: Record, now: float) -> bool:
    """Whether a record may be sent now. A wall clock that was set back must not hold it for ever."""
    if not record.open:
        return False
    return now >= record.next_attempt_at or now < record.scheduled_at - CLOCK_SLACK


def lease(record: Record, now: float) -> Record:
    """Count the attempt that is about to leave and keep everybody else away; a record without attempts left is failed."""
    if record.attempts >= MAX_ATTEMPTS:
        return _closed(record, State.FAILED, now)
    return attrs.evolve(
        record,
        attempts=record.attempts + 1,
        next_attempt_at=now + LEASE,
        scheduled_at=now,
        updated_at=_later(record, now),
    )


def prolonged(records: Iterable[Record], leased: Record, now: float) -> Record:
    """A lease that waited for its request, from now on; what somebody else changed meanwhile stays as it is."""
    current = _current(records, leased)
    if not _untouched(current, leased):
        return current
    return attrs.evolve(
        current, next_attempt_at=now + LEASE, scheduled_at=now, updated_at=_later(current, now)
    )


def returned(records: Iterable[Record], leased: Record, before: Record, now: float) -> Record:
    """The record after a lease whose request never left: not counted, due as it was."""
    current = _current(records, leased)
    if not _untouched(current, leased):
        return current
    return attrs.evolve(
        current,
        attempts=before.attempts,
        next_attempt_at=before.next_attempt_at,
        scheduled_at=before.scheduled_at,
        updated_at=_later(current, now),
    )


def after(record: Record, reply: Reply, now: float) -> Record:
    """Apply the answer to the attempt that `lease` counted."""
    state = TRANSITIONS[reply.answer, record.attempts >= MAX_ATTEMPTS]
    record = attrs.evolve(record, last_code=reply.code)
    if state is State.PENDING:
        wait = max(SCHEDULE[record.attempts - 1], _believed(reply.retry_after))
        return attrs.evolve(
            record, next_attempt_at=now + wait, scheduled_at=now, updated_at=_later(record, now)
        )
    if state is State.CLAIMED:
        record = attrs.evolve(
            record,
            moved=reply.moved,
            reconnect=reply.reconnect,
            connectors_known=reply.connectors_known,
            cohort_carried=reply.cohort_carried,
            renewal_owed=reply.cohort_carried,
        )
    probably = reply.answer is Answer.UNKNOWN_TOKEN and record.attempts > 1
    return _closed(attrs.evolve(record, probably_moved=probably), state, now)


def settle(records: Iterable[Record], sent: Record, reply: Reply, now: float) -> Record:
    """The record after its answer, or as it is now when somebody else changed it meanwhile: a late answer decides nothing."""
    current = _current(records, sent)
    return after(current, reply, now) if _untouched(current, sent) else current


def _current(records: Iterable[Record], sent: Record) -> Record:
    return next((record for record in records if record.id == sent.id), sent)


def _untouched(current: Record, sent: Record) -> bool:
    """Whether a record is still the one that was leased; one that the lease itself closed has no answer to wait for."""
    return current.open and current.attempts == sent.attempts


def renewed(record: Record, now: float) -> Record:
    """The record once the account's token was renewed; unchanged when nothing was owed."""
    if not record.renewal_owed:
        return record
    return attrs.evolve(record, renewal_owed=False, updated_at=_later(record, now))


def advanced(before: Iterable[Record], after: Iterable[Record]) -> tuple[Record, ...]:
    """The records after a change, each changed one later than all that were there: a clock that was set back makes no record old."""
    known = {record.id: record for record in before}
    top = max((record.updated_at for record in known.values()), default=float("-inf"))
    result = []
    for record in after:
        if known.get(record.id) != record:
            if record.updated_at <= top:
                record = attrs.evolve(record, updated_at=top + 2e-6)
            top = record.updated_at
        result.append(record)
    return tuple(result)


def abandon(record: Record, code: str, now: float) -> Record:
    """Close a record that may never be sent: another account took the place of the one it names."""
    return _closed(attrs.evolve(record, last_code=code), State.FAILED, now)


def read_reply(body: object, retry_after: float | None = None) -> Reply:
    """Read a claim's JSON answer; anything that makes no sense is transient.

    Args:
        body: decoded JSON, None when there was none.
        retry_after: seconds from the answer's header.
    """
    if not isinstance(body, Mapping):
        return Reply(code="malformed", retry_after=retry_after)
    code = next((body[name] for name in ("error", "status") if isinstance(body.get(name), str)), "")
    answer = _CODES.get(code, Answer.TRANSIENT)
    if answer is not Answer.CLAIMED:
        return Reply(answer=answer, code=clean(code, 60) or "malformed", retry_after=retry_after)
    rows = body.get("connectors")
    known = isinstance(rows, list)
    listed = rows[:MAX_APPS] if isinstance(rows, list) else []
    pairs = [pair for row in listed if (pair := _connector(row)) is not None]
    return Reply(
        answer=answer,
        code="claimed",
        moved=tuple(name for name, moved in pairs if moved),
        reconnect=tuple(name for name, moved in pairs if not moved),
        connectors_known=known,
        cohort_carried=body.get("cohort_carried") is True,
    )


def _connector(row: object) -> tuple[str, bool] | None:
    """(slug, did it move) of one row; an outcome we do not know means: have the user look at it."""
    if isinstance(row, str):
        return (clean(row, 60), True) if clean(row, 60) else None
    if not isinstance(row, Mapping):
        return None
    slug = clean(row.get("connector"), 60)
    return (slug, row.get("outcome") == "moved") if slug else None


def pruned(records: Iterable[Record]) -> tuple[Record, ...]:
    """Every open record and the newest closed ones, oldest change first."""
    rows = sorted(records, key=lambda row: (row.updated_at, row.id))
    closed = [row for row in rows if not row.open]
    dropped = {row.id for row in closed[: max(0, len(closed) - KEEP_CLOSED)]}
    return tuple(row for row in rows if row.id not in dropped)


def _closed(record: Record, state: State, now: float) -> Record:
    return attrs.evolve(
        record, state=state, token=None, next_attempt_at=0.0, scheduled_at=now, updated_at=_later(record, now)
    )


def _later(record: Record | None, now: float) -> float:
    """A moment later than the record's last change by at least a microsecond, whatever the clock says."""
    return now if record is None else max(now, record.updated_at + 2e-6)


def _believed(retry_after: float | None) -> float:
    if retry_after is None or not math.isfinite(retry_after):
        return 0.0
    return min(max(retry_after, 0.0), MAX_WAIT)
