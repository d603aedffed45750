"""What a stored entry is, and when two are the same."""

from __future__ import annotations

import math
from typing import Any

import pytest

from nedura.clock import parse_iso
from nedura.signin.identity import (
    Kind,
    account_entry,
    identity_key,
    kind_of,
    obtained_at,
    quarantined,
    token_times,
)
from tests.unit.signin.tokens import NOW, account, guest, jwt


@pytest.mark.parametrize(
    ("entry", "kind"),
    [
        (None, Kind.NONE),
        ({}, Kind.NONE),
        ({"portal_base_url": "https://portal.nousresearch.com"}, Kind.NONE),
        (guest(), Kind.GUEST),
        ({"auth_method": "anonymous"}, Kind.NONE),
        (account(), Kind.ACCOUNT),
        (account(refresh=""), Kind.ACCOUNT),
        (account(refresh="", at=NOW - 9999), Kind.DEAD),
        ({"refresh_token": "x"}, Kind.ACCOUNT),
        ({"access_token": 5, "refresh_token": None}, Kind.NONE),
        ({"last_auth_error": {"relogin_required": True}}, Kind.DEAD),
        (quarantined(account(), code="invalid_grant", message="", reason="", now=NOW), Kind.DEAD),
    ],
)
def test_kinds(entry: Any, kind: Kind) -> None:
    assert kind_of(entry, NOW) is kind


def test_identities_compare_by_credential_or_subject() -> None:
    assert identity_key(account("a")) == identity_key(account("a", refresh="other"))
    assert identity_key(account("a")) != identity_key(account("b"))
    assert identity_key(guest("anon_x")) == ("guest", "anon_x")
    assert identity_key(account(None)) is None
    assert identity_key(None) is None


def test_a_quarantined_account_holds_no_token() -> None:
    entry = account_entry(
        {"access_token": jwt(), "refresh_token": "rt"},
        portal_url="p", inference_url="i", client_id="c", scope="s", tls={}, now=NOW,
    )  # fmt: skip
    dead = quarantined(entry, code="invalid_grant", message="m", reason="refresh", now=NOW)
    assert jwt() not in str(dead)
    assert "rt" not in dead.values()
    assert dead["last_auth_error"]["relogin_required"] is True
    assert dead["portal_base_url"] == "p"


@pytest.mark.parametrize(
    ("expires_in", "seconds"),
    [
        (900, 900),
        (900.7, 900),
        (0, 3600),
        (-5, 3600),
        (1e12, 3600),
        (math.nan, 3600),
        ("900", 3600),
        (True, 3600),
    ],
)
def test_a_lifetime_is_sane(expires_in: object, seconds: int) -> None:
    times = token_times("no-jwt", expires_in, NOW)
    assert times["expires_in"] == seconds
    assert parse_iso(times["expires_at"]) == pytest.approx(NOW + seconds, abs=1)


def test_a_missing_lifetime_is_the_tokens_own() -> None:
    assert token_times(jwt(life=777), None, NOW)["expires_in"] == 777


def test_an_unknown_age_is_the_oldest() -> None:
    assert obtained_at({}) == obtained_at(None) == -math.inf
    assert obtained_at({"obtained_at": "rubbish"}) == -math.inf
    assert obtained_at(account()) == NOW
