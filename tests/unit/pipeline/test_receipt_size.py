"""However much a child sends, the receipt stays one that every reader takes: without a bound the run itself would be lost."""

from __future__ import annotations

from functools import reduce
from pathlib import Path
from typing import Any

from nedura.update.ledger.receipt import KEPT_FOLLOWUPS, apply, opened
from nedura.update.ledger.receipts import ReceiptStore, readable

LIMIT = 20_000


def flooded(**more: Any) -> dict[str, Any]:
    row = {"name": "s", "ok": True, "detail": "d" * 480, "at": "2026-01-01T00:00:00Z"}
    return {
        **opened(),
        "update_id": "r",
        "started_at": "2026-01-01T00:00:00Z",
        "pid": 1,
        "outcome": "success",
        "finished_at": "2026-01-01T00:00:01Z",
        "steps": [{**row, "name": f"s{number}"} for number in range(18_000)],
        "followups": [{"step": "completion", "reason": "it sent too much", "at": ""}],
        **more,
    }


def test_a_flood_of_steps_costs_steps_and_not_the_run(tmp_path: Path) -> None:
    store = ReceiptStore(tmp_path)
    place = store.write(flooded())
    for path in (place, store.latest):
        kept = store.read(path)
        assert kept["outcome"] == "success"
        assert kept["followups"] == flooded()["followups"]
        assert kept["steps"][-1]["name"] == "s17999", "the newest stay"
        assert kept["shed"]["steps"] + len(kept["steps"]) == 18_000
    assert [receipt["update_id"] for receipt in store.recent()] == ["r"]


def test_a_huge_value_of_a_later_version_goes_alone() -> None:
    small = flooded(steps=[])
    kept = readable({**small, "later": "x" * 10 * LIMIT, "plan": {"a": "y" * 10 * LIMIT}}, LIMIT)
    assert kept["plan"] is None
    assert kept["later"] is None
    assert kept["shed"] == {"later": 1, "plan": 1}
    assert {key: kept[key] for key in ("followups", "outcome")} == {
        key: small[key] for key in ("followups", "outcome")
    }


def test_what_fits_is_left_as_it_is() -> None:
    small = flooded(steps=[])
    assert readable(small) is small


def test_follow_ups_are_bounded_and_counted() -> None:
    records = [
        {"kind": "follow_up", "step": "build", "reason": f"r{number}"} for number in range(KEPT_FOLLOWUPS + 7)
    ]
    receipt = reduce(apply, records, opened())
    assert len(receipt["followups"]) == KEPT_FOLLOWUPS
    assert receipt["shed"] == {"followups": 7}
