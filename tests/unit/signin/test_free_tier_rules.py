"""The refusal table, the memo ladder and the browser check of the free tier."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nedura.signin.free_tier_rules import (
    FINAL_CODES,
    Memo,
    after_failure,
    may_try,
    read_challenge,
    refusal_code,
)
from nedura.signin.states import Failed
from nedura.urls import Origin

PORTAL = Origin("https", "portal.example", 443)
TABLE = [
    (404, "unknown_token", "anon_credential_dead"), (404, "not_found", "anon_gate_closed"), (404, "", "anon_gate_closed"),
    (401, "invalid_shared_secret", "anon_gate_closed"), (401, "invalid_token", "anon_credential_dead"),
    (403, "account_locked", "anon_account_locked"), (403, "anonymous_accounts_disabled", "anon_gate_paused"),
    (403, "circuit_open", "anon_gate_paused"), (403, "signin_required", "anon_signin_required"),
    (403, "access_denied", "anon_signin_required"), (428, "challenge_required", "anon_challenge_required"),
    (428, "pow_required", "anon_pow_required"), (428, "pow_invalid", "anon_pow_required"),
    (428, "pow_replayed", "anon_pow_required"), (428, "else", "anon_signin_required"),
    (429, "temporarily_unavailable", "anon_rate_limited"), (429, "", "anon_rate_limited"),
    (503, "temporarily_disabled", "anon_gate_paused"), (503, "", "anon_server_error"), (500, "", "anon_server_error"),
    (403, "", "anon_server_error"), (200, "", "anon_server_error"),
]  # fmt: skip


@pytest.mark.parametrize(("status", "error", "code"), TABLE)
def test_the_refusal_table(status: int, error: str, code: str) -> None:
    assert refusal_code(status, error) == code


@pytest.mark.parametrize("code", sorted({row[2] for row in TABLE}))
def test_every_code_has_words(code: str) -> None:
    assert Failed(reason=code).copy != Failed(reason="").copy


def test_the_ladder_of_waits() -> None:
    memo: Memo | None = None
    waits = []
    for _ in range(5):
        memo = after_failure(memo, "anon_unreachable", None, 100.0)
        waits.append(memo.until - 100)
    assert waits == [15, 60, 300, 300, 300]


def test_a_named_wait_is_obeyed_and_a_pause_is_a_minute_at_least() -> None:
    assert after_failure(None, "anon_rate_limited", 7.0, 0.0).until == 7
    assert after_failure(None, "anon_gate_paused", 7.0, 0.0).until == 60
    assert after_failure(None, "anon_gate_paused", 700.0, 0.0).until == 700


@pytest.mark.parametrize("code", sorted(FINAL_CODES))
def test_a_final_code_ends_it_for_this_process(code: str) -> None:
    assert not may_try(after_failure(None, code, None, 0.0), 1e12, background=False)


def test_a_background_caller_gives_up_after_three_retries() -> None:
    memo: Memo | None = None
    tried = 0
    for step in range(10):
        if may_try(memo, step * 1000.0, background=True):
            tried += 1
            memo = after_failure(memo, "anon_unreachable", None, step * 1000.0)
    assert tried == 4
    assert may_try(memo, 1e6, background=False)


@pytest.mark.parametrize(
    "row",
    [{"type": "browser", "url": "https://evil.example/x"}, {"type": "browser", "url": "http://portal.example/x"},
     {"type": "browser", "url": "https://portal.example:444/x"}, {"type": "browser", "url": 5}, {"type": "pow"}, "x", None,
     {"type": "browser", "url": "https://portal.example/\x1b"}, {"type": "browser", "url": "javascript:x"}],
)  # fmt: skip
def test_a_check_elsewhere_is_none(row: Any) -> None:
    assert read_challenge({"challenges": [row]}, PORTAL) is None


@given(
    st.dictionaries(
        st.sampled_from(["expires_in", "interval", "required"]),
        st.one_of(st.none(), st.integers(), st.floats(), st.text()),
    )
)
def test_numbers_of_a_check_are_clamped(more: dict[str, Any]) -> None:
    row = {"type": "browser", "url": "https://portal.example/check", **more}
    challenge = read_challenge({"challenges": [row], "message": "a\x1b[31mb" * 200}, PORTAL)
    assert challenge is not None
    assert 30 <= challenge.expires_in <= 900
    assert 1 <= challenge.interval <= 5
    assert not math.isnan(challenge.interval)
    assert len(challenge.message) <= 300
    assert "\x1b" not in challenge.message


@pytest.mark.parametrize("fields", [{}, {"challenges": None}, {"challenges": {}}, {"challenges": []}])
def test_no_check_is_none(fields: dict[str, Any]) -> None:
    assert read_challenge(fields, PORTAL) is None
