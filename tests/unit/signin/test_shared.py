"""The renewal rules of the shared store, row by row (facts/signin.md 7.8, decision 12)."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from nedura.signin.identity import identity_key
from nedura.signin.shared import after_drop, after_write, held_of, newest_for, renewals_of
from tests.unit.signin.tokens import NOW, account, guest


def holding(entry: dict[str, Any], **renewal: dict[str, Any]) -> dict[str, Any]:
    document = after_write(None, entry, renewal=False, now=NOW).document
    assert document is not None
    return document | ({"renewal": renewal} if renewal else {})


def test_row_1_a_sign_in_takes_the_place_and_names_what_it_replaced() -> None:
    write = after_write(holding(guest()), account("x"), renewal=False, now=NOW)
    assert identity_key(held_of(write.document)) == ("account", "x")
    assert write.document is not None
    assert "anon_token" not in write.document
    assert identity_key(write.replaced) == ("guest", guest()["anon_token"])


def test_row_1_an_account_that_gives_way_keeps_its_tokens_for_siblings() -> None:
    write = after_write(holding(account("y", refresh="ry")), account("x"), renewal=False, now=NOW)
    assert renewals_of(write.document)["y"]["refresh_token"] == "ry"
    assert identity_key(write.replaced) == ("account", "y")


def test_row_1_signing_in_again_replaces_nothing() -> None:
    write = after_write(holding(account("x")), account("x", refresh="r2", at=NOW + 1), renewal=False, now=NOW)
    assert write.replaced is None
    assert held_of(write.document)["refresh_token"] == "r2"  # type: ignore[index]


def test_row_2_a_refresh_of_the_held_account_overwrites_its_tokens() -> None:
    write = after_write(holding(account("x")), account("x", refresh="r2", at=NOW + 1), renewal=True, now=NOW)
    assert held_of(write.document)["refresh_token"] == "r2"  # type: ignore[index]


def test_row_2_an_older_refresh_never_overwrites_a_newer_one() -> None:
    assert (
        after_write(holding(account("x", at=NOW + 9)), account("x", at=NOW), renewal=True, now=NOW).document
        is None
    )


def test_row_3_a_refresh_never_replaces_a_free_tier() -> None:
    write = after_write(holding(guest()), account("x", refresh="r2"), renewal=True, now=NOW)
    assert identity_key(held_of(write.document)) == ("guest", guest()["anon_token"])
    assert renewals_of(write.document)["x"]["refresh_token"] == "r2"
    assert write.replaced is None


def test_row_4_a_refresh_never_replaces_another_account() -> None:
    write = after_write(holding(account("y")), account("x", refresh="r2"), renewal=True, now=NOW)
    assert identity_key(held_of(write.document)) == ("account", "y")
    assert renewals_of(write.document)["x"]["refresh_token"] == "r2"


def test_row_5_a_free_tier_exchange_never_replaces_an_account() -> None:
    assert after_write(holding(account("x")), guest(), renewal=True, now=NOW).document is None
    assert after_write(holding(guest("anon_other1")), guest(), renewal=True, now=NOW).document is None


def test_row_6_the_newest_of_held_and_renewal_is_read() -> None:
    older, newer = account("x", refresh="old"), account("x", refresh="new", at=NOW + 5)
    assert newest_for(holding(older, x=newer), "x")["refresh_token"] == "new"  # type: ignore[index]
    assert newest_for(holding(newer, x=older), "x")["refresh_token"] == "new"  # type: ignore[index]
    assert newest_for(holding(account("y"), x=older), "x")["refresh_token"] == "old"  # type: ignore[index]
    assert newest_for(holding(account("y")), "x") is None
    assert newest_for(holding(account(None)), "") is None


def test_row_7_a_token_without_subject_replaces_nothing() -> None:
    assert after_write(holding(account("x")), account(None), renewal=True, now=NOW).document is None
    assert after_write(holding(account(None)), account(None), renewal=True, now=NOW).document is None


def test_row_8_a_dead_account_takes_only_itself_away() -> None:
    dropped = after_drop(holding(account("x"), y=account("y")), account("x"), NOW).document
    assert held_of(dropped) is None
    assert "y" in renewals_of(dropped)
    other = after_drop(holding(account("y"), x=account("x")), account("x"), NOW).document
    assert identity_key(held_of(other)) == ("account", "y")
    assert renewals_of(other) == {}
    assert after_drop(holding(account("y")), account("x"), NOW).document is None


def test_row_8_a_token_without_subject_is_known_by_its_refresh_token() -> None:
    assert (
        held_of(after_drop(holding(account(None, refresh="r")), account(None, refresh="r"), NOW).document)
        is None
    )
    assert after_drop(holding(account(None, refresh="r")), account(None, refresh="q"), NOW).document is None


def test_row_9_a_sign_in_drops_its_own_renewal() -> None:
    write = after_write(holding(account("y"), x=account("x")), account("x"), renewal=False, now=NOW)
    assert "x" not in renewals_of(write.document)


def test_an_empty_store_is_filled_by_a_sign_in_only() -> None:
    assert held_of(after_write(None, account("x"), renewal=False, now=NOW).document) is not None
    write = after_write(None, account("x"), renewal=True, now=NOW)
    assert held_of(write.document) is None
    assert "x" in renewals_of(write.document)


def test_what_cannot_be_renewed_is_not_shared() -> None:
    assert after_write(None, account("x", refresh=""), renewal=False, now=NOW).document is None


def test_unknown_keys_and_a_one_slot_renewal_survive() -> None:
    document = holding(account("y")) | {"future": {"a": 1}, "renewal": account("x", refresh="slot")}
    write = after_write(document, account("z"), renewal=True, now=NOW)
    assert write.document is not None
    assert write.document["future"] == {"a": 1}
    assert renewals_of(write.document)["x"]["refresh_token"] == "slot"


def test_nothing_private_to_a_profile_is_shared() -> None:
    entry = account("x", agent_key="k", tls={"insecure": True}, label="l")
    assert not {"agent_key", "tls", "label"} & set(holding(entry))
    assert not {"idle_ttl_days", "connectors_token"} & set(holding(guest() | {"connectors_token": {"a": 1}}))


_entries = st.one_of(
    st.builds(
        lambda sub, at, refresh: account(sub, at=NOW + at, refresh=f"r{refresh}"),
        st.sampled_from(["a", "b", "c", None]),
        st.integers(0, 5),
        st.integers(0, 9),
    ),
    st.builds(guest, st.sampled_from(["anon_aaaaaa", "anon_bbbbbb"])),
)


@given(st.lists(st.tuples(_entries, st.booleans()), max_size=8))
def test_only_a_sign_in_ever_changes_who_is_held(writes: list[tuple[dict[str, Any], bool]]) -> None:
    document: dict[str, Any] | None = None
    for entry, renewal in writes:
        before = identity_key(held_of(document))
        write = after_write(document, entry, renewal=renewal, now=NOW)
        document = document if write.document is None else write.document
        after = identity_key(held_of(document))
        if renewal:
            assert after == before
            assert write.replaced is None
        else:
            assert after == identity_key(entry)
        for subject, kept in renewals_of(document).items():
            assert identity_key(kept) == ("account", subject)
