"""Three ways to show the demo: wire lines, plain lines, and a live view on a terminal."""

from __future__ import annotations

import time
from collections import deque
from typing import Final, Protocol

from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.live import Live
from rich.panel import Panel
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from demo.events import DemoFinished, DemoStep, Fact
from demo.steps import STEPS
from nedura.fleet import FleetMatrix
from nedura.signin import Code
from nedura.wire import Event
from nedura_cli.look import Look, find_look
from nedura_cli.output import Output
from nedura_cli.update_view import UpdatePicture, matrix_parts

__all__ = ["LiveView", "Picture", "PlainView", "View", "WireView", "choose"]

UPDATES: Final = (5, 6)
"""Steps that show an update."""


def lines_of(event: Event) -> list[str]:
    """What people read of an event: a code comes with its link first, alone on its line and never wrapped."""
    shown = [line for line in event.copy_terminal.split("\n") if line.strip()]
    return [event.link, f"Code: {event.code}", *shown] if isinstance(event, Code) else shown


class View(Protocol):
    """Shows one event."""

    def show(self, event: Event) -> None:
        """Show it now."""
        ...

    def close(self) -> None:
        """Nothing more comes."""
        ...


class WireView:
    """One wire event a line on stdout, and nothing else."""

    def __init__(self, output: Output) -> None:
        self._output = output

    def show(self, event: Event) -> None:
        """Print its wire form."""
        self._output.event(event)

    def close(self) -> None:
        """Nothing to do."""


class PlainView:
    """Append-only lines."""

    def __init__(self, output: Output) -> None:
        self._output = output

    def show(self, event: Event) -> None:
        """Print its terminal copy, the demo's own lines as they are and everything else indented."""
        if isinstance(event, (DemoStep, DemoFinished, Fact)):
            self._output.line(event.copy_terminal)
            return
        for line in lines_of(event):
            self._output.line(f"   {line}")

    def close(self) -> None:
        """Nothing to do."""


class Picture:
    """The seven steps, the newest lines of the running one, and what was found true; drawn by rich at any moment."""

    def __init__(self, look: Look) -> None:
        self._look = look
        self._steps: dict[int, DemoStep] = {}
        self._started: dict[int, float] = {}
        self._lines: deque[str] = deque(maxlen=9)
        self._facts: dict[int, list[str]] = {}
        self._last: DemoFinished | None = None
        self._running = 0
        self._update: UpdatePicture | None = None
        self._matrix: FleetMatrix | None = None
        self._spinner = Spinner("dots")

    def show(self, event: Event) -> None:
        """Take it into the picture."""
        match event:
            case DemoStep():
                self._steps[event.number] = event
                self._started.setdefault(event.number, time.monotonic())
                self._running = event.number if event.state == "started" else 0
                self._update = UpdatePicture(self._look) if self._running in UPDATES else None
                self._lines.clear()
            case DemoFinished():
                self._last = event
            case Fact():
                self._facts.setdefault(self._running, []).append(event.text)
            case FleetMatrix():
                self._matrix = event
            case _ if self._update is not None:
                self._update.show(event)
            case _:
                self._lines.extend(lines_of(event))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw it."""
        yield self._look.text("nedura demo", "banner_title", bold=True)
        yield self._table(min(options.max_width, 100))
        if self._update is not None:
            self._update.reserved = 3 + len(STEPS) + sum(map(len, self._facts.values()))
            yield Text("")
            yield self._update
        elif self._running and self._lines:
            lines = Group(*(self._line(line) for line in self._lines))
            yield Panel(
                lines,
                box=self._look.box,
                border_style=self._look.style("banner_border"),
                title=self._look.text(self._steps[self._running].title, "banner_dim"),
                title_align="left",
            )
        if self._last is not None and self._matrix is not None:
            yield Text("")
            yield from matrix_parts(self._look, self._matrix, options.max_width)
            yield Text("")
        if self._last is not None:
            key = "ui_ok" if self._last.ok else "ui_error"
            for line in self._last.copy_terminal.strip().split("\n"):
                yield self._look.text(line, key, bold=True)

    def _table(self, width: int) -> Table:
        table = Table.grid(padding=(0, 1))
        table.width = width
        table.add_column(width=2)
        table.add_column(ratio=1)
        table.add_column(justify="right")
        for number, title in enumerate(STEPS, 1):
            step = self._steps.get(number)
            table.add_row(
                self._mark(step),
                self._look.text(title, "banner_text" if step else "banner_dim"),
                self._time(number, step),
            )
            for fact in self._facts.get(number, ()):
                table.add_row("", self._look.text(fact, "banner_dim"), "")
        return table

    def _mark(self, step: DemoStep | None) -> Spinner | Text:
        if step is None:
            return self._look.text("·", "banner_dim")
        if step.state == "started":
            return self._spinner if self._look.terminal.unicode else self._look.text(">", "ui_accent")
        return self._look.text("✓", "ui_ok") if step.state == "done" else self._look.text("✗", "ui_error")

    def _time(self, number: int, step: DemoStep | None) -> Text:
        if step is None:
            return Text("")
        seconds = step.seconds if step.state != "started" else time.monotonic() - self._started[number]
        return self._look.text(f"{seconds:.1f} s", "banner_dim")

    def _line(self, line: str) -> Text:
        """A line of the running step; an address is never cut."""
        text = self._look.text(line)
        text.no_wrap, text.overflow = "://" not in line, "ellipsis" if self._look.terminal.unicode else "crop"
        return text


class LiveView:
    """The picture, redrawn."""

    def __init__(self, look: Look, console: Console) -> None:
        self._picture = Picture(look)
        self._live = Live(self._picture, console=console, refresh_per_second=8, vertical_overflow="crop")
        self._live.start()

    def show(self, event: Event) -> None:
        """Take it into the picture."""
        self._picture.show(event)

    def close(self) -> None:
        """Leave the last picture on the screen."""
        self._live.vertical_overflow = "visible"
        self._live.stop()


def choose(output: Output) -> View:
    """The view that fits where stdout leads."""
    if output.as_json:
        return WireView(output)
    if not output.interactive:
        return PlainView(output)
    look = find_look(output.stdout)
    return LiveView(look, look.console(output.stdout))
