"""Shows a sign-in on a terminal: link and code first, as plain unwrapped lines, then what happens."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from nedura.signin import Code, Completed, SignInState, open_page, why_not
from nedura_cli.output import Output

__all__ = ["exit_code", "show_sign_in", "take_over"]

HEARTBEAT = 30.0
"""Seconds between two signs of life in plain mode."""

MakeStates = Callable[[Callable[[], bool]], AsyncGenerator[SignInState, None]]
"""Makes the generator, given the question whether the user cancelled."""


class _Interrupt:
    """Ctrl-C as a question: the first one cancels the flow politely, the second one ends the task."""

    def __init__(self) -> None:
        self.asked = False
        self._task: asyncio.Task[object] | None = None

    def __call__(self) -> bool:
        return self.asked

    def __enter__(self) -> _Interrupt:
        self._task = asyncio.current_task()
        try:
            asyncio.get_running_loop().add_signal_handler(signal.SIGINT, self._hear)
        except (NotImplementedError, RuntimeError, ValueError):  # not the main thread, or no such call here
            pass
        return self

    def __exit__(self, *problem: object) -> None:
        try:
            asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)
        except (NotImplementedError, RuntimeError, ValueError):
            pass

    def _hear(self) -> None:
        if self.asked and self._task is not None:
            self._task.cancel()
        self.asked = True


def show_sign_in(
    make: MakeStates,
    output: Output,
    *,
    browser: bool = True,
    qr: bool = False,
    heartbeat: float = HEARTBEAT,
) -> SignInState:
    """Run a sign-in and show every state of it; returns the last one.

    Args:
        make: makes the states.
        output: where they go.
        browser: a browser may be opened.
        qr: the link is shown as a QR code too.
        heartbeat: seconds between two signs of life in plain mode.

    Raises:
        KeyboardInterrupt: Ctrl-C a second time.
    """
    try:
        if output.interactive and sys.stdin.isatty():
            return asyncio.run(_on_screen(make, output, browser, qr))
        return asyncio.run(_show(make, output, browser, qr, heartbeat))
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


async def _on_screen(make: MakeStates, output: Output, browser: bool, qr: bool) -> SignInState:
    """With a person at the terminal: the same lines, and below them what is left of the time and the keys."""
    from nedura_cli.login_screen import LoginScreen
    from nedura_cli.look import find_look

    def announce(code: Code) -> list[str]:
        return [*code_lines(code, qr=qr), *_open(code, browser)]

    last = await LoginScreen(make, find_look(output.stdout), announce).run()
    assert last is not None
    return last


async def _show(make: MakeStates, output: Output, browser: bool, qr: bool, heartbeat: float) -> SignInState:
    last: SignInState | None = None
    beating = asyncio.ensure_future(_beat(output, heartbeat)) if output.plain else None
    try:
        with _Interrupt() as interrupted:
            async with aclosing(make(interrupted)) as states:
                async for state in states:
                    last = state
                    _one(state, output, browser, qr)
    finally:
        if beating is not None:
            beating.cancel()
    assert last is not None
    return last


async def _beat(output: Output, seconds: float) -> None:
    """A line now and then for those who cannot see a cursor blink."""
    while True:
        await asyncio.sleep(seconds)
        output.line("Still waiting for the sign-in.")


def take_over(state: Completed, output: Output) -> Completed:
    """Show a sign-in that needed no browser."""
    output.event(state)
    return state


def _one(state: SignInState, output: Output, browser: bool, qr: bool) -> None:
    if not isinstance(state, Code) or output.as_json:
        output.event(state)
        return
    for line in [*code_lines(state, qr=qr), *_open(state, browser)]:
        output.line(line)


def code_lines(code: Code, *, qr: bool = False) -> list[str]:
    """Link and code as plain lines that nobody wraps."""
    lines = [
        "To sign in, open this page:",
        "",
        f"  {code.link}",
        "",
        f"and check that it shows this code:  {code.code}",
    ]
    if code.page and code.page != code.link:
        lines.append(f"On another device: open {code.page} and type the code.")
    return [*lines, "", *(_qr(code.link) if qr else []), code.copy_terminal]


def _open(state: Code, browser: bool) -> list[str]:
    reason = why_not(os.environ)
    if browser and not reason and open_page(state.link):
        return ["The page is opening in your browser."]
    return [f"No browser is opened here: {reason}."] if browser and reason else []


def _qr(link: str) -> list[str]:
    import segno

    drawn = io.StringIO()
    segno.make(link, error="l").terminal(drawn, compact=True, border=1)
    return [f"  {line}" for line in drawn.getvalue().splitlines()]


def exit_code(state: SignInState) -> int:
    """0 signed in, 130 cancelled by the user, 1 anything else."""
    if state.kind == "cancelled":
        return 130
    return 0 if state.ok else 1
