"""The live view of an update: what it shows when, at every size, and that it is never silent."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest

from nedura.fleet import (
    DrainWaiting,
    FleetMatrix,
    Foreign,
    MatrixRow,
    MemberRestarted,
    RestartStarted,
    SettleWaiting,
)
from nedura.installs import CodeIdentity
from nedura.skins import load_skin
from nedura.update import (
    BackupTaken,
    FollowUp,
    NetRestored,
    Notice,
    Progress,
    SnapshotFailed,
    SnapshotTaken,
    StageFinished,
    StageStarted,
    StepDone,
    UpdateFinished,
    UpdateStarted,
    UserAction,
)
from nedura.wire import Event, ForeignEvent
from nedura_cli.look import Look
from nedura_cli.output import Output
from nedura_cli.tables import cells
from nedura_cli.terminal import Terminal
from nedura_cli.update_plain import PlainUpdate
from nedura_cli.update_view import UpdatePicture

NEW = CodeIdentity(install_id="a" * 12, generation="000002", code_sha="b" * 40, code_version="0.2.0")


OLD = CodeIdentity(code_version="0.1.0", code_sha="c" * 40)


class Now:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.time = 100.0

    def __call__(self) -> float:
        return self.time


def row(profile: str, state: str = "current") -> MatrixRow:
    return MatrixRow(profile=profile, pid=11, state=state, code_sha=NEW.code_sha, code_version="0.2.0")  # type: ignore[arg-type]


def begin() -> list[Event]:
    return [
        UpdateStarted(run_id="r", started_at="2026-01-01T00:00:00Z", install_id="a" * 12, pre_update=OLD),
        StageStarted(stage="plan"),
        StageFinished(stage="plan", seconds=0.3),
        StageStarted(stage="restart"),
        RestartStarted(profile="default", pid=10),
        DrainWaiting(profile="default", pid=10, elapsed=1.0, waiting_for="1 running turn (chat)", limit=1850.0),
    ]  # fmt: skip


def end() -> list[Event]:
    return [
        MemberRestarted(profile="default", pid=11, downtime_ms=1900),
        StageFinished(stage="restart"),
        FleetMatrix(expected=NEW, rows=(row("default"), row("alpha", "stale"))),
        FollowUp(step="gateway_restart", reason="alpha did not come back"),
        UserAction(step="local_changes", reason="merge them"),
        UpdateFinished(run_id="r", outcome="success", exit_code=0, changed=True, now=NEW, followups=("gateway_restart",)),
    ]  # fmt: skip


def picture(tmp_path: Path, now: Now, *, unicode: bool = True) -> UpdatePicture:
    return UpdatePicture(Look(load_skin(tmp_path, "default"), Terminal(unicode=unicode, redraws=True)), now)


def seen(shown: UpdatePicture, tmp_path: Path, rows: int = 24, columns: int = 80) -> list[str]:
    stream = io.StringIO()
    console = Look(load_skin(tmp_path, "default"), Terminal(redraws=True)).console(stream, width=columns)
    console.height = rows
    console.print(shown)
    return stream.getvalue().rstrip("\n").split("\n")


def test_a_drain_counts_on_between_two_events(tmp_path: Path) -> None:
    now = Now()
    shown = picture(tmp_path, now)
    for event in begin():
        shown.show(event)
    now.time += 5
    text = "\n".join(seen(shown, tmp_path))
    assert "Updating install aaaaaaaaaaaa, now 0.1.0 (cccccccc)." in text
    assert "default: waiting for 1 running turn (chat), 6 s, at most 1844 s more" in text
    assert "✓  Looking at the fleet" in text
    assert "→  Restarting the fleet" in text
    assert "5.0 s" in text


def test_the_watch_over_the_fleet_is_one_line_that_counts_down(tmp_path: Path) -> None:
    now = Now()
    shown = picture(tmp_path, now)
    for event in [*begin(), *end()[:1]]:
        shown.show(event)
    for left in (11.0, 6.0):
        shown.show(SettleWaiting(waiting_for=("alpha", "beta"), seconds_left=left))
    now.time += 2
    text = "\n".join(seen(shown, tmp_path))
    assert text.count("watching whether") == 1
    assert "watching whether 2 restarted members stay up, 4 s left" in text
    shown.show(StageFinished(stage="restart"))
    assert "watching" not in "\n".join(seen(shown, tmp_path))


def test_the_end_shows_matrix_debts_and_who_retries(tmp_path: Path) -> None:
    shown = picture(tmp_path, Now())
    for event in [*begin(), *end()]:
        shown.show(event)
    text = "\n".join(seen(shown, tmp_path, 40, 100))
    assert "waiting for" not in text
    for part in ("gateway", "process", "runs", "state", "up to date", "STALE", "bbbbbbbb"):
        assert part in text
    for event in end()[3:]:
        assert " ".join(event.copy_terminal.split()) in " ".join(text.split())


def test_a_warning_of_an_early_stage_is_still_there_at_the_end(tmp_path: Path) -> None:
    """The details go with their stage; what a person has to know afterwards stays, as it does in plain lines."""
    shown = picture(tmp_path, Now())
    lasting: list[Event] = [
        SnapshotTaken(profile="alpha", snapshot_id="s", files=2, incomplete=("state.db",)),
        SnapshotFailed(profile="beta", reason="the disk is full"),
        BackupTaken(path="/b/pre-update.zip", files=3, size=9),
        Notice(text="Local edits that are not carried: a.py", warning=True),
        StepDone(name="local_changes_stash", ok=False, detail="parked"),
        NetRestored(profile="alpha", net="cron", ok=True, detail="3 jobs put back"),
    ]
    passing: list[Event] = [
        SnapshotTaken(profile="gamma", snapshot_id="s", files=2),
        Notice(text="nothing to know"),
        StepDone(name="launchers"),
    ]
    for event in [*begin()[:2], *lasting, *passing, *begin()[2:], *end()]:
        shown.show(event)
    text = " ".join(" ".join(seen(shown, tmp_path, 60, 100)).split())
    for event in lasting:
        assert " ".join(event.copy_terminal.split()) in text
    for event in passing:
        assert " ".join(event.copy_terminal.split()) not in text


def test_a_fleet_without_members_has_no_empty_table(tmp_path: Path) -> None:
    shown = picture(tmp_path, Now())
    alien = Foreign(what="gateway process", name="pid 7", reason="another home", home=Path("/elsewhere"))
    shown.show(FleetMatrix(expected=NEW, rows=(), foreign=(alien,)))
    text = "\n".join(seen(shown, tmp_path))
    assert "pid 7" in text
    assert "runs" not in text


def test_what_is_left_alone_does_not_squeeze_the_matrix(tmp_path: Path) -> None:
    shown = picture(tmp_path, Now())
    foreign = tuple(
        Foreign(
            what="gateway process",
            name=f"pid {number}",
            reason="another home",
            home=Path("/somewhere/else") / ("x" * 60),
        )
        for number in range(9)
    )
    shown.show(FleetMatrix(expected=NEW, rows=(row("default"), row("alpha")), foreign=foreign))
    lines = seen(shown, tmp_path)
    assert any(re.match(r"✓\s+alpha\s+11\s+bbbbbbbb\s+up to date", line) for line in lines), lines
    assert sum("left" in line or "pid" in line for line in lines) == 3
    assert "and 6 more of other homes" in "\n".join(lines)


@pytest.mark.parametrize(("rows", "columns"), [(24, 80), (50, 200), (20, 40), (10, 40)])
@pytest.mark.parametrize("unicode", [True, False])
def test_it_fits_every_terminal_at_every_moment(
    tmp_path: Path, rows: int, columns: int, unicode: bool
) -> None:
    now = Now()
    shown = picture(tmp_path, now, unicode=unicode)
    details: list[Event] = [Notice(text=f"detail {number} {'x' * 90}") for number in range(9)]
    waits: list[Event] = [
        DrainWaiting(profile=f"p{number}", pid=1, elapsed=1, waiting_for="a turn") for number in range(9)
    ]
    progress: list[Event] = [Progress(stage="restart", label="copying", done=3, total=9)]
    for event in [*begin(), *details, *progress, *waits]:
        shown.show(event)
        now.time += 0.5
        lines = seen(shown, tmp_path, rows, columns)
        assert len(lines) <= rows, "\n".join(lines)
        assert max(cells(line) for line in lines) <= columns
        assert unicode or "\n".join(lines).isascii()


def test_newer_code_is_shown_in_its_own_words(tmp_path: Path) -> None:
    shown = picture(tmp_path, Now())
    shown.show(StageStarted(stage="future_stage"))
    shown.show(ForeignEvent(kind="future", copy_terminal="a line of the future\nand one more"))
    text = "\n".join(seen(shown, tmp_path))
    assert "a line of the future" in text
    assert "and one more" in text


def test_plain_lines_are_the_events_own_and_a_heartbeat_follows_silence() -> None:
    now, out = Now(), io.StringIO()
    view = PlainUpdate(Output(stdout=out), 2.0, now)
    for event in begin():
        view.show(event)
    assert out.getvalue() == "".join(f"{event.copy_terminal}\n" for event in begin())
    now.time += 1.9
    view.tick()
    assert "..." not in out.getvalue()
    now.time += 0.2
    view.tick()
    assert out.getvalue().endswith("  ... Restarting the fleet, 2 s\n")
    view.tick()
    assert out.getvalue().count("...") == 1


def test_json_has_no_heartbeat() -> None:
    now, out = Now(), io.StringIO()
    view = PlainUpdate(Output(as_json=True, stdout=out), 2.0, now)
    view.show(StageStarted(stage="plan"))
    now.time += 60
    view.tick()
    assert out.getvalue().count("\n") == 1
