"""Asking the person who watches an update, without stopping the loop; Ctrl-C works while the question waits."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Final

from nedura_cli.output import Output
from nedura_cli.update_plain import UpdateView

__all__ = ["asker"]

PATIENCE: Final = 300.0
"""Seconds until the default counts."""


def asker(
    view: UpdateView, output: Output, patience: float = PATIENCE
) -> Callable[[str, str], Awaitable[str]]:
    """How an update asks here.

    Args:
        view: what draws; it leaves the screen to the question.
        output: where the question is written.
        patience: seconds until the default counts.
    """

    async def ask(question: str, default: str) -> str:
        view.pause()
        choices = "[Y/n]" if default == "yes" else "[y/N]"
        output.stdout.write(f"{question} {choices} ")
        output.stdout.flush()
        try:
            async with asyncio.timeout(patience):
                await _readable(sys.stdin.fileno())
        except TimeoutError:
            output.line()
            return default
        line = sys.stdin.readline()
        if not line.endswith("\n"):
            output.line()
        return line.strip() or default

    return ask


async def _readable(descriptor: int) -> None:
    """Until a line is there; a terminal hands over whole lines."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(descriptor)
