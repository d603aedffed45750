"""Which result a parent believes."""

from __future__ import annotations

from typing import Any

import pytest

from nedura.errors import RecordCorrupt
from nedura.product import NEDURA, Build, Product
from nedura.update.completion.request import CompletionRequest, judge
from nedura.update.completion.steps import ending, tail_owed

REQUEST = CompletionRequest(update_id="run", nonce="n", source="/tree", root_home="/home", home="/home")
RECEIPT = {
    "update_id": "run",
    "outcome": "success",
    "exit_code": 0,
    "finished_at": "2026-01-01T00:00:00Z",
}
GOOD: dict[str, Any] = {"schema": 1, "update_id": "run", "nonce": "n", "exit_code": 0, "receipt": RECEIPT}


def test_a_correlated_result_is_believed() -> None:
    result, reason = judge(REQUEST, GOOD, 0)
    assert result is not None
    assert reason == ""


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"schema": 2}, 0),
        ({"update_id": "x"}, 0),
        ({"nonce": "old"}, 0),
        ({"exit_code": 1}, 0),
        ({"exit_code": True}, 1),
        ({"exit_code": "0"}, 0),
        ({"receipt": None}, 0),
        ({"receipt": {**RECEIPT, "update_id": "x"}}, 0),
        ({"receipt": {**RECEIPT, "finished_at": None}}, 0),
        ({"receipt": {**RECEIPT, "outcome": "failed"}}, 0),
        ({"receipt": RECEIPT, "exit_code": 1}, 1),
        ({}, 137),
        ({"receipt": None, "exit_code": 1, "first_member": ""}, 1),
        ({"receipt": []}, 0),
        ({"receipt": {**RECEIPT, "exit_code": 1}}, 0),
        ({"receipt": {**RECEIPT, "exit_code": False}}, 0),
        ({"receipt": {**RECEIPT, "outcome": "failed", "exit_code": 1}, "exit_code": 1}, 1),
        ({"receipt": {**RECEIPT, "outcome": "refused", "exit_code": 2}, "exit_code": 2}, 2),
        ({"receipt": {**RECEIPT, "outcome": "partial", "exit_code": 3}, "exit_code": 3}, 3),
    ],
)
def test_anything_else_is_not(change: dict[str, Any], status: int) -> None:
    result, reason = judge(REQUEST, {**GOOD, **change}, status)
    assert result is None
    assert reason


@pytest.mark.parametrize("value", [None, [], "x", 3, {}])
def test_no_result_is_never_success(value: object) -> None:
    assert judge(REQUEST, value, 0)[0] is None


def test_a_failed_first_member_leaves_the_last_word_to_the_parent() -> None:
    result, _ = judge(REQUEST, {**GOOD, "exit_code": 1, "receipt": None, "first_member": "version"}, 1)
    assert result is not None
    assert result.first_member == "version"


def test_a_request_survives_json_and_later_keys() -> None:
    product = Product(name="toy", builds=(Build(name="web", command=("x",), inputs=("a",), artifact="b"),))
    import attrs

    request = attrs.evolve(REQUEST, product=attrs.asdict(product))
    import json

    value = json.loads(json.dumps({**request.to_json(), "later": 1}))
    again = CompletionRequest.from_json(value)
    assert again.product_object() == product
    assert CompletionRequest.from_json(REQUEST.to_json()).product_object() == NEDURA


@pytest.mark.parametrize(
    "value", [None, [], {}, {"schema": 2}, {"schema": 1}, {"schema": 1, "update_id": "x"}]
)
def test_a_wrong_request_is_named(value: object) -> None:
    with pytest.raises(RecordCorrupt):
        CompletionRequest.from_json(value)


@pytest.mark.parametrize(
    ("followups", "user", "strict", "interrupted", "expected"),
    [
        ([], False, False, False, ("success", 0)),
        (["build"], False, False, False, ("success", 0)),
        (["gateway_restart"], False, True, False, ("success", 3)),
        ([], False, True, False, ("success", 0)),
        (["build"], True, True, False, ("partial", 1)),
        (["build"], True, True, True, ("interrupted", 130)),
    ],
)
def test_exit_codes_of_a_committed_run(
    followups: list[str], user: bool, strict: bool, interrupted: bool, expected: tuple[str, int]
) -> None:
    end = ending(followups=followups, user_action=user, strict=strict, interrupted=interrupted)
    assert (end["outcome"], end["exit_code"]) == expected


def test_only_tail_steps_keep_the_tail() -> None:
    assert tail_owed(["build"])
    assert tail_owed(["gateway_restart", "completion"])
    assert not tail_owed(["gateway_restart"])
    assert not tail_owed([])
