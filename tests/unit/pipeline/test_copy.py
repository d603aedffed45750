"""Chat copy holds no URL, no path, no exception text, no terminal verb; a follow-up is ONE line with its step in quotes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from nedura.installs import CodeIdentity
from nedura.update import events
from nedura.update.events import FOLLOWUP_WORDS, STAGE_WORDS, FollowUp, UpdateFinished
from nedura.update.run import Candidate
from nedura.wire import Event

FORBIDDEN = re.compile(
    r"https?://|nedura |\bguest\b|\banonymous\b|\bclaim\b|Traceback|Error:|/[a-z]+/", re.IGNORECASE
)
CODE = CodeIdentity(code_sha="a" * 40, code_version="1.2.3")
NASTY = "OSError: nedura update failed at https://x/y in /srv/x Traceback"
CANDIDATE = Candidate(layout="sealed", identity=CODE, folder=Path("/a"), tree=Path("/a"), python=Path("/a"))

SAMPLES: list[Event] = [
    events.UpdateStarted(run_id="r", started_at="t", install_id="i", pre_update=CODE, argv=(NASTY,)),
    events.InterruptedFound(run_id="r", last_stage="prepare", receipt="/x"),
    events.AlreadyReported(run_id="r", outcome="success", receipt="/x"),
    *[events.StageStarted(stage=stage) for stage in STAGE_WORDS],
    *[events.StageStarted(stage=stage, going_back=True) for stage in STAGE_WORDS],
    events.StageFinished(stage="prepare", outcome="failed", going_back=True),
    events.UpdateStarted(run_id="r", started_at="2026-01-01T00:00:00Z", going_back=True),
    *[events.StageFinished(stage="prepare", outcome=outcome, reason=NASTY) for outcome in ("success", "failed", "skipped")],
    events.StepDone(name="x_y", ok=False, detail=NASTY),
    events.Skipped(name="x_y", reason=NASTY),
    events.Notice(text=NASTY, warning=True),
    events.Progress(stage="prepare", label=NASTY, done=1, total=2),
    events.PlanReady(plan={"runtimes": [1]}, summary=NASTY),
    events.SnapshotTaken(profile="p", snapshot_id="s", files=3, size=4_200_000, incomplete=("state.db",)),
    *[events.Prepared(candidate=CANDIDATE, changed=changed, commits=3) for changed in (True, False)],
    events.Committed(before=CODE, now=CODE, branch="main"),
    *[events.TakenBack(check=NASTY, now=CODE, restored=restored) for restored in (True, False)],
    events.CompletionStarted(pid=1),
    events.CompletionStarted(pid=1, going_back=True),
    *[FollowUp(step=step, reason=NASTY) for step in FOLLOWUP_WORDS],
    events.RuntimeOutcomes(rows=({"profile": "a", "kind": "gateway", "pid": 1, "outcome": "unaccounted"},)),
    events.UserAction(step="local_changes", reason=NASTY),
    *[
        UpdateFinished(run_id="r", outcome=outcome, exit_code=0, followups=followups, stop_reason=NASTY, changed=changed, now=CODE)
        for outcome in ("success", "partial", "failed", "refused", "interrupted")
        for followups in ((), ("build",))
        for changed in (True, False)
    ],
    *[
        UpdateFinished(run_id="r", outcome=outcome, exit_code=0, stop_reason=NASTY, changed=changed, now=CODE, went_behind="f" * 32,
                       restored=restored)
        for outcome in ("success", "partial", "failed", "interrupted")
        for changed in (True, False)
        for restored in ("", NASTY)
    ],
]  # fmt: skip


@pytest.mark.parametrize("event", SAMPLES, ids=lambda event: event.kind)
def test_chat_copy_is_plain(event: Event) -> None:
    assert not FORBIDDEN.search(event.copy), event.copy
    assert isinstance(event.copy_terminal, str)


@pytest.mark.parametrize("step", FOLLOWUP_WORDS)
def test_a_follow_up_is_one_line_that_scripts_can_read(step: str) -> None:
    line = FollowUp(step=step, reason="why\n(pip said\r\nso)").copy_terminal
    assert "\n" not in line
    assert line.startswith(events.FOLLOWUP_PREFIX + f" '{step}': why (pip said so) (")


def test_a_follow_up_promises_only_what_a_launch_does() -> None:
    assert "retried at the next launch" in FollowUp(step="build", reason="x").copy_terminal
    owed = FollowUp(step="gateway_restart", reason="x").copy_terminal
    assert "retried at the next launch" not in owed, "a launch names who owes the restart and restarts nobody"
    assert "next update" in owed


def test_every_class_is_sampled() -> None:
    assert {type(sample) for sample in SAMPLES} == set(events.EVENTS)


def test_edits_that_still_wait_do_not_make_a_run_with_nothing_new_an_update() -> None:
    told = UpdateFinished(run_id="r", outcome="partial", exit_code=1, changed=False, now=CODE)
    assert "Already up to date" in told.copy_terminal
    assert "Updated" not in told.copy_terminal + told.copy


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"changed": True}, "✓ Went back to 1.2.3 (aaaaaaaa), the code before run feedbeef; state stays as it is."),
        (
            {"changed": True, "restored": "3 files from pre-update-x.zip"},
            "✓ Went back to 1.2.3 (aaaaaaaa), the code before run feedbeef; state restored: 3 files from pre-update-x.zip.",
        ),
        ({}, "✓ Already back at 1.2.3 (aaaaaaaa), the code before run feedbeef."),
        (
            {"restored": "3 files"},
            "✓ Already back at 1.2.3 (aaaaaaaa), the code before run feedbeef; state restored: 3 files.",
        ),
        (
            {"changed": True, "outcome": "partial", "stop_reason": "See x."},
            "⚠ Went back to 1.2.3 (aaaaaaaa), the code before run feedbeef; state stays as it is, but something waits for you. See x.",
        ),
    ],
)  # fmt: skip
def test_a_way_back_says_that_it_went_back_to_what_and_what_came_with_it(
    fields: dict[str, Any], line: str
) -> None:
    values = {"run_id": "r", "outcome": "success", "exit_code": 0, "now": CODE, "went_behind": "feedbeef" * 4}
    told = UpdateFinished(**{**values, **fields})
    assert told.copy_terminal == line
    assert "pdated" not in told.copy_terminal + told.copy


def test_what_is_switched_to_is_named_and_never_called_new() -> None:
    """A way back sends the same two events; what it goes back to is not new."""
    for event in (
        events.Prepared(candidate=CANDIDATE, changed=True),
        events.Committed(before=CODE, now=CODE),
    ):
        assert "1.2.3 (aaaaaaaa)" in event.copy
        assert "new" not in event.copy.lower()
