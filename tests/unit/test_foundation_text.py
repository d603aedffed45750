"""Foreign text, spoken waits, secrets."""

from __future__ import annotations

import json
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nedura.text import Secret, clean, clean_block, redact, spoken_wait, utc_text


@given(st.text(max_size=400), st.integers(min_value=2, max_value=300))
def test_cleaned_text_is_one_printable_line_within_its_limit(text: str, limit: int) -> None:
    result = clean(text, limit)
    assert len(result) <= limit
    assert "\n" not in result
    assert "\x1b" not in result
    assert not any(ch in result for ch in "\u202e\u2066\u200b\ufeff\x9b\x07")


@given(st.text(max_size=400))
def test_cleaning_twice_changes_nothing(text: str) -> None:
    assert clean(clean(text)) == clean(text)


@pytest.mark.parametrize(
    ("raw", "right"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07after", "after"),
        ("\x1b]52;c;c2VjcmV0\x1b\\x", "x"),
        ("a\r\nb", "a b"),
        ("abc\u202edef", "abc def"),
        (None, ""),
        ("x" * 300, "x" * 199 + "…"),
    ],
)
def test_hostile_sequences_leave_no_trace(raw: str | None, right: str) -> None:
    assert clean(raw) == right


def test_a_block_keeps_its_lines() -> None:
    assert clean_block("one\r\ntwo\x1b[2J\nthree") == "one\ntwo\nthree"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "a few seconds"),
        (15, "a few seconds"),
        (16, "about a minute"),
        (89, "about a minute"),
        (90, "2 minutes"),
        (3599, "60 minutes"),
        (3600, "about an hour"),
        (7200, "2 hours"),
        (float("inf"), "a few seconds"),
    ],
)
def test_waits_are_spoken(seconds: float, words: str) -> None:
    assert spoken_wait(seconds) == words


def test_a_secret_never_shows_or_travels() -> None:
    secret = Secret("anon_needle")
    assert "needle" not in f"{secret!r}{secret}{secret:>20}"
    with pytest.raises(TypeError):
        json.dumps({"token": secret})
    with pytest.raises(TypeError):
        pickle.dumps(secret)
    assert secret.reveal() == "anon_needle"


@pytest.mark.parametrize(
    "line",
    [
        "--token NEEDLE12345",
        "--api-key=NEEDLE12345",
        "https://user:NEEDLE12345@host/x.git",
        "Authorization: Bearer NEEDLE12345",
        'refresh_token": "NEEDLE12345"',
        "anon_NEEDLE12345",
        "eyJNEEDLE12345.eyJNEEDLE12345.sig",
    ],
)
def test_what_looks_like_a_credential_is_masked(line: str) -> None:
    assert "NEEDLE" not in redact(line)


@pytest.mark.parametrize(
    ("stamp", "text"),
    [
        ("2026-12-01T01:26:40.652285Z", "2026-12-01 01:26:40Z"),
        ("2026-12-01T01:26:40+00:00", "2026-12-01 01:26:40Z"),
        ("2026-12-01T01:26:40", "2026-12-01 01:26:40Z"),
        (None, ""),
        ("", ""),
        ("soon", "soon"),
        (7, "7"),
    ],
)
def test_an_instant_says_that_it_is_utc(stamp: object, text: str) -> None:
    assert utc_text(stamp) == text
