"""The receipt as a fold: pure, total, the same for every split of the stream."""

from __future__ import annotations

from functools import reduce
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nedura.update.events import (
    EVENTS,
    FollowUp,
    Skipped,
    StageFinished,
    StageStarted,
    StepDone,
    UpdateFinished,
    UpdateStarted,
    UserAction,
)
from nedura.update.kinds import known_kinds
from nedura.update.ledger.receipt import KEPT_FOREIGN, apply, is_finished, newer_of, opened, owed_steps
from nedura.wire import Event, ForeignEvent, from_wire, to_wire

AT = "2026-01-01T00:00:00Z"


def record(event: Event) -> dict[str, Any]:
    return {**to_wire(event), "at": AT}


def fold(*records: dict[str, Any]) -> dict[str, Any]:
    return reduce(apply, records, opened())


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=4,
)
kinds = st.sampled_from(sorted(known_kinds())) | st.text(max_size=20)
records = st.builds(
    lambda kind, fields: {**fields, "kind": kind, "at": AT},
    kinds,
    st.dictionaries(st.text(max_size=12), json_values, max_size=6),
)


@settings(max_examples=40)
@given(st.lists(records, max_size=8))
def test_no_record_breaks_the_fold_or_changes_its_input(stream: list[dict[str, Any]]) -> None:
    before = opened()
    after = reduce(apply, stream, before)
    assert before == opened()
    assert after["seq"] <= len(stream)
    assert isinstance(after["stages"], list)


@settings(max_examples=40)
@given(st.lists(records, max_size=8), st.integers(0, 8))
def test_two_writers_that_share_a_stream_agree(stream: list[dict[str, Any]], cut: int) -> None:
    """The child resumes the parent's receipt; both halves end with the same one."""
    middle = reduce(apply, stream[:cut], opened())
    assert reduce(apply, stream[cut:], middle) == reduce(apply, stream, opened())


def test_unknown_kinds_are_kept_verbatim_and_bounded() -> None:
    strange = {"kind": "from_the_future", "at": AT, "x": {"y": [1, 2]}}
    receipt = fold(strange)
    assert receipt["foreign"] == [strange]
    many = fold(*[strange] * (KEPT_FOREIGN + 5))
    assert len(many["foreign"]) == KEPT_FOREIGN
    assert many["foreign_dropped"] == 5


def test_success_with_something_for_the_user_is_partial_and_exit_1() -> None:
    receipt = fold(
        record(UserAction(step="local_changes", reason="conflict")),
        record(UpdateFinished(run_id="r", outcome="success", exit_code=0, finished_at=AT)),
    )
    assert (receipt["outcome"], receipt["exit_code"]) == ("partial", 1)


def test_follow_ups_name_each_step_once_and_keep_the_newest_reason_of_a_pair() -> None:
    receipt = fold(
        record(FollowUp(step="build", reason="a")),
        record(FollowUp(step="build", reason="a")),
        record(FollowUp(step="launchers", reason="b\n  c " + "x" * 900)),
    )
    assert owed_steps(receipt) == ["build", "launchers"]
    assert len(receipt["followups"]) == 2
    assert len(receipt["followups"][1]["reason"]) <= 500
    assert "\n" not in receipt["followups"][1]["reason"]


def test_the_open_stage_is_named_while_it_runs() -> None:
    receipt = fold(record(StageStarted(stage="prepare")))
    assert receipt["stage"] == "prepare"
    receipt = apply(
        receipt, record(StageFinished(stage="prepare", outcome="failed", reason="no disk", facts={"n": 1}))
    )
    assert receipt["stages"] == [
        {"n": 1, "name": "prepare", "outcome": "failed", "at": AT, "seconds": 0.0, "reason": "no disk"}
    ]


def test_a_clean_stop_text_is_not_an_unfinished_run() -> None:
    """C101: only the outcome field decides."""
    assert is_finished({"outcome": "success", "finished_at": AT, "stop_reason": "drained"})
    assert not is_finished({"outcome": "running", "finished_at": None, "stop_reason": ""})
    assert not is_finished({"outcome": "from_the_future", "finished_at": AT})


def test_the_state_that_saw_more_wins_and_another_runs_never() -> None:
    mine = {**opened(), "update_id": "a", "seq": 3}
    assert newer_of(mine, {**mine, "seq": 5})["seq"] == 5
    assert newer_of(mine, {**mine, "seq": 2})["seq"] == 3
    assert newer_of(mine, {**mine, "update_id": "b", "seq": 9}) is mine
    assert newer_of(mine, None) is mine


def test_a_started_event_opens_every_field() -> None:
    receipt = fold(record(UpdateStarted(run_id="r1", started_at=AT, pid=7, argv=("nedura", "update"))))
    assert (receipt["update_id"], receipt["outcome"], receipt["pid"]) == ("r1", "running", 7)
    assert receipt["argv"] == ["nedura", "update"]


@pytest.mark.parametrize("kind", sorted(known_kinds()))
def test_every_kind_has_its_own_class(kind: str) -> None:
    assert known_kinds()[kind].kind == kind


def test_kinds_of_this_area_are_unique() -> None:
    assert len({cls.kind for cls in EVENTS}) == len(EVENTS)


@given(records)
def test_the_wire_is_read_back_or_kept_as_foreign(value: dict[str, Any]) -> None:
    event = from_wire({key: item for key, item in value.items() if key != "at"}, known_kinds())
    assert isinstance(event, ForeignEvent) or event.kind == value["kind"]


NEEDLE = "sk-abcdefghijklmnop1234567"


@pytest.mark.parametrize(
    "event",
    [
        FollowUp(step="build", reason=f"npm: //host/:_authToken={NEEDLE}"),
        UserAction(step="edits", reason=f"git: https://u:{NEEDLE}@host/x"),
        StageFinished(stage="prepare", outcome="failed", reason=f"Bearer {NEEDLE}"),
        StepDone(name="source", ok=False, detail=f"pip --index-url https://u:{NEEDLE}@host/simple"),
        Skipped(name="probe", reason=f"api_key={NEEDLE}"),
        UpdateFinished(run_id="r", outcome="failed", exit_code=1, finished_at=AT, stop_reason=f"'{NEEDLE}' is no branch"),
    ],
    ids=lambda event: event.kind,
)  # fmt: skip
def test_a_reason_that_quotes_a_credential_is_masked(event: Event) -> None:
    receipt = str(fold(record(event)))
    assert NEEDLE not in receipt
    assert "[redacted]" in receipt
