"""Every receipt that a run leaves fits the published schema: all outcomes, at each stage boundary, and after any child."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nedura.errors import UpdateError
from nedura.product import NEDURA
from nedura.update import Run, UpdateOptions
from nedura.update.ledger.lock import UpdateLock
from nedura.update.parts import Refusal
from nedura.wire import to_json_line
from tests.kits.pipeline import GOOD_CHILD, Toy
from tests.unit.pipeline.test_schema import SCHEMA, complaints


def odd(toy: Toy) -> list[str]:
    folder = toy.home / "logs/update_receipts"
    files = sorted(folder.glob("*.json"))
    assert files
    return [text for path in files for text in complaints(json.loads(path.read_text()), SCHEMA)]


async def test_it_is_running_from_the_start_and_fresh_at_each_stage(tmp_path: Path) -> None:
    seen: list[tuple[str, str, str, int]] = []
    toy = Toy(tmp_path / "home")

    def look(run: Run) -> None:
        (receipt,) = toy.receipts()
        assert toy.latest() == receipt
        assert odd(toy) == []
        seen.append((toy.calls[-1], receipt["outcome"], receipt["stage"], len(receipt["stages"])))

    toy.hooks = dict.fromkeys(("plan", "snapshot", "prepare", "validate", "commit"), look)
    await toy.run()
    assert seen == [
        (name, "running", name, number)
        for number, name in enumerate(("plan", "snapshot", "prepare", "validate", "commit"))
    ]
    assert odd(toy) == []


OUTCOMES: dict[str, tuple[str, int, Any]] = {
    "success": ("success", 0, {}),
    "already current": ("success", 0, {"changed": False}),
    "owed": ("success", 0, {"child": "raise SystemExit(1)\n"}),
    "failed": ("failed", 1, {"errors": {"prepare": UpdateError("no", stop_class="fetch_failed")}}),
    "broken": ("failed", 1, {"errors": {"validate": KeyError("x")}}),
    "refused": ("refused", 2, {"refusal": Refusal(code="image-marker", message="An image.", exit_code=2)}),
    "external": ("refused", 0, {"refusal": Refusal(code="external", message="Elsewhere.", exit_code=0)}),
    "partial": (
        "partial",
        1,
        {"child": GOOD_CHILD + "close(outcome='partial', code=1, user_action=dict(step='s', reason='r'))\nsys.exit(1)\n"},
    ),
    "interrupted": ("interrupted", 130, {"child": GOOD_CHILD + "close(outcome='interrupted', code=130)\nsys.exit(130)\n"}),
    "taken back": (
        "failed",
        1,
        {
            "child": GOOD_CHILD
            + "json.dump({'schema': 1, 'update_id': request['update_id'], 'nonce': request['nonce'], 'exit_code': 1,"
            " 'receipt': None, 'first_member': 'boot'}, open(result_path, 'w'))\nsys.exit(1)\n"
        },
    ),
}  # fmt: skip


@pytest.mark.parametrize("how", OUTCOMES)
async def test_every_outcome_fits_the_schema(tmp_path: Path, how: str) -> None:
    outcome, code, fields = OUTCOMES[how]
    toy = Toy(tmp_path / "home", **fields)
    finished, _ = await toy.run()
    assert (finished.outcome, finished.exit_code) == (outcome, code), finished
    (receipt,) = toy.receipts()
    assert (receipt["outcome"], receipt["exit_code"]) == (outcome, code)
    assert odd(toy) == []


async def test_a_run_refused_by_the_lock_fits_too(tmp_path: Path) -> None:
    toy = Toy(tmp_path / "home")
    lock = UpdateLock(tmp_path / "other", toy.paths.folder / ".nedura-update.lock", NEDURA, {})
    lock.acquire(1.0)
    try:
        finished, _ = await toy.run()
    finally:
        lock.release()
    assert (finished.outcome, finished.exit_code) == ("refused", 2)
    assert odd(toy) == []


SHAPES = {
    "followups": "'odd'",
    "steps": "[{'name': 'x'}, 5]",
    "stages": "{'a': 1}",
    "skips": "None",
    "snapshots": "[1]",
    "snapshots_missing": "{'p': 'x'}",
    "user_action": "'do it'",
    "gateway_restart": "{'restarted': 'all'}",
    "fleet": "['x']",
    "foreign": "7",
    "seq": "'many'",
    "post_update": "'new'",
    "stop_reason": "{'a': 1}",
    "finished_at": "12",
    "fleet_unreadable": "True",
    "plan": "'none'",
    "schema": "99",
    "foreign_dropped": "'x'",
    "changed": "'yes'",
}


@pytest.mark.parametrize("key", SHAPES)
@pytest.mark.parametrize("way", ["in its result", "on disk, then it died"])
async def test_a_child_cannot_bring_a_receipt_out_of_shape(tmp_path: Path, key: str, way: str) -> None:
    """What does not fit is left to the parent's own fold of what it heard; the run ends as it must."""
    tell = "tell(kind='follow_up', step='build', reason='heard')\n"
    if way == "in its result":
        end = f"close(**{{{key!r}: {SHAPES[key]}}})\n"
    else:
        end = (
            "receipt = {**request['receipt'], 'seq': 500, "
            f"{key!r}: {SHAPES[key]}}}\njson.dump(receipt, open(request['receipt_path'], 'w'))\nos.kill(os.getpid(), 9)\n"
        )
    toy = Toy(tmp_path / "home", child=GOOD_CHILD + tell + end)
    finished, _ = await toy.run(UpdateOptions())
    assert finished.exit_code == 0, finished
    assert finished.outcome == "success"
    assert odd(toy) == []
    assert toy.latest()["outcome"] == "success"
    assert len(toy.receipts()) == 1


@pytest.mark.parametrize("way", ["event", "result", "disk"])
async def test_a_number_that_is_no_json_reaches_no_receipt_and_no_stream(tmp_path: Path, way: str) -> None:
    """Python reads and writes NaN; every other reader would refuse the whole file."""
    bad = "'n': float('nan'), 'stages': [{'name': 'x', 'outcome': 'success', 'at': '', 'seconds': float('inf')}]"
    ends = {
        "event": "tell(kind='stage_finished', stage='x', seconds=float('nan'))\ntell(kind='later', n=[float('-inf')])\nclose()\n",
        "result": f"close(**{{{bad}}})\n",
        "disk": f"receipt = {{**request['receipt'], 'seq': 500, {bad}}}\n"
        "json.dump(receipt, open(request['receipt_path'], 'w'))\nos.kill(os.getpid(), 9)\n",
    }
    toy = Toy(tmp_path / "home", child=GOOD_CHILD + ends[way])
    finished, events = await toy.run()
    assert finished.exit_code == 0

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    for path in (toy.home / "logs/update_receipts").glob("*.json"):
        json.loads(path.read_text(), parse_constant=refuse)
    for event in events:
        json.loads(to_json_line(event), parse_constant=refuse)
