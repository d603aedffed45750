"""The demo's handler ends when it is told to, and in any case."""

from __future__ import annotations

import asyncio
from pathlib import Path

from nedura.testing.handlers import slow_words


async def test_it_streams_for_as_long_as_the_message_says() -> None:
    words = [word async for word in slow_words("0.05", every=0.01)]
    assert words[0] == "word 1 "
    assert words[-1].startswith("done after ")


async def test_it_ends_when_the_file_is_there_or_after_its_longest(tmp_path: Path) -> None:
    finish = tmp_path / "finish"

    async def read() -> list[str]:
        return [word async for word in slow_words(f"until {finish}", every=0.01)]

    task = asyncio.create_task(read())
    await asyncio.sleep(0.05)
    assert not task.done()
    finish.touch()
    assert (await task)[-1].startswith("done after ")
    finish.unlink()
    words = [word async for word in slow_words(f"until {finish}", every=0.01, longest=0.05)]
    assert words[-1].startswith("done after ")
