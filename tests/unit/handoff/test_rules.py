"""The hand-off's transition table: every row, and what holds for any sequence of answers."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nedura.signin.handoff_rules import (
    CLOCK_SLACK,
    KEEP_CLOSED,
    LEASE,
    MAX_ATTEMPTS,
    SCHEDULE,
    TRANSITIONS,
    Answer,
    Record,
    Reply,
    State,
    abandon,
    after,
    is_due,
    lease,
    note,
    pruned,
    read_reply,
)

NOW = 1_800_000_000.0
TOKEN = "anon_needle_0123456789"


def fresh(account: str = "u1", now: float = NOW, known: Record | None = None) -> Record | None:
    return note(known, token=TOKEN, portal="https://p.test", guest="g1", account=account, now=now)


def pending(attempts: int = 0) -> Record:
    record = fresh()
    assert record is not None
    return attrs.evolve(record, attempts=attempts)


TRANSIENT: list[object] = [
    None, [], {}, {"error": 5}, {"status": "weird"}, {"error": "not_found"}, {"error": "invalid_token"},
    {"error": "temporarily_unavailable"}, {"error": "temporarily_disabled"}, {"error": "never_seen_before"}, "claimed",
]  # fmt: skip


@pytest.mark.parametrize("body", TRANSIENT)
@pytest.mark.parametrize("attempt", range(1, MAX_ATTEMPTS + 1))
def test_whatever_is_not_final_waits_by_the_schedule_and_ends_after_the_last(
    body: object, attempt: int
) -> None:
    sent = lease(pending(attempt - 1), NOW)
    record = after(sent, read_reply(body), NOW + 1)
    assert record.attempts == attempt
    if attempt == MAX_ATTEMPTS:
        assert (record.state, record.token) == (State.FAILED, None)
    else:
        assert record.state is State.PENDING
        assert record.next_attempt_at == NOW + 1 + SCHEDULE[attempt - 1]


@pytest.mark.parametrize("code", ["client_not_allowed", "account_locked", "invalid_request"])
def test_codes_that_no_later_attempt_can_change_are_final(code: str) -> None:
    assert after(lease(pending(), NOW), read_reply({"error": code}), NOW).state is State.FAILED


@pytest.mark.parametrize(("attempts", "probably"), [(0, False), (1, True), (4, True)])
def test_an_unknown_token_is_gone_and_after_an_earlier_try_probably_moved(
    attempts: int, probably: bool
) -> None:
    record = after(lease(pending(attempts), NOW), read_reply({"error": "unknown_token"}), NOW)
    assert (record.state, record.probably_moved) == (State.GONE, probably)


def test_already_retired_is_gone() -> None:
    record = after(lease(pending(2), NOW), read_reply({"error": "already_retired"}), NOW)
    assert (record.state, record.probably_moved) == (State.GONE, False)


@pytest.mark.parametrize(
    ("body", "moved", "reconnect", "known"),
    [
        ({"status": "claimed"}, (), (), False),
        ({"status": "claimed", "connectors": None}, (), (), False),
        ({"status": "claimed", "connectors": []}, (), (), True),
        (
            {
                "status": "claimed",
                "connectors": [
                    {"connector": "gmail", "outcome": "moved"},
                    {"connector": "x", "outcome": "?"},
                    7,
                    {},
                ],
            },
            ("gmail",),
            ("x",),
            True,
        ),
    ],
)
def test_a_claimed_answer_says_what_moved_or_that_it_is_not_known(
    body: object, moved: tuple[str, ...], reconnect: tuple[str, ...], known: bool
) -> None:
    record = after(lease(pending(), NOW), read_reply(body), NOW)
    assert record.state is State.CLAIMED
    assert (record.moved, record.reconnect, record.connectors_known) == (moved, reconnect, known)


@pytest.mark.parametrize(
    ("asked", "wait"),
    [
        (None, 60.0),
        (5.0, 60.0),
        (120.0, 120.0),
        (1e9, 86400.0),
        (-5.0, 60.0),
        (float("nan"), 60.0),
        (float("inf"), 60.0),
    ],
)
def test_retry_after_stretches_the_schedule_up_to_a_day(asked: float | None, wait: float) -> None:
    record = after(lease(pending(), NOW), read_reply({"error": "busy"}, asked), NOW)
    assert record.next_attempt_at == NOW + wait


def test_a_claimed_record_is_never_opened_again() -> None:
    claimed = after(lease(pending(), NOW), read_reply({"status": "claimed"}), NOW)
    assert fresh(known=claimed) is None
    assert fresh("u2", known=claimed) is None


def test_a_new_sign_in_opens_a_gone_or_failed_record_again() -> None:
    failed = abandon(pending(3), "x", NOW)
    again = fresh("u2", known=failed)
    assert again is not None
    assert (again.state, again.attempts, again.account_sub) == (State.PENDING, 0, "u2")
    assert again.updated_at > failed.updated_at


def test_the_newest_sign_in_decides_until_a_request_left() -> None:
    assert fresh("u1", known=pending()) is None
    moved = fresh("u2", known=pending())
    assert moved is not None
    assert moved.account_sub == "u2"
    assert fresh("u2", known=pending(1)) is None


def test_a_leased_record_is_nobody_elses_and_due_again_after_the_lease() -> None:
    sent = lease(pending(), NOW)
    assert not is_due(sent, NOW)
    assert not is_due(sent, NOW + LEASE - 0.001)
    assert is_due(sent, NOW + LEASE)


def test_a_clock_that_was_set_back_does_not_hold_a_record_for_ever() -> None:
    record = after(lease(pending(3), NOW), read_reply(None), NOW)
    assert not is_due(record, NOW - CLOCK_SLACK)
    assert is_due(record, NOW - CLOCK_SLACK - 1)


def test_every_open_and_the_newest_closed_records_are_kept() -> None:
    closed = [attrs.evolve(abandon(pending(), "", NOW + n), id=str(n)) for n in range(9)]
    kept = pruned([*closed, pending()])
    assert len(kept) == KEEP_CLOSED + 1
    assert {record.id for record in kept if not record.open} == {"4", "5", "6", "7", "8"}


ANSWERS = st.one_of(
    st.sampled_from(
        [*TRANSIENT, {"status": "claimed"}, {"error": "unknown_token"}, {"error": "account_locked"}]
    ),
    st.none(),
)


@given(st.lists(st.tuples(ANSWERS, st.floats(-1e5, 1e6) | st.none(), st.floats(-1e6, 1e6)), max_size=12))
def test_any_sequence_of_answers_and_clock_jumps_ends_within_five_requests(
    steps: list[tuple[object, float | None, float]],
) -> None:
    record, now, requests = pending(), NOW, 0
    for body, asked, jump in steps:
        now += jump
        if not is_due(record, now):
            continue
        before = record
        record = lease(record, now)
        assert record.updated_at > before.updated_at
        if record.open:
            requests += 1
            assert record.attempts == requests
            if body is not None:  # None: the process died, the lease is all there is
                leased = record
                record = after(record, read_reply(body, asked), now)
                assert record.updated_at > leased.updated_at
        assert requests <= MAX_ATTEMPTS
        assert (record.token is None) == (not record.open)
        assert record.next_attempt_at <= now + 86400
    while record.open:  # nobody answers any more: it still ends
        now = max(record.next_attempt_at, now)
        record = lease(record, now)
    assert record.state in (State.CLAIMED, State.GONE, State.FAILED)


def test_the_table_covers_every_answer() -> None:
    assert set(TRANSITIONS) == {(answer, last) for answer in Answer for last in (False, True)}


def test_a_reply_that_is_nothing_is_transient() -> None:
    assert Reply().answer is Answer.TRANSIENT
