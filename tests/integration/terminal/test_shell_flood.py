"""Answers that flood in: the shell stays at hand, draws little, loses nothing, and holds a bounded amount."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prompt_toolkit.keys import Keys

from nedura.errors import NeduraError
from nedura.skins import load_skin
from nedura_cli.look import Look
from nedura_cli.shell.app import PULSE, Shell, _Box
from nedura_cli.shell.keys import make_keys
from nedura_cli.shell.talk import LONGEST, SHOWN, Turn
from nedura_cli.tables import cells, last_rows
from nedura_cli.terminal import Terminal


@pytest.fixture
def look(tmp_path: Path) -> Look:
    return Look(load_skin(tmp_path, "ares"), Terminal(depth=256, redraws=True))


def turn_of(look: Look, said: list[str]) -> Turn:
    return Turn(look, said.append, said.append, lambda: None)


async def test_a_stream_that_never_waits_can_be_stopped(look: Look) -> None:
    async def stream(home: Path, messages: Any) -> AsyncGenerator[str, None]:
        while True:
            yield "x\n"

    running = asyncio.ensure_future(turn_of(look, []).run(stream, Path("/"), []))
    await asyncio.sleep(0.05)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(running, 5)


async def test_one_endless_line_costs_time_in_step_with_its_length_and_comes_whole(look: Look) -> None:
    async def stream(home: Path, messages: Any) -> AsyncGenerator[str, None]:
        for _ in range(100_000):
            yield "twenty letters here."
            tails.append(len(turn.tail))

    said: list[str] = []
    tails: list[int] = []
    turn = turn_of(look, said)
    start = time.process_time()
    whole = await turn.run(stream, Path("/"), [])
    assert time.process_time() - start < 8
    assert said == [whole]
    assert len(whole) == 2_000_000
    assert max(tails) <= 2 * SHOWN


async def test_an_answer_without_an_end_is_stopped(look: Look) -> None:
    async def stream(home: Path, messages: Any) -> AsyncGenerator[str, None]:
        while True:
            yield "x" * 1_000_000

    with pytest.raises(NeduraError, match="8 MiB"):
        await turn_of(look, []).run(stream, Path("/"), [])
    assert LONGEST == 8 * 1024 * 1024


class Face:
    """What a box needs of a shell; notes what was drawn."""

    def __init__(self, look: Look) -> None:
        self.session = SimpleNamespace(look=look)
        self.turn = SimpleNamespace(tail="")
        self.columns = 40
        self.drawn: list[Any] = []

    def _size(self) -> tuple[int, int]:
        return self.columns, 20

    def say(self, text: str, key: str = "") -> None:
        self.drawn.append(text)

    def _say_answer(self, lines: list[str]) -> None:
        self.drawn.append(lines)

    def redraw(self) -> None:
        """Nothing to draw."""


async def test_a_flood_of_lines_is_drawn_in_a_few_goes_in_order(look: Look) -> None:
    face = Face(look)
    box = _Box(cast(Shell, face))
    for number in range(1000):
        box.line(str(number))
    await asyncio.sleep(2 * PULSE)
    box.line("before the tool")
    box.tool("the tool")
    box.line("last")
    face.columns = 30
    box.close()
    upper, many, before, tool, last, lower = face.drawn
    assert many == [str(number) for number in range(1000)]
    assert (before, tool, last) == (["before the tool"], "the tool", ["last"])
    assert (cells(upper), cells(lower)) == (40, 30)
    await asyncio.sleep(2 * PULSE)
    assert len(face.drawn) == 6


@given(
    st.text(st.characters(codec="utf-8", categories=("L", "N")), max_size=400),
    st.integers(2, 60),
    st.integers(1, 6),
)
def test_the_end_of_a_long_line_fits_and_is_its_end(text: str, width: int, rows: int) -> None:
    shown = last_rows(text, width, rows)
    assert text.endswith(shown)
    assert cells(shown) <= width * rows
    assert shown == text or cells(shown) > width * (rows - 2) - 2 * width


def test_ctrl_z_suspends_the_shell_as_any_program() -> None:
    asked: list[str] = []
    app = SimpleNamespace(suspend_to_background=lambda: asked.append("suspend"))
    keys = make_keys(cast(Shell, SimpleNamespace(panel=None, buffer=SimpleNamespace(text="half typed"))))
    (binding,) = keys.get_bindings_for_keys((Keys.ControlZ,))
    binding.handler(cast(Any, SimpleNamespace(app=app)))
    assert asked == ["suspend"]
