"""Lines for people: no server code, no credential, no link, no forbidden word."""

from __future__ import annotations

import itertools
import json

import attrs
import pytest

from nedura.signin.handoff_copy import app_title, public_view, result_lines
from nedura.signin.handoff_rules import Record, State
from nedura.text import Secret

HOSTILE = ("https://evil.test/x", "evil.com", "\x1b]8;;http://e\x07x", "@everyone", "<b>", "../..", "a" * 300)


@pytest.mark.parametrize(
    ("slug", "title"),
    [
        ("gmail", "Gmail"), ("googlecalendar", "Google Calendar"), ("stripe_mcp", "Stripe"), ("my-own_app", "My Own App"),
        ("GITHUB", "GitHub"), ("https://evil.test", "Https Evil Test"), ("///", "An app"),
    ],
)  # fmt: skip
def test_apps_are_shown_by_name(slug: str, title: str) -> None:
    assert app_title(slug) == title


def records() -> list[Record]:
    base = Record(
        id="r",
        token=Secret("anon_needle"),
        account_sub="sub-needle",
        last_code="code_needle",
        portal_base_url="https://needle.test",
    )
    return [
        attrs.evolve(base, state=state, attempts=attempts, connectors_known=known, probably_moved=probably, moved=apps, reconnect=apps)
        for state, attempts, known, probably, apps in itertools.product(State, (0, 3), (False, True), (False, True), ((), HOSTILE))
    ]  # fmt: skip


@pytest.mark.parametrize("record", records(), ids=repr)
def test_lines_hold_nothing_that_must_not_be_shown(record: Record) -> None:
    text = " ".join(result_lines(record)).lower()
    for word in (
        "guest",
        "anonymous",
        "claim",
        "needle",
        "http:",
        "https:",
        "://",
        "nedura",
        ".com",
        "@",
        "<",
        "\x1b",
        "404",
    ):
        assert word not in text, text
    shown = json.dumps(public_view(record))
    assert "needle" not in shown


def test_an_answer_without_connectors_never_reads_as_nothing_moved() -> None:
    unknown = Record(id="r", state=State.CLAIMED)
    assert "should be there" in result_lines(unknown)[0]
    assert result_lines(attrs.evolve(unknown, connectors_known=True)) == ()


def test_what_moved_and_what_to_reconnect_is_named() -> None:
    record = Record(
        id="r",
        state=State.CLAIMED,
        connectors_known=True,
        moved=("gmail", "notion", "x"),
        reconnect=("jira",),
    )
    assert result_lines(record) == (
        "These connected apps came along: Gmail, Notion and X.",
        "Please reconnect: Jira.",
    )
