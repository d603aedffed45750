"""The live view of an update: stages with elapsed time, drains that count down, the matrix, what is owed. All words are the events' own."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Final

import attrs
from rich.console import Console, ConsoleOptions, Group, OverflowMethod, RenderableType, RenderResult
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from nedura.fleet import (
    DrainWaiting,
    FleetMatrix,
    MemberFailed,
    MemberRestarted,
    RestartWaiting,
    SettleWaiting,
)
from nedura.update import (
    AlreadyReported,
    BackupFailed,
    BackupTaken,
    FollowUp,
    InterruptedFound,
    NetRestored,
    Notice,
    Progress,
    SnapshotFailed,
    SnapshotTaken,
    StageFinished,
    StageStarted,
    StepDone,
    TakenBack,
    UpdateFinished,
    UpdateStarted,
    UserAction,
)
from nedura.wire import Event
from nedura_cli.look import Look

__all__ = ["LiveUpdate", "UpdatePicture", "matrix_parts"]

DETAILS: Final = 6
FOREIGN: Final = 3


@attrs.define
class _Stage:
    """One line of the list."""

    name: str
    words: str
    started: float
    seconds: float = 0.0
    outcome: str = ""
    reason: str = ""


class UpdatePicture:
    """What has happened so far, as something that rich can draw at any moment.

    Attributes:
        reserved: rows of the terminal that others draw on.
    """

    def __init__(self, look: Look, now: Callable[[], float] = time.monotonic) -> None:
        self.reserved = 0
        self._look = look
        self._now = now
        self._title = "Updating"
        self._stages: list[_Stage] = []
        self._details: deque[str] = deque(maxlen=DETAILS)
        self._waits: dict[str, tuple[DrainWaiting | RestartWaiting, float]] = {}
        self._watched: tuple[SettleWaiting, float] | None = None
        self._progress: Progress | None = None
        self._matrix: FleetMatrix | None = None
        self._owed: list[FollowUp | UserAction] = []
        self._lasting: list[str] = []
        self._last: UpdateFinished | None = None
        self._overflow: OverflowMethod = "ellipsis" if look.terminal.unicode else "crop"
        self._faces = look.faces(thinking=True)
        self._face, self._turned = next(self._faces), 0.0

    def show(self, event: Event) -> None:
        """Take an event into the picture."""
        match event:
            case UpdateStarted():
                self._title = event.copy_terminal
            case StageStarted():
                words = event.copy.rstrip(".")
                self._stages.append(_Stage(event.stage, words, self._now()))
                self._details.clear()
                self._progress = None
            case StageFinished():
                self._finish(event)
            case Progress():
                self._progress = event
            case DrainWaiting() | RestartWaiting():
                self._waits[event.profile] = (event, self._now())
            case SettleWaiting():
                self._watched = (event, self._now())
            case FleetMatrix():
                self._matrix = event
            case FollowUp() | UserAction():
                self._owed.append(event)
            case UpdateFinished():
                self._last = event
                self._waits.clear()
            case _:
                self._note(event)

    def _note(self, event: Event) -> None:
        if isinstance(event, (MemberRestarted, MemberFailed)):
            self._waits.pop(event.profile, None)
        lines = [line.strip() for line in event.copy_terminal.split("\n") if line.strip()]
        self._details.extend(lines)
        if _lasts(event):
            self._lasting.extend(lines)

    def _finish(self, event: StageFinished) -> None:
        self._watched = None
        for stage in reversed(self._stages):
            if stage.name == event.stage and not stage.outcome:
                stage.outcome, stage.reason = event.outcome, event.reason
                stage.seconds = event.seconds or self._now() - stage.started
                return

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw it; never higher than the terminal."""
        height = console.size.height - self.reserved
        fixed: list[RenderableType] = [
            self._look.text(self._title, "banner_title", bold=True),
            self._list(options.max_width),
        ]
        tail = self._tail(options.max_width)
        room = height - 3 - len(self._stages) - sum(_height(part) for part in tail)
        yield Group(*fixed, *self._now_running(max(0, room)), *tail)

    def _list(self, width: int) -> Table:
        table = Table.grid(padding=(0, 1), expand=False)
        table.width = min(width, 76)
        table.add_column(width=2, no_wrap=True)
        table.add_column(ratio=1, no_wrap=True, overflow=self._overflow)
        table.add_column(justify="right", no_wrap=True)
        for stage in tuple(self._stages):
            seconds = stage.seconds if stage.outcome else self._now() - stage.started
            words = f"{stage.words}: {stage.reason}" if stage.reason else stage.words
            key = "banner_text" if stage.outcome != "failed" else "ui_error"
            table.add_row(
                self._mark(stage),
                self._look.text(words, key),
                self._look.text(f"{seconds:.1f} s", "banner_dim"),
            )
        return table

    def _mark(self, stage: _Stage) -> Text:
        mark, key = {
            "": ("→", "ui_accent"),
            "success": ("✓", "ui_ok"),
            "failed": ("✗", "ui_error"),
            "skipped": ("↷", "banner_dim"),
        }[stage.outcome]
        return self._look.text(mark, key, bold=True)

    def _now_running(self, room: int) -> list[RenderableType]:
        """Waits first, then progress, then the newest details: what fits."""
        if self._last is not None:
            return []
        parts: list[RenderableType] = [self._wait(*pair) for pair in tuple(self._waits.values())]
        if self._watched is not None:
            event, told = self._watched
            left = max(0.0, event.seconds_left - (self._now() - told))
            line = attrs.evolve(event, seconds_left=left).copy_terminal.strip()
            parts.append(self._look.text(f"   {line}", "ui_warn"))
        if self._progress is not None:
            parts.append(self._bar(self._progress))
        details = [self._look.text(f"   {line}", "banner_dim") for line in tuple(self._details)]
        space = max(0, room - len(parts) - 1)
        parts = [*(details[-space:] if space else []), *parts][-room:] if room else []
        for part in parts:
            if isinstance(part, Text):
                part.no_wrap, part.overflow = True, self._overflow
        return [*parts, self._alive()] if room else parts

    def _wait(self, event: DrainWaiting | RestartWaiting, seen: float) -> Text:
        """One gateway that is waited for, counting on between two events."""
        elapsed = event.elapsed + self._now() - seen
        left = (
            f", at most {event.limit - elapsed:.0f} s more"
            if isinstance(event, DrainWaiting) and event.limit
            else ""
        )
        line = f"   {event.profile}: waiting for {event.waiting_for or 'its process'}, {elapsed:.0f} s{left}"
        return self._look.text(line, "ui_warn")

    def _bar(self, progress: Progress) -> RenderableType:
        if not self._look.terminal.unicode:
            share = f" {100 * progress.done // progress.total}%" if progress.total else ""
            return self._look.text(f"   {progress.label}{share}", "banner_dim")
        row = Table.grid(padding=(0, 1))
        row.add_column(no_wrap=True)
        row.add_column(width=24)
        style = self._look.style
        bar = ProgressBar(
            total=progress.total or None,
            completed=progress.done,
            pulse=not progress.total,
            style=style("banner_dim"),
            complete_style=style("ui_accent"),
            finished_style=style("ui_ok"),
            pulse_style=style("ui_accent"),
        )
        row.add_row(self._look.text(f"   {progress.label}", "banner_dim"), bar)
        return row

    def _alive(self) -> Text:
        """The skin's face: the proof that the view still lives."""
        if self._now() - self._turned > 0.4:
            self._face, self._turned = next(self._faces), self._now()
        return self._look.text(f"   {self._face}", "ui_accent")

    def _tail(self, width: int) -> list[RenderableType]:
        parts: list[RenderableType] = []
        if self._last is not None:  # while it runs they are among the details
            parts += [self._look.text(f"  {line}", "banner_text") for line in self._lasting]
        if self._matrix is not None:
            parts += matrix_parts(self._look, self._matrix, width)
        parts += [self._look.text(item.copy_terminal, "ui_warn") for item in tuple(self._owed)]
        if self._last is not None:
            key = "ui_ok" if self._last.exit_code == 0 else "ui_error"
            parts.append(self._look.text(self._last.copy_terminal, key, bold=True))
        return parts


def _lasts(event: Event) -> bool:
    """Whether a person has to know it afterwards, too: warnings, what failed, where a full backup lies."""
    match event:
        case Notice():
            return event.warning
        case StepDone():
            return not event.ok
        case SnapshotTaken():
            return bool(event.incomplete)
        case (
            SnapshotFailed()
            | BackupFailed()
            | BackupTaken()
            | NetRestored()
            | TakenBack()
            | InterruptedFound()
            | AlreadyReported()
        ):
            return True
        case _:
            return False


def _height(part: RenderableType) -> int:
    return part.row_count + 1 if isinstance(part, Table) else 1


def matrix_parts(look: Look, matrix: FleetMatrix, width: int) -> list[RenderableType]:
    """The version matrix as a table, and below it what was left alone; only the first few of those by name."""
    foreign = [look.text(item.copy_terminal, "banner_dim") for item in matrix.foreign[:FOREIGN]]
    for line in foreign:
        line.no_wrap, line.overflow = True, "ellipsis" if look.terminal.unicode else "crop"
    if matrix.unreadable:
        foreign.insert(
            0, look.text(f"? {matrix.unreadable} could not be read: unknown what they run", "ui_warn")
        )
    more = len(matrix.foreign) - FOREIGN
    rest = [look.text(f"and {more} more of other homes", "banner_dim")] if more > 0 else []
    table = [_matrix_table(look, matrix, width)] if matrix.rows else []
    return [*table, *foreign, *rest]


def _matrix_table(look: Look, matrix: FleetMatrix, width: int) -> Table:
    """One row a gateway; on a narrow terminal without its process."""
    wide = width >= 60
    table = Table(
        box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style=look.style("banner_accent", bold=True)
    )
    for name in ("", "gateway", *(("process",) if wide else ()), "runs", "state"):
        table.add_column(name, no_wrap=True, overflow="ellipsis" if look.terminal.unicode else "crop")
    for row in matrix.rows:
        key = "ui_error" if row.failing else "ui_ok" if row.state == "current" else "ui_warn"
        code = row.code_sha[:8] or row.code_version
        cells = (row.mark, row.profile, *((str(row.pid or ""),) if wide else ()), code, row.words)
        table.add_row(
            *(look.text(cell, key if index == 0 else "banner_text") for index, cell in enumerate(cells))
        )
    return table


class LiveUpdate:
    """The picture, redrawn."""

    def __init__(self, look: Look, console: Console) -> None:
        self._picture = UpdatePicture(look)
        self._live = Live(self._picture, console=console, refresh_per_second=8, vertical_overflow="crop")
        self._live.start()

    def show(self, event: Event) -> None:
        """Take an event into the picture."""
        self._picture.show(event)
        if not self._live.is_started:
            self._live.start()

    def pause(self) -> None:
        """Leave the screen to a question."""
        self._live.stop()

    def tick(self) -> None:
        """The picture moves by itself."""

    def close(self) -> None:
        """Leave the last picture on the screen."""
        self._live.vertical_overflow = "visible"
        self._live.stop()
