"""The restart record: armed with what is owed, cleared only by positive proof, fails closed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nedura.installs import CodeIdentity
from nedura.update.ledger.restart_record import (
    Live,
    RestartRecord,
    armed,
    covers,
    decode,
    encode,
    joined,
    restarted,
    settled,
)

NEW = CodeIdentity(install_id="0123456789ab", generation="000002", code_sha="b" * 40)


def arm(
    found: bytes | None = None, inventory: list[dict[str, Any]] | None = None, owner: str = "run-1"
) -> RestartRecord:
    return armed(found, now=5.0, pid=1, profile="default", expected=NEW, owner=owner, inventory=inventory)


def bytes_of(record: RestartRecord) -> bytes:
    return json.dumps(encode(record)).encode()


def test_round_trip_keeps_keys_of_later_versions() -> None:
    data = json.dumps({**encode(arm(inventory=[{"profile": "a"}])), "later": {"x": 1}}).encode()
    record = decode(data)
    assert record.extra == {"later": {"x": 1}}
    assert encode(record)["later"] == {"x": 1}
    assert record.expected == NEW
    assert record.inventory == ({"profile": "a"},)


@given(st.binary(max_size=200))
def test_any_bytes_decode_and_nonsense_is_armed(data: bytes) -> None:
    record = decode(data)
    assert not record.readable
    assert not settled(record, [Live(profile="a", state="current")])


@pytest.mark.parametrize("value", [{"version": 2, "started": 1, "pid": 1}, {"version": 1}, [], "x", None])
def test_a_later_or_torn_record_counts_as_armed(value: object) -> None:
    assert not decode(json.dumps(value).encode()).readable


def test_arming_over_an_old_record_keeps_what_was_owed_and_its_owners() -> None:
    first = arm(inventory=[{"profile": "a"}, {"profile": "b"}])
    second = arm(bytes_of(first), inventory=[{"profile": "a", "pid": 3}], owner="run-2")
    assert second.owners == ("run-1", "run-2")
    assert [row["profile"] for row in second.inventory or ()] == ["a", "b"]
    assert second.found is not None


@pytest.mark.parametrize(
    ("live", "owed", "expects_none", "done"),
    [
        ([("a", "current")], ["a"], False, True),
        ([("a", "current"), ("b", "current")], ["a"], False, True),
        ([("a", "stale")], ["a"], False, False),
        ([("b", "current")], ["a"], False, False),  # a is not there: no proof
        ([], ["a"], False, False),  # an empty look proves nothing
        ([], ["a"], True, False),  # what was recorded is judged by itself
        ([], None, True, True),  # provably no gateway should run
        ([], None, False, False),
        ([("a", "current")], None, False, True),
        ([("a", "unknown")], None, False, False),
        ([("a", "external")], None, False, False),
        (None, ["a"], True, False),  # discovery failed
    ],
)
def test_only_positive_evidence_settles(
    live: list[tuple[str, str]] | None, owed: list[str] | None, expects_none: bool, done: bool
) -> None:
    rows = None if live is None else [Live(profile=name, state=state) for name, state in live]
    record = arm(inventory=None if owed is None else [{"profile": name} for name in owed])
    assert settled(record, rows, expects_none=expects_none) is done


def test_a_gateway_that_provably_does_not_run_owes_nothing() -> None:
    record = arm(inventory=[{"profile": "a"}, {"profile": "b"}])
    assert settled(record, [Live(profile="a", state="current")], idle={"b"})
    assert settled(record, [], idle={"a", "b"})
    assert not settled(record, [], idle={"a"})
    assert not settled(record, [Live(profile="a", state="stale")], idle={"a", "b"})


names = st.sampled_from("abcd")


@given(
    st.lists(names, min_size=1),
    st.dictionaries(names, st.sampled_from(["current", "stale", "down", "unknown"])),
)
def test_settled_means_every_owed_gateway_is_current(owed: list[str], live: dict[str, str]) -> None:
    record = arm(inventory=[{"profile": name} for name in owed])
    rows = [Live(profile=name, state=state) for name, state in live.items()]
    if settled(record, rows):
        assert all(live.get(name) == "current" for name in owed)
        assert covers(record, rows)


def test_another_run_joins_and_the_restart_is_noted_for_it() -> None:
    record = restarted(joined(arm(), "run-2"), pid=9, now=7.0)
    assert record.owners == ("run-1", "run-2")
    assert record.restarted == {"sha": "b" * 40, "generation": "000002", "pid": 9, "at": 7.0}
