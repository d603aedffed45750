"""The shell without redraws: append-only lines for screen readers, `TERM=dumb` and `--plain`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Final

from rich.console import RenderableType

from nedura.signin import Code, SignInState
from nedura_cli.look import Look
from nedura_cli.newer import newer_version
from nedura_cli.output import Output
from nedura_cli.shell.login import four_lines
from nedura_cli.shell.session import Session, config_trouble, facts_for
from nedura_cli.shell.slash import parse
from nedura_cli.shell.talk import Turn

__all__ = ["PlainShell"]

HEARTBEAT: Final = 30.0

States = AsyncGenerator[SignInState, None]


class PlainShell:
    """Reads a line, does it, reads the next one."""

    def __init__(self, session: Session, output: Output) -> None:
        self.session = session
        self._output = output
        self._left = False

    def say(self, text: str, key: str = "") -> None:
        """Print a line."""
        self._output.line(self.session.look.text(text).plain)

    def show(self, what: RenderableType) -> None:
        """Print something drawn, without a colour or a box around it."""
        self.session.look.console(self._output.stdout).print(what)

    def relook(self, look: Look) -> None:
        """Nothing looks different here but the words."""
        self.session.look = look

    async def login(self, make: Callable[[Callable[[], bool]], States]) -> None:
        """Go through a sign-in; a line every 30 seconds while it waits."""
        heart = asyncio.create_task(self._heartbeat("Still waiting for the sign-in. Ctrl-C cancels."))
        try:
            async with aclosing(make(lambda: False)) as states:
                async for state in states:
                    told = four_lines(state) if isinstance(state, Code) else [state.copy_terminal]
                    for line in "\n".join(told).split("\n"):
                        self.say(line)
        finally:
            heart.cancel()

    async def answer(self, text: str) -> None:
        """Print an answer line by line."""
        session = self.session
        turn = Turn(session.look, self.say, self.say, lambda: None)
        heart = asyncio.create_task(self._heartbeat("Still waiting for the answer. Ctrl-C stops it."))
        try:
            whole = await turn.run(
                session.stream, session.home, session.talk.asked(text), **session.route_options()
            )
            session.talk.answered(text, whole)
        finally:
            turn.cut()
            heart.cancel()

    async def _heartbeat(self, text: str) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT)
            self.say(text)

    def leave(self) -> None:
        """End after this line."""
        self._left = True

    def run(self) -> int:
        """Run until it is left or the input ends."""
        facts = facts_for(self.session)
        words = self.session.look.skin.branding
        self.say(
            f"{words.agent_name}. Profile {facts.profile}, account {facts.account or 'none'}, model {facts.model or 'none'}."
        )
        self.say(words.welcome)
        if trouble := config_trouble(self.session):
            self.say(trouble)
        if newer := newer_version(self.session.root):
            self.say(newer)
        while not self._left:
            try:
                symbol = self.session.look.skin.branding.prompt_symbol
                text = input(f"{self.session.look.fit(symbol)} ")
            except EOFError:
                break
            except KeyboardInterrupt:
                self.say("")
                continue
            if text.strip():
                self._one(text)
        self.say(self.session.look.skin.branding.goodbye)
        return 0

    def _one(self, text: str) -> None:
        try:
            asyncio.run(self.session.run(parse(text), self))
        except KeyboardInterrupt:
            self.say("Stopped.")
        sys.stdout.flush()
