"""The recommended model: the choice, and its caches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nedura.http import open_client
from nedura.signin.models import (
    Caches,
    CatalogueRow,
    Recommendation,
    choose_default,
    is_free_account,
    recommended_ids,
    recommended_nous_default_model,
)
from nedura.testing.clock import FakeClock
from nedura.testing.http import PortalTransport
from nedura.testing.portal import Fault, Portal
from tests.unit.signin.tokens import account

PICKS = {
    "paidRecommendedModels": [{"modelName": "p/1"}, {"modelName": "p/2"}],
    "freeRecommendedModels": [{"modelName": "f/1"}],
}
ROWS = (
    CatalogueRow(id="c/paid", price=3), CatalogueRow(id="c/sub", price=1, subscription_billed=True), CatalogueRow(id="c/free"),
)  # fmt: skip


@pytest.mark.parametrize(
    ("account_answer", "free"),
    [
        ({"paid_service_access": {"allowed": False}}, True),
        ({"paid_service_access": {"allowed": True, "paid_access": False}}, False),
        ({"paid_service_access": {"paid_access": False}}, True),
        ({"paid_service_access": {"allowed": None, "paid_access": False}}, True),
        ({"paid_service_access": {"allowed": 0}}, False),
        ({"paid_service_access": {"allowed": "false"}}, False),
        ({"paid_service_access": None}, False),
        ({"error": "x"}, False),
        ({}, False),
    ],
)
def test_free_is_exactly_false(account_answer: dict[str, Any], free: bool) -> None:
    assert is_free_account(account_answer) is free


def test_the_portal_list_of_the_tier_counts() -> None:
    assert choose_default(PICKS, free=False) == "p/1"
    assert choose_default(PICKS, free=True) == "f/1"
    assert choose_default({}, free=True) == ""


def test_curated_rows_come_first_and_the_tier_narrows_them() -> None:
    assert choose_default(PICKS, free=False, catalogue=ROWS) == "c/paid"
    assert choose_default(PICKS, free=True, catalogue=ROWS) == "c/free"
    assert choose_default({}, free=True, catalogue=ROWS[:2]) == "c/sub"
    assert choose_default({}, free=True, catalogue=ROWS[:1]) == ""


def test_the_labelled_default_wins_when_the_tier_admits_it() -> None:
    rows = (*ROWS, CatalogueRow(id="c/silent", price=2, silent_default=True))
    assert choose_default(PICKS, free=False, catalogue=rows) == "c/silent"
    assert choose_default(PICKS, free=True, catalogue=rows) == "c/free"


def test_policy_narrows_before_the_tier_and_is_rescued_when_it_leaves_nothing() -> None:
    assert choose_default(PICKS, free=True, allowed=lambda name: name == "f/1", catalogue=ROWS) == "f/1"
    assert choose_default(PICKS, free=False, allowed=lambda name: False) == "p/1"
    assert choose_default(PICKS, free=True, allowed=lambda name: name == "c/paid", catalogue=ROWS) == ""


@given(
    st.recursive(
        st.one_of(st.none(), st.text(), st.integers(), st.floats()),
        lambda x: st.lists(x) | st.dictionaries(st.sampled_from(["modelName", "x"]), x),
    )
)
def test_arbitrary_lists_make_plain_ids_or_none(value: Any) -> None:
    for name in recommended_ids({"paidRecommendedModels": value}, free=False):
        assert name.isascii()
        assert name.isprintable()
        assert "://" not in name
        assert len(name) <= 100


class Asking:
    """A portal, its clock, and the question."""

    def __init__(self, home: Path) -> None:
        self.home, self.clock = home, FakeClock()
        self.portal = Portal(clock=self.clock)
        self.caches = Caches()

    async def __call__(self, email: str = "alice@example.test", **more: Any) -> Recommendation:
        from nedura.testing.portal.routes_oauth import token_set

        entry = account(portal_base_url="https://portal.example") | token_set(
            self.portal, self.portal.login(email)
        )
        self.entry = more.pop("entry", entry)
        return await recommended_nous_default_model(
            self.home, self.entry, environ={"NEDURA_PORTAL_BASE_URL": "https://portal.example"}, clock=self.clock, caches=self.caches,
            client_factory=lambda trust, **given: open_client(trust, transport=PortalTransport(self.portal), **given), **more,
        )  # fmt: skip

    def asked(self, route: str) -> int:
        return [entry.route for entry in self.portal.log.entries].count(route)


async def test_paid_and_free_accounts(tmp_path: Path) -> None:
    ask = Asking(tmp_path)
    assert await ask() == Recommendation(model="nous/hermes-4-405b", free_tier=False)
    assert await ask("carol@example.test") == Recommendation(model="nous/hermes-4-14b", free_tier=True)
    assert ask.asked("recommended_models") == 1
    assert ask.asked("account") == 2


async def test_the_tier_is_kept_three_minutes_and_the_list_ten(tmp_path: Path) -> None:
    ask = Asking(tmp_path)
    await ask()
    entry = ask.entry
    await ask(entry=entry)
    assert ask.asked("account") == 1
    ask.clock.advance(181)
    await ask(entry=entry)
    assert (ask.asked("account"), ask.asked("recommended_models")) == (2, 1)
    ask.clock.advance(600)
    await ask(entry=entry)
    assert ask.asked("recommended_models") == 2


async def test_another_process_reads_the_list_from_disk(tmp_path: Path) -> None:
    first, second = Asking(tmp_path), Asking(tmp_path)
    await first()
    assert (await second()).model == "nous/hermes-4-405b"
    assert second.asked("recommended_models") == 0
    kept = json.loads((tmp_path / "cache" / "nous_recommended_cache.json").read_text())
    assert set(kept["https://portal.example"]) == {"data", "ts"}


async def test_a_stale_list_serves_only_an_outage_and_stays_stale(tmp_path: Path) -> None:
    first, second = Asking(tmp_path), Asking(tmp_path)
    await first()
    before = (tmp_path / "cache" / "nous_recommended_cache.json").read_bytes()
    second.clock.advance(7200)
    second.portal.plant(Fault(route="recommended_models", status=500, times=2))
    assert (await second()).model == "nous/hermes-4-405b"
    assert (await second()).model == "nous/hermes-4-405b"
    assert second.asked("recommended_models") == 2
    assert (tmp_path / "cache" / "nous_recommended_cache.json").read_bytes() == before


async def test_an_unknown_tier_counts_as_paying_and_is_not_kept(tmp_path: Path) -> None:
    ask = Asking(tmp_path)
    ask.portal.plant(Fault(route="account", status=500))
    assert not (await ask("carol@example.test")).free_tier
    assert (await ask(entry=ask.entry)).free_tier


@pytest.mark.parametrize("body", ["html", "array", "deep", "huge", "gzip_bomb", "empty"])
async def test_a_portal_that_answers_nonsense_makes_an_empty_pick(tmp_path: Path, body: Any) -> None:
    ask = Asking(tmp_path)
    ask.portal.plant(Fault(route="recommended_models", status=200, body=body))
    assert await ask() == Recommendation()


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b'{"https://portal.example": 5}', b'{"https://portal.example": {"ts": "x", "data": 1}}'],
)
async def test_a_cache_that_makes_no_sense_is_asked_again(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "nous_recommended_cache.json").write_bytes(content)
    ask = Asking(tmp_path)
    assert (await ask()).model == "nous/hermes-4-405b"
    assert ask.asked("recommended_models") == 1
