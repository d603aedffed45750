"""One attempt a place, and a late cancel that touches nobody else."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nedura.signin.desk import Desk, Ticket


def test_a_newer_start_replaces_the_older_one() -> None:
    desk = Desk()
    first = desk.begin("a")
    second = desk.begin("a")
    assert first is not None
    assert second is not None
    assert (first(), first.replaced, second()) == (True, True, False)
    first.cancel()
    desk.end(first)
    assert not second()
    assert desk.live("a") is second
    assert first.id != second.id


def test_somebody_else_finds_it_busy() -> None:
    desk = Desk()
    first = desk.begin("a")
    assert first is not None
    assert desk.begin("b") is None
    assert not first()
    desk.end(first)
    assert desk.begin("b") is not None


@given(
    st.lists(
        st.tuples(st.sampled_from(["begin", "end", "cancel"]), st.sampled_from("abc"), st.integers(0, 9)),
        max_size=30,
    ),
    st.integers(1, 3),
)
def test_at_most_one_attempt_a_key_runs_and_never_more_than_the_width(
    steps: list[tuple[str, str, int]], width: int
) -> None:
    desk, tickets = Desk(width=width), list[Ticket]()
    for what, key, number in steps:
        if what == "begin":
            ticket = desk.begin(key)
            if ticket is not None:
                tickets.append(ticket)
        elif tickets:
            chosen = tickets[number % len(tickets)]
            others = [t() for t in tickets if t is not chosen]
            desk.end(chosen) if what == "end" else chosen.cancel()
            assert [t() for t in tickets if t is not chosen] == others
        live = [desk.live(key) for key in "abc"]
        assert sum(ticket is not None for ticket in live) <= width
