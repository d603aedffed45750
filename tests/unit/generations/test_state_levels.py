"""Which state a version reads, and which full backup belongs to a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nedura.errors import UpdateError
from nedura.update.generation.rollback import recorded_commit
from nedura.update.state.levels import (
    StateIncompatible,
    StateRange,
    judge_state,
    state_range,
    stated_range,
)
from nedura.update.state.way_back import MembersRunning, NoFullBackup, backup_of, refuse_running

ONE = StateRange()


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ({}, ONE),
        ({"tool": {"nedura": {"state": {"min": 2, "max": 5}}}}, StateRange(2, 5)),
        ({"tool": {"other": {"state": {"min": 2, "max": 5}}}}, ONE),
        ({"tool": {"nedura": {"state": {"min": 5, "max": 2}}}}, ONE),
        ({"tool": {"nedura": {"state": {"min": True, "max": 2}}}}, ONE),
        ({"tool": {"nedura": {"state": [1, 2]}}}, ONE),
    ],
)
def test_what_a_project_table_states(table: dict[str, Any], expected: StateRange) -> None:
    assert stated_range(table, "nedura") == expected


def test_a_tree_states_its_levels_and_one_that_cannot_be_read_has_level_one(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.nedura.state]\nmin = 1\nmax = 3\n")
    assert state_range(tmp_path, "nedura") == StateRange(1, 3)
    (tmp_path / "pyproject.toml").write_text("[tool.")
    assert state_range(tmp_path, "nedura") == ONE
    assert state_range(tmp_path / "none", "nedura") == ONE


@pytest.mark.parametrize(("low", "high", "level"), [(1, 1, 2), (3, 4, 2)])
def test_state_that_does_not_fit_is_refused_by_name(low: int, high: int, level: int) -> None:
    with pytest.raises(StateIncompatible, match=f"level {level}") as caught:
        judge_state(StateRange(low, high), level)
    assert (caught.value.code, caught.value.exit_code) == ("state_incompatible", 2)
    judge_state(StateRange(min(low, level), max(high, level)), level)


def test_only_a_full_backup_in_its_own_folder_brings_state_back(tmp_path: Path) -> None:
    (tmp_path / "backups").mkdir()
    kept = tmp_path / "backups/pre-update-1.zip"
    kept.write_bytes(b"")
    row = {"kind": "backup_taken", "path": "/elsewhere/pre-update-1.zip"}
    assert backup_of({"foreign": [row], "snapshots": {"default": "x"}}, tmp_path) == kept
    for receipt in ({"snapshots": {"default": "x"}}, {"foreign": [{**row, "path": "/e/other.zip"}]}):
        with pytest.raises(NoFullBackup):
            backup_of(receipt, tmp_path)
    with pytest.raises(MembersRunning, match="media"):
        refuse_running({"media"})
    refuse_running(())


def test_a_receipt_without_a_commit_names_no_way_back() -> None:
    assert recorded_commit({"pre_update": {"sha": "a" * 40}}) == "a" * 40
    for receipt in ({}, {"pre_update": {"sha": "main"}}):
        with pytest.raises(UpdateError, match="no commit"):
            recorded_commit(receipt)
