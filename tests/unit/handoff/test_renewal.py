"""When a login is refreshed, adopted, lost or ended."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nedura.clock import iso
from nedura.signin.identity import obtained_at
from nedura.signin.renewal import Meaning, Need, adopted, next_step, read_refresh, rotated, stamped
from nedura.signin.tokens import fingerprint

NOW = 1_800_000_000.0


def jwt(sub: str = "u1", life: float = 900, scope: str = "inference:invoke", n: int = 0) -> str:
    body = json.dumps({"sub": sub, "exp": NOW + life, "scope": scope, "n": n}).encode()
    return "h." + base64.urlsafe_b64encode(body).decode().rstrip("=") + ".s"


def login(
    life: float = 900, age: float = 800, *, refresh: str | None = "R1", sub: str = "u1", **more: Any
) -> dict[str, Any]:
    scope = more.pop("scope", "inference:invoke")
    return {
        "auth_method": "oauth_device_code",
        "access_token": jwt(sub, life, scope, more.pop("n", 0)),
        "refresh_token": refresh,
        "obtained_at": iso(NOW - age),
        "expires_at": iso(NOW + life),
        **more,
    }


def test_a_good_token_needs_nothing() -> None:
    assert next_step(login(), None, (), NOW).need is Need.NOTHING


@pytest.mark.parametrize(
    "entry", [None, {}, {"auth_method": "anonymous", "anon_token": "a", "access_token": jwt(life=-5)}]
)
def test_without_an_account_nothing_is_refreshed(entry: dict[str, Any] | None) -> None:
    assert next_step(entry, None, (), NOW).need is Need.NO_ACCOUNT


@pytest.mark.parametrize("life", [-100.0, 0.0, 119.0])
def test_a_token_that_ends_is_redeemed_once(life: float) -> None:
    entry = login(life)
    assert next_step(entry, None, (), NOW).need is Need.REDEEM
    assert next_step(entry, None, (fingerprint("R1"),), NOW).need is Need.LOST


def test_a_siblings_newer_set_is_adopted_instead() -> None:
    newer = login(age=5, refresh="R2", n=1)
    plan = next_step(login(10), newer, (fingerprint("R1"),), NOW)
    assert (plan.need, plan.entry) == (Need.ADOPT, newer)
    merged = adopted(login(10, label="mine", agent_key="old"), newer)
    assert (merged["refresh_token"], merged["label"], merged["agent_key"]) == (
        "R2",
        "mine",
        newer["access_token"],
    )


def test_a_newer_set_that_ends_too_is_the_one_redeemed() -> None:
    newer = login(10, age=500, refresh="R2", n=1)
    plan = next_step(login(-50), newer, (fingerprint("R1"),), NOW)
    assert plan.need is Need.REDEEM
    assert plan.entry is not None
    assert plan.entry["refresh_token"] == "R2"


def test_a_newer_set_that_cannot_go_on_is_not_adopted_over_a_chain_that_can() -> None:
    newer = login(age=5, refresh="R2", n=1)
    assert next_step(login(), newer, (fingerprint("R2"),), NOW).need is Need.NOTHING
    plan = next_step(login(10), newer, (fingerprint("R2"),), NOW)
    assert (plan.need, (plan.entry or {})["refresh_token"]) == (Need.REDEEM, "R1")
    assert next_step(login(10), newer, (fingerprint("R1"), fingerprint("R2")), NOW).need is Need.ADOPT


def test_another_accounts_set_is_never_adopted() -> None:
    plan = next_step(login(10), login(age=5, refresh="R2", sub="u2"), (), NOW)
    assert plan.entry is not None
    assert (plan.need, plan.entry["refresh_token"]) == (Need.REDEEM, "R1")


def test_a_refused_bearer_adopts_a_different_one_or_is_refreshed() -> None:
    entry = login()
    assert next_step(entry, None, (), NOW, rejected=entry["access_token"]).need is Need.REDEEM
    newer = login(age=5, refresh="R2", n=1)
    assert next_step(entry, newer, (), NOW, rejected=entry["access_token"]).need is Need.ADOPT


def test_force_refreshes_a_good_token_but_only_the_one_it_names() -> None:
    entry = login()
    assert next_step(entry, None, (), NOW, force=True).need is Need.REDEEM
    assert next_step(entry, None, (), NOW, force=True, rejected=entry["access_token"]).need is Need.REDEEM
    assert next_step(entry, None, (), NOW, force=True, rejected="older").need is Need.NOTHING


def test_without_a_refresh_token_the_login_ends_with_its_access_token() -> None:
    assert next_step(login(60, refresh=None), None, (), NOW).need is Need.NOTHING
    assert next_step(login(-1, refresh=None), None, (), NOW).need is Need.ENDED


def test_a_clock_that_runs_ahead_does_not_refresh_in_circles() -> None:
    entry = login(-3600, age=1, expires_at=iso(NOW + 899))
    assert next_step(entry, None, (), NOW).need is Need.NOTHING
    assert next_step(entry, None, (), NOW + 61).need is Need.REDEEM


def test_a_scope_that_the_server_does_not_grant_is_not_asked_for_in_circles() -> None:
    assert next_step(login(scope="other", age=5000), None, (), NOW).need is Need.REDEEM
    assert next_step(login(scope="other", age=100), None, (), NOW).need is Need.NOTHING


@pytest.mark.parametrize(
    ("status", "body", "meaning"),
    [
        (200, {"access_token": "x"}, Meaning.ROTATED),
        (200, {}, Meaning.LOST),
        (200, None, Meaning.LOST),
        (200, {"access_token": 5}, Meaning.LOST),
        (400, {"error": "invalid_grant"}, Meaning.ENDED),
        (401, {"error": "invalid_token"}, Meaning.ENDED),
        (400, {"error": "refresh_token_reused"}, Meaning.ENDED),
        (400, {"error": "odd", "error_description": "token Reuse detected"}, Meaning.ENDED),
        (400, {"error": "temporarily_unavailable"}, Meaning.LATER),
        (401, None, Meaning.LATER),
        (403, "<html>", Meaning.LATER),
        (429, {"error": "invalid_grant"}, Meaning.LATER),
        (500, {"error": "invalid_grant"}, Meaning.LATER),
        (503, None, Meaning.LATER),
        (400, ["invalid_grant"], Meaning.LATER),
    ],
)
def test_only_terminal_codes_end_a_login(status: int, body: object, meaning: Meaning) -> None:
    assert read_refresh(status, body).meaning is meaning


def test_an_answer_for_another_account_is_not_taken() -> None:
    assert rotated(login(), {"access_token": jwt("u2")}, {}, "") is None


def test_a_rotation_keeps_the_old_refresh_token_when_none_comes() -> None:
    times = {"obtained_at": iso(NOW), "expires_at": iso(NOW + 900), "expires_in": 900}
    fresh = rotated(login(agent_key="old"), {"access_token": jwt(n=1), "refresh_token": ""}, times, "")
    assert fresh is not None
    assert (fresh["refresh_token"], fresh["agent_key"]) == ("R1", fresh["access_token"])


@given(st.lists(st.floats(-1e7, 1e7), min_size=1, max_size=20))
def test_newest_stays_newest_whatever_the_clock_does(jumps: list[float]) -> None:
    entry, now = login(), NOW
    for jump in jumps:
        now += jump
        fresh = stamped({**entry, "obtained_at": iso(now)}, entry)
        assert obtained_at(fresh) > obtained_at(entry)
        entry = fresh


def test_old_stores_that_do_not_say_when_a_set_was_obtained_are_stamped_too() -> None:
    silent = {name: value for name, value in login().items() if name != "obtained_at"}
    assert stamped(silent, silent, None) == silent
    assert obtained_at(stamped(silent, login())) > obtained_at(login())
    absurd = {**login(), "obtained_at": "9999-12-31T23:59:59.999999Z"}
    assert stamped(login(), absurd) == login()
    assert next_step(silent, None, (), NOW).need is Need.NOTHING
    assert next_step({**silent, "access_token": jwt(life=-5)}, None, (), NOW).need is Need.REDEEM
