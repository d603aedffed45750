"""`nedura logs update` reads any receipt: of later versions, of damaged files, of runs whose processes are gone."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nedura.update.ledger.owner import myself
from nedura.update.ledger.receipt import opened
from nedura_cli.main import main
from nedura_cli.pm import last_run
from nedura_cli.update import as_it_stands, receipt_lines

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=4,
)


@settings(max_examples=100)
@given(st.dictionaries(st.sampled_from(sorted(opened())), values, max_size=8))
def test_any_value_in_any_field_is_shown_not_fatal(changed: dict[str, Any]) -> None:
    lines = receipt_lines({**opened(), "pid": 2**31 - 2, **changed})
    assert lines
    assert all("\n" not in line and "\x1b" not in line for line in lines)


@pytest.mark.parametrize("pid", [2**40, 2**80, -5, float("inf")])
def test_a_pid_that_cannot_be_is_gone(pid: float) -> None:
    assert "interrupted" in receipt_lines({**opened(), "pid": pid, "update_id": "r"})[0]


def test_a_run_whose_processes_are_gone_is_not_shown_as_running() -> None:
    me = myself()
    alive = {**opened(), "pid": os.getpid(), "pid_create_time": me.create_time, "stage": "prepare"}
    assert "running" in receipt_lines(alive)[0]
    assert "in stage prepare" in receipt_lines(alive)[0]
    gone = receipt_lines({**alive, "pid_create_time": me.create_time - 5000})
    assert "interrupted" in gone[0]
    assert "its processes are gone" in gone[1]
    assert as_it_stands(alive) is alive
    told = as_it_stands({**alive, "pid_create_time": me.create_time - 5000})
    assert (told["outcome"], told["stop_reason"], told["stage"]) == (
        "interrupted",
        "its processes are gone",
        "prepare",
    )


def test_what_is_owed_and_what_is_yours_has_its_line() -> None:
    lines = receipt_lines(
        {
            **opened(),
            "outcome": "partial",
            "finished_at": "2026-01-01T00:00:00Z",
            "followups": [{"step": "build", "reason": "broke"}, "odd"],
            "user_action": {"step": "restore_edits", "reason": "conflict"},
            "gateway_restart": {"restarted": [{"profile": "alpha", "downtime_ms": 12}]},
        }
    )
    assert "    owed: build: broke" in lines
    assert "    yours: restore_edits: conflict" in lines
    assert "    alpha: back after 12 ms" in lines


def test_a_way_back_has_its_line() -> None:
    went = {**opened(), "update_id": "r", "outcome": "success", "went_behind": "feedbeef" * 4, "restored": ""}
    assert "    went back behind run feedbeef; state stays as it is" in receipt_lines(went)
    assert "state restored: 3 files" in "\n".join(receipt_lines({**went, "restored": "3 files"}))


@pytest.mark.parametrize("last", ["0", "-1", "x", "1.5", ""])
def test_how_many_is_a_number_above_zero(last: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["logs", "update", f"--last={last}"]) == 2
    assert "a number above zero is wanted" in capsys.readouterr().err


def test_the_time_of_a_run_is_not_taken_for_local_time() -> None:
    line = receipt_lines({**opened(), "outcome": "success", "started_at": "2026-12-01T01:26:40.652285Z"})[0]
    assert line.startswith("2026-12-01 01:26:40Z  success"), line


def test_the_last_run_of_a_status_is_no_running_one_once_its_processes_are_gone() -> None:
    started = "2026-12-01T01:26:40.652285Z"
    gone = {**opened(), "update_id": "r", "pid": 2**31 - 2, "started_at": started}
    assert last_run(gone) == "interrupted 2026-12-01 01:26:40Z"
