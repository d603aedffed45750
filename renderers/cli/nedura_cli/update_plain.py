"""How an update is shown where nothing is redrawn, and the choice between that and the live view."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Final, Protocol

from nedura.update import StageStarted
from nedura.wire import Event
from nedura_cli.output import Output

__all__ = ["PlainUpdate", "UpdateView", "choose_view"]

QUIET_TERMINAL: Final = 2.0
QUIET_PLAIN: Final = 30.0
"""Seconds without a line after which a view says that it goes on: on a terminal, and for screen readers and logs."""


class UpdateView(Protocol):
    """Shows an update."""

    def show(self, event: Event) -> None:
        """Show one event."""
        ...

    def tick(self) -> None:
        """Called a few times a second: say something if it was quiet for too long."""
        ...

    def pause(self) -> None:
        """A question is asked: draw nothing until the next event."""
        ...

    def close(self) -> None:
        """Nothing more comes."""
        ...


class PlainUpdate:
    """Append-only lines, and a heartbeat when nothing happens."""

    def __init__(self, output: Output, quiet: float, now: Callable[[], float] = time.monotonic) -> None:
        self._output = output
        self._quiet = quiet
        self._now = now
        self._spoke = self._began = now()
        self._stage = ""
        self._paused = False

    def show(self, event: Event) -> None:
        """Print its terminal copy."""
        self._paused = False
        if isinstance(event, StageStarted):
            self._stage, self._began = event.copy.rstrip("."), self._now()
        if event.copy_terminal or self._output.as_json:
            self._output.event(event)
            self._spoke = self._now()

    def tick(self) -> None:
        """A heartbeat line after a quiet while; never under `--json`."""
        now = self._now()
        if self._paused or now - self._spoke < self._quiet or self._output.as_json or not self._stage:
            return
        self._spoke = now
        self._output.line(f"  ... {self._stage}, {now - self._began:.0f} s")

    def pause(self) -> None:
        """No heartbeat until the next event."""
        self._paused = True

    def close(self) -> None:
        """Nothing to do."""


def choose_view(output: Output) -> UpdateView:
    """The view that fits where stdout leads."""
    if output.interactive:
        from nedura_cli.look import find_look  # only what is drawn pays for its drawing
        from nedura_cli.update_view import LiveUpdate

        look = find_look(output.stdout)
        return LiveUpdate(look, look.console(output.stdout))
    person = output.stdout.isatty() and not output.plain and os.environ.get("TERM") == "dumb"
    return PlainUpdate(output, QUIET_TERMINAL if person else QUIET_PLAIN)
