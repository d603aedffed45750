"""Claims of tokens from outside."""

from __future__ import annotations

import base64
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nedura.signin.tokens import claims_of, email_of, expiry_of, fingerprint, is_usable, scopes_of, subject_of
from tests.unit.signin.tokens import NOW, jwt


def test_a_good_token_says_who_and_until_when() -> None:
    token = jwt("acct:7", life=600)
    assert subject_of(token) == "acct:7"
    assert email_of(token) == "ada@example.test"
    assert expiry_of(token) == NOW + 600
    assert is_usable(token, NOW)


@pytest.mark.parametrize(
    ("life", "usable"), [(600, True), (121, True), (120, False), (0, False), (-1, False)]
)
def test_a_token_needs_two_minutes_of_life(life: float, usable: bool) -> None:
    assert is_usable(jwt(life=life), NOW) is usable


@pytest.mark.parametrize(
    ("claims", "usable"),
    [
        ({"scope": "a inference:invoke b"}, True),
        ({"scope": "a,inference:invoke"}, True),
        ({"scope": ["inference:invoke"]}, True),
        ({"scope": "connectors:invoke"}, False),
        ({"scope": ""}, False),
        ({"scope": None}, False),
        ({"scope": 5}, False),
    ],
)
def test_a_token_needs_the_invoke_scope(claims: dict[str, Any], usable: bool) -> None:
    assert is_usable(jwt(**claims), NOW) is usable


def test_scopes_may_be_called_scp() -> None:
    body = base64.urlsafe_b64encode(json.dumps({"scp": ["a", 1, "b"]}).encode()).decode()
    assert scopes_of(f"x.{body}.y") == {"a", "b"}


@pytest.mark.parametrize(
    "email",
    ["a@b", "no", "", "x@y.z\n", "a@b.c/https://evil", "@everyone@a.b c", "<b>@a.b", "a" * 300 + "@b.c", 5, None,
     "ev\u202eil@a.b", "[x](http://y)@a.b"],
)  # fmt: skip
def test_what_is_no_plain_address_is_not_shown(email: object) -> None:
    assert email_of(jwt(email=email)) == ""


@pytest.mark.parametrize("sub", ["", None, 7, "x" * 300, "a\nb", "a\x1b[31mb", ["x"]])
def test_what_is_no_plain_subject_identifies_nobody(sub: Any) -> None:
    assert subject_of(jwt(sub)) == ""


@pytest.mark.parametrize("exp", [True, "1", None, math.inf, math.nan, -5, 0, 1e15, [1]])
def test_an_absurd_expiry_is_none(exp: Any) -> None:
    assert expiry_of(jwt(exp=exp)) is None


@given(st.one_of(st.text(max_size=200), st.none(), st.integers(), st.binary(max_size=40)))
def test_arbitrary_values_never_raise(value: object) -> None:
    assert claims_of(value) == {} or isinstance(value, str)
    assert not is_usable(value, NOW)


def test_deep_json_is_no_token() -> None:
    body = base64.urlsafe_b64encode(b"[" * 30_000).decode()
    assert claims_of(f"x.{body}.y") == {}


def test_a_fingerprint_shows_nothing() -> None:
    assert len(fingerprint("secret")) == 12
    assert "secret" not in fingerprint("secret")
