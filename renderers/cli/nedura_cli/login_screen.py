"""A sign-in on a terminal with a person before it: link and code as plain lines, below them a line that counts down and takes keys."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import Any

from prompt_toolkit.application import Application
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout import FormattedTextControl, Layout, Window
from prompt_toolkit.output import Output as TerminalOutput

from nedura.signin import Code, SignInState
from nedura_cli.above import drawn, print_above
from nedura_cli.look import Look
from nedura_cli.shell.login import LoginPanel
from nedura_cli.shell.styles import depth_of, panel_fragments, style_of
from nedura_cli.tables import wrapped
from nedura_cli.terminal import harmless

__all__ = ["LoginScreen"]

Make = Callable[[Callable[[], bool]], AsyncGenerator[SignInState, None]]
_KEYS = {"enter": "enter", "c": "c", "r": "r", "q": "escape", "escape": "escape", "c-c": "escape"}


class LoginScreen:
    """One sign-in.

    Args:
        make: makes the states, given the question whether the user cancelled.
        look: how it looks.
        announce: the lines for a code.
        source: where keys come from; default the terminal.
        target: where it draws; default the terminal.
    """

    def __init__(
        self,
        make: Make,
        look: Look,
        announce: Callable[[Code], list[str]],
        source: Input | None = None,
        target: TerminalOutput | None = None,
    ) -> None:
        self._look = look
        self._last: SignInState | None = None
        self.panel = LoginPanel(make, self._say, self._redraw, self._escape, announce=announce)
        self.app: Application[None] = Application(
            layout=Layout(Window(FormattedTextControl(self._lines), dont_extend_height=True)),
            key_bindings=self._keys(),
            style=style_of(look),
            color_depth=depth_of(look),
            input=source,
            output=target,
            refresh_interval=1.0,
            erase_when_done=True,
        )

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()
        for name, meaning in _KEYS.items():

            @keys.add(name)
            def _pressed(event: KeyPressEvent, meaning: str = meaning) -> None:
                self.panel.key(meaning)

        return keys

    def _lines(self) -> StyleAndTextTuples:
        size = self.app.output.get_size()
        return panel_fragments(self.panel, self._look, size.columns, size.rows - 2)

    def _say(self, text: str) -> None:
        width = self.app.output.get_size().columns
        for part in wrapped(harmless(text), width):
            print_above(self.app, drawn(self.app, self._look, self._look.text(part), wrap=False))

    def _escape(self, sequence: str) -> None:
        self.app.output.write_raw(sequence)
        self.app.output.flush()

    def _redraw(self) -> None:
        self.app.invalidate()

    async def run(self) -> SignInState | None:
        """Run it to its end; returns the last state."""
        self.app.create_background_task(self._follow())
        await self.app.run_async(handle_sigint=False)
        return self._last

    async def _follow(self) -> Any:
        try:
            self._last = await self.panel.run()
        finally:
            if self.app.is_running:
                self.app.exit()
