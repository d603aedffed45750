"""Chat's `/update`: exit code and questions through files; a dashboard reads how its action ended from the receipt."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from nedura.clock import SystemClock
from nedura.errors import UpdateError
from nedura.update import UpdateOptions, answer_prompt, pending_prompt, status_by_action
from nedura.update.ledger.marker import action_marker
from nedura.update.prompt import ask_by_file, said_yes
from tests.kits.pipeline import Toy

ACTION = "0123456789abcdef" * 2


@pytest.fixture
def toy(tmp_path: Path) -> Toy:
    return Toy(tmp_path / "home")


async def test_the_exit_code_of_a_good_run_is_0(toy: Toy) -> None:
    await toy.run(UpdateOptions(gateway_mode=True))
    assert (toy.home / ".update_exit_code").read_text().strip() == "0"
    assert toy.latest()["initiator"] == "gateway"


async def test_the_exit_code_is_1_only_when_the_run_really_failed(toy: Toy) -> None:
    toy.child = "raise SystemExit(1)\n"  # the completion dies: owed, but committed
    await toy.run(UpdateOptions(gateway_mode=True))
    assert (toy.home / ".update_exit_code").read_text().strip() == "0"
    other = Toy(toy.home)
    other.errors["prepare"] = UpdateError("no", stop_class="fetch_failed")
    await other.run(UpdateOptions(gateway_mode=True))
    assert (toy.home / ".update_exit_code").read_text().strip() == "1"


async def test_without_gateway_mode_no_file_is_written(toy: Toy) -> None:
    await toy.run()
    assert not (toy.home / ".update_exit_code").exists()


async def test_a_question_is_answered_once_and_both_files_go(tmp_path: Path) -> None:
    (tmp_path / ".update_response").write_text("stale answer")
    asking = asyncio.ensure_future(ask_by_file(tmp_path, "Bring them back?", "no", SystemClock()))
    while (waiting := pending_prompt(tmp_path)) is None:
        await asyncio.sleep(0.01)
    assert (waiting.prompt, waiting.default) == ("Bring them back?", "no")
    assert not answer_prompt(tmp_path, "another-question", "yes")
    assert answer_prompt(tmp_path, waiting.id, "yes\x1b[31m")
    assert said_yes(await asking)
    assert list(tmp_path.iterdir()) == []


async def test_no_answer_and_an_empty_one_mean_the_default(tmp_path: Path) -> None:
    assert await ask_by_file(tmp_path, "?", "no", SystemClock(), patience=0.05) == "no"
    asking = asyncio.ensure_future(ask_by_file(tmp_path, "?", "no", SystemClock()))
    while (waiting := pending_prompt(tmp_path)) is None:
        await asyncio.sleep(0.01)
    answer_prompt(tmp_path, waiting.id, "  ")
    assert await asking == "no"


async def test_a_dashboard_finds_its_action_after_its_own_restart(
    toy: Toy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEDURA_ACTION_ID", ACTION)
    await toy.run()
    monkeypatch.delenv("NEDURA_ACTION_ID")
    await Toy(toy.home, changed=False).run()  # a later run without an action
    status = status_by_action(toy.home, ACTION)
    assert status is not None
    assert (status.outcome, status.exit_code, status.action_id) == ("success", 0, ACTION)
    assert status_by_action(toy.home, "f" * 32) is None


async def test_a_running_receipt_whose_processes_are_gone_is_interrupted(
    toy: Toy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEDURA_ACTION_ID", ACTION)
    await toy.run()
    (path,) = (toy.home / "logs/update_receipts").glob("update_*.json")
    record = {**json.loads(path.read_text()), "outcome": "running", "finished_at": None, "exit_code": None}
    path.write_text(json.dumps(record))
    live = status_by_action(toy.home, ACTION, alive=lambda owner: True)
    assert live is not None
    assert live.outcome == "running"
    gone = status_by_action(toy.home, ACTION, alive=lambda owner: False)
    assert gone is not None
    assert gone.outcome == "interrupted"


def test_the_marker_line_names_the_action_and_its_end() -> None:
    environ = {"NEDURA_ACTION_ID": ACTION}
    assert action_marker(environ, success=True, exit_code=0) == f"=== nedura update {ACTION}: completed ==="
    assert "failed with exit 1" in action_marker(environ, success=False, exit_code=1)
    assert action_marker({"NEDURA_ACTION_ID": "x"}, success=True, exit_code=0) == ""
    assert action_marker({}, success=True, exit_code=0) == ""
