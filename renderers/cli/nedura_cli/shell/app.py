"""The shell on a terminal: prompt, panel and status bar below, everything that was said above in the terminal's own scrollback."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from typing import Any, Final

import attrs
from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import ThreadedCompleter
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.input import Input
from prompt_toolkit.layout import (
    BufferControl,
    ConditionalContainer,
    FormattedTextControl,
    HSplit,
    Layout,
    Window,
)
from prompt_toolkit.layout.dimension import Dimension
from prompt_toolkit.layout.menus import CompletionsMenu
from prompt_toolkit.layout.processors import BeforeInput
from prompt_toolkit.output import Output as TerminalOutput
from rich.console import RenderableType
from rich.text import Text

from nedura.errors import ConfigError, NeduraError
from nedura.signin import SignInState
from nedura_cli.above import drawn, print_above
from nedura_cli.background import AskingInput, ask_background, may_ask
from nedura_cli.elements import StatusFacts, answer_edges, banner, status_parts
from nedura_cli.look import Look, background_of
from nedura_cli.newer import newer_version
from nedura_cli.shell.complete import SlashCompleter
from nedura_cli.shell.history import LineHistory
from nedura_cli.shell.keys import make_keys
from nedura_cli.shell.login import LoginPanel, settled_model
from nedura_cli.shell.session import Session, config_trouble, facts_for
from nedura_cli.shell.slash import COMMANDS, parse
from nedura_cli.shell.styles import depth_of, panel_fragments, style_of
from nedura_cli.shell.talk import Turn
from nedura_cli.tables import last_rows, wrapped
from nedura_cli.terminal import harmless

__all__ = ["Shell"]

TICK: Final = 1.0
"""Seconds between two looks at the skin and the terminal's background."""
PULSE: Final = 0.05
"""Seconds between two drawings of an answer that floods in."""
REFRESH: Final = 5
"""Ticks between two looks at account, model and gateway."""

States = AsyncGenerator[SignInState, None]


class _Box:
    """The edges around one answer: the upper one comes with its first text, so that there is none around an error."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._open = False
        self._lines: list[str] = []
        self._drawn = 0.0
        self._due: asyncio.TimerHandle | None = None

    def _edge(self, which: int) -> None:
        """An edge as wide as the terminal is now."""
        self._shell.say(
            answer_edges(self._shell.session.look, self._shell._size()[0])[which], "response_border"
        )

    def line(self, text: str) -> None:
        """A finished line of the answer."""
        self._lines.append(text)
        self.changed()

    def changed(self) -> None:
        """Something is new. Drawn at once, in a flood of text `PULSE` after the last time: each drawing costs as much as many lines."""
        loop = asyncio.get_running_loop()
        if self._due is None:
            self._due = loop.call_at(max(loop.time(), self._drawn + PULSE), self._draw)

    def _draw(self) -> None:
        if self._due is not None:
            self._due.cancel()
        turn, lines = self._shell.turn, self._lines
        self._due, self._lines = None, []
        if not self._open and (lines or (turn is not None and turn.tail)):
            self._open = True
            self._edge(0)
        if lines:
            self._shell._say_answer(lines)
        self._shell.redraw()
        self._drawn = asyncio.get_running_loop().time()

    def tool(self, text: str) -> None:
        """A line about a tool, behind the text before it."""
        self._draw()
        self._shell.say(text, "banner_dim")

    def close(self) -> None:
        """Nothing more comes."""
        self._draw()
        if self._open:
            self._edge(1)


class Shell:
    """One interactive shell.

    Args:
        session: what it works on.
        source: where keys come from; default the terminal.
        target: where it draws; default the terminal.
    """

    def __init__(
        self, session: Session, source: Input | None = None, target: TerminalOutput | None = None
    ) -> None:
        self.session = session
        self.panel: LoginPanel | None = None
        self.turn: Turn | None = None
        self._answering: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._facts = StatusFacts(profile=session.profile)
        self.buffer = Buffer(
            completer=ThreadedCompleter(  # its sources read files, and typing does not wait for them
                SlashCompleter(
                    {"profiles": session.profiles, "skins": session.skins, "models": session.models}
                )
            ),
            complete_while_typing=Condition(lambda: self.buffer.text.startswith("/")),
            history=LineHistory(session.home),
            multiline=True,
            on_text_changed=lambda _: self._typed(),
        )
        self.app: Application[None] = Application(
            layout=self._layout(),
            key_bindings=make_keys(self),
            style=style_of(session.look),
            color_depth=depth_of(session.look),
            input=source or self._keyboard(),
            output=target,
            mouse_support=False,
            refresh_interval=0.4,
            erase_when_done=True,
        )

    def _keyboard(self) -> Input | None:
        """The terminal's keys, without its answer about its background where it is asked; None leaves it to prompt_toolkit."""
        depth = self.session.look.terminal.depth
        asks = depth and os.name == "posix" and may_ask(os.environ, background_of(self.session.home))
        return AskingInput(sys.stdin) if asks else None

    # --- what it looks like

    def _layout(self) -> Layout:
        panel = Window(
            FormattedTextControl(self._panel), dont_extend_height=True, wrap_lines=False, style="class:panel"
        )
        tail = Window(FormattedTextControl(self._tail), dont_extend_height=True, wrap_lines=True)
        field = Window(
            BufferControl(self.buffer, input_processors=[BeforeInput(self._prompt)]),
            height=Dimension(min=1, max=8),
            dont_extend_height=True,
            wrap_lines=True,
        )
        rule = self.session.look.fit("─")
        return Layout(
            HSplit(
                [
                    ConditionalContainer(panel, Condition(lambda: self.panel is not None)),
                    ConditionalContainer(tail, Condition(lambda: self.turn is not None)),
                    Window(char="-" if rule == "?" else rule, height=1, style="class:rule"),
                    field,
                    CompletionsMenu(max_height=len(COMMANDS)),
                    Window(FormattedTextControl(self._status), height=1, style="class:status"),
                ]
            ),
            focused_element=field,
        )

    def _prompt(self) -> StyleAndTextTuples:
        look = self.session.look
        return [("class:prompt", look.fit(look.skin.branding.prompt_symbol) + " ")]

    def _size(self) -> tuple[int, int]:
        size = self.app.output.get_size()
        return size.columns, size.rows

    def _panel(self) -> StyleAndTextTuples:
        if self.panel is None:
            return []
        columns, rows = self._size()
        return panel_fragments(self.panel, self.session.look, columns, rows - 4)

    def _tail(self) -> StyleAndTextTuples:
        if self.turn is None:
            return []
        fit = self.session.look.fit
        shown: StyleAndTextTuples = []
        if self.turn.tail:
            columns, rows = self._size()
            text = last_rows(fit(harmless(self.turn.tail)), columns, max(1, rows - 8))
            shown.append(("class:tail", text + "\n"))
        shown.append(("class:wait", fit(self.turn.waiting())))
        return shown

    def _status(self) -> StyleAndTextTuples:
        look = self.session.look
        shown: StyleAndTextTuples = []
        facts = attrs.evolve(self._facts, busy=self.session.busy)
        for key, text in status_parts(look, facts, self._size()[0]):
            shown += [("class:status_bar_dim", look.fit("│"))] if shown else []
            shown.append((f"class:{key}", f" {text} "))
        return shown

    # --- what a session needs (Face)

    def say(self, text: str, key: str = "banner_text") -> None:
        """Print a line above the prompt, broken at blanks only, so that a link stays whole."""
        parts = [part for line in text.split("\n") for part in wrapped(harmless(line), self._size()[0])]
        self.show(Text("\n").join(self.session.look.text(part, key) for part in parts), wrap=False)

    def _say_answer(self, lines: Sequence[str]) -> None:
        """Lines of an answer as they came: long ones are left to the terminal, so that they can be copied."""
        look = self.session.look
        self.show(Text("\n").join(look.whole_text(line, "banner_text") for line in lines), wrap=False)

    def show(self, what: RenderableType, *, wrap: bool = True) -> None:
        """Print something above the prompt."""
        print_above(self.app, drawn(self.app, self.session.look, what, wrap=wrap))

    def relook(self, look: Look) -> None:
        """Draw everything in another skin from now on."""
        self.session.look = look
        self.app.style = style_of(look)
        self.redraw()

    def redraw(self) -> None:
        """Draw again soon."""
        self.app.invalidate()

    async def login(self, make: Callable[[Callable[[], bool]], States]) -> None:
        """Run a sign-in beside the prompt, or show the running one again."""
        if self.panel is not None:
            self.say("A sign-in is running already.")
            self.panel.show_code()
            return
        self.panel = LoginPanel(make, self.say, self.redraw, self._escape)
        try:
            last = await self.panel.run()
        finally:
            self.panel = None
            self.redraw()
        if settled_model(last) and self.session.model == "nous/welcome":
            self.session.model = ""
        self.session.names.forget()
        self._look_around()

    def _escape(self, sequence: str) -> None:
        self.app.output.write_raw(sequence)
        self.app.output.flush()

    async def answer(self, text: str) -> None:
        """Stream an answer; a second message waits until the first is answered or stopped."""
        if self.turn is not None:
            self.say("An answer is on its way; Ctrl-C stops it.", "ui_warn")
            return
        session, box = self.session, _Box(self)
        self.turn = turn = Turn(session.look, box.line, box.tool, box.changed)
        self._answering = asyncio.current_task()
        try:
            whole = await turn.run(
                session.stream, session.home, session.talk.asked(text), **session.route_options()
            )
            session.talk.answered(text, whole)
            box.close()
        except asyncio.CancelledError:
            turn.cut()
            box.close()
            self.say("Stopped.", "ui_warn")
        except NeduraError as error:
            turn.cut()
            box.close()
            self.say(error.diagnostics(), "ui_error")
        finally:
            self.turn, self._answering = None, None
            self.redraw()

    def leave(self) -> None:
        """End the shell."""
        if self.app.is_running:
            self.app.exit()

    # --- keys

    def submit(self) -> None:
        """Enter: send what is typed, or act on the panel when nothing is."""
        text = self.buffer.text
        if not text.strip():
            if self.panel is not None:
                self.panel.key("enter")
            return
        if self.turn is not None and parse(text).is_message:  # it stays typed
            self.say("An answer is on its way; Ctrl-C stops it.", "ui_warn")
            return
        self.buffer.append_to_history()
        self.buffer.reset()
        self.say(f"{self.session.look.skin.branding.prompt_symbol} {text}", "banner_dim")
        self.start(self._command(text))

    async def _command(self, text: str) -> None:
        """A line, and what it changed in the status bar."""
        await self.session.run(parse(text), self)
        await self._read_facts()

    def interrupt(self) -> None:
        """Ctrl-C: the innermost thing that can be stopped."""
        if self.panel is not None:
            self.panel.key("escape")
        elif self._answering is not None:
            self._answering.cancel()
        elif self.buffer.text:
            self.buffer.reset()
        else:
            self.say("Ctrl-D or /quit leaves.", "banner_dim")

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something beside the prompt."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:  # the border of a command: the shell goes on
            self.say(f"Unexpected {type(error).__name__}: {harmless(str(error)[:200])}", "ui_error")
        self.redraw()

    # --- life

    def _look_around(self) -> None:
        self.start(self._read_facts())

    async def _read_facts(self) -> None:
        self._facts = await asyncio.to_thread(facts_for, self.session)
        self.redraw()

    def _typed(self) -> None:
        """The first word after `/model ` asks for the list; the completion follows when it comes."""
        if self.buffer.text.startswith("/model ") and self.session.names.due(self.session.home):
            self.start(self._learn_models())

    async def _learn_models(self) -> None:
        if await self.session.names.learn(self.session.home) and self.buffer.text.startswith("/model "):
            self.buffer.start_completion(select_first=False)

    def _heed_background(self) -> None:
        """The terminal has said how its background is."""
        source, look = self.app.input, self.session.look
        light = source.answers.light if isinstance(source, AskingInput) else None
        if light is not None and light != look.terminal.light:
            self.relook(Look(look.skin, attrs.evolve(look.terminal, light=light)))

    async def _heed_skin(self) -> None:
        try:
            look = await asyncio.to_thread(self.session.new_look)
        except ConfigError as error:
            self.say(f"The skin stays as it is: {error.message.rstrip('.')}.", "ui_warn")
            return
        if look is not None:
            self.relook(look)
            for warning in look.skin.warnings:
                self.say(f"{warning}.", "ui_warn")

    async def _watch(self) -> None:
        for tick in itertools.count():
            self._heed_background()
            await self._heed_skin()
            if tick % REFRESH == 0:
                await self._read_facts()
            await asyncio.sleep(TICK)

    async def _tell_newer(self) -> None:
        if text := await asyncio.to_thread(newer_version, self.session.root):
            self.say(text, "ui_accent")

    async def run(self) -> int:
        """Run until it is left."""
        if isinstance(self.app.input, AskingInput):
            await ask_background(self.app.input, self._escape)
            self._heed_background()
        self._facts = await asyncio.to_thread(facts_for, self.session)
        columns, _ = self._size()
        self.show(banner(self.session.look, self._facts, columns))
        for warning in self.session.look.skin.warnings:
            self.say(f"{warning}.", "ui_warn")
        if trouble := config_trouble(self.session):  # the banner can only say that no model is chosen
            self.say(trouble, "ui_warn")
        self.start(self._tell_newer())
        watch = asyncio.create_task(self._watch())
        try:
            await self.app.run_async()
        finally:
            await self._stop(watch)
        if self.session.updating is not None:
            self.show(Text("The update goes on; see: nedura logs update"))
        self.say(self.session.look.skin.branding.goodbye)
        return 0

    async def _stop(self, *more: asyncio.Task[None]) -> None:
        if self.panel is not None:
            self.panel.key("escape")
        tasks = [*self._tasks, *more]
        for task in tasks:
            task.cancel()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 3)
