"""Message handlers for tests and the demo: they stream at a pace that the message itself names."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

__all__ = ["slow_words"]

LONGEST: Final = 300.0
"""Seconds after which a slow answer ends whatever was asked."""


async def slow_words(
    text: str, context: object = None, *, every: float = 0.1, longest: float = LONGEST
) -> AsyncIterator[str]:
    """Stream `word 1`, `word 2`, ... until the file named by the message exists, or for as many seconds as it names.

    Args:
        text: a number of seconds, or `until PATH`.
        context: what the gateway knows about the turn; not used.
        every: seconds between two words.
        longest: seconds after which it ends in any case.
    """
    del context
    order, _, where = text.partition(" ")
    finish = Path(where) if order == "until" else None
    seconds = longest if finish is not None else min(longest, float(text))
    start, number = time.monotonic(), 0
    while time.monotonic() - start < seconds and not (finish is not None and finish.exists()):
        number += 1
        yield f"word {number} "
        await asyncio.sleep(every)
    yield f"done after {number} words"
