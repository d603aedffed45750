"""Hostile text in every field of every state and event is drawn harmless by every terminal surface."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from nedura.signin import SIGN_IN_STATES
from nedura.skins import load_skin
from nedura.update import known_kinds
from nedura.wire import ForeignEvent, from_wire, to_wire
from nedura_cli.elements import StatusFacts, answer_box, banner, status_parts
from nedura_cli.look import Look
from nedura_cli.output import Output
from nedura_cli.shell.login import LoginPanel
from nedura_cli.shell.talk import Turn
from nedura_cli.tables import table
from nedura_cli.terminal import Terminal
from nedura_cli.update_plain import PlainUpdate
from nedura_cli.update_view import UpdatePicture
from tests.kits.hostile import HOSTILE, hostile, is_harmless

CLASSES = {
    **{cls.__name__: cls for cls in known_kinds().values()},
    **{cls.__name__: cls for cls in SIGN_IN_STATES.values()},
}


@pytest.fixture(scope="module")
def look(tmp_path_factory: pytest.TempPathFactory) -> Look:
    return Look(load_skin(tmp_path_factory.mktemp("h"), "ares"), Terminal(depth=256, redraws=True))


def drawn(look: Look, what: Any, width: int = 80) -> str:
    stream = io.StringIO()
    look.console(stream, width=width).print(what)
    return stream.getvalue()


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_every_event_in_every_surface(name: str, look: Look) -> None:
    event = hostile(CLASSES[name])
    out, err, wire = io.StringIO(), io.StringIO(), io.StringIO()
    Output(stdout=out, stderr=err).event(event)
    Output(as_json=True, stdout=wire, stderr=err).event(event)
    assert is_harmless(out.getvalue())
    assert wire.getvalue().rstrip("\n").isprintable()
    assert json.loads(wire.getvalue())["kind"] == event.kind
    picture = UpdatePicture(look)
    picture.show(event)
    assert is_harmless(drawn(look, picture))
    plain = io.StringIO()
    PlainUpdate(Output(stdout=plain, stderr=err), 30).show(event)
    assert is_harmless(plain.getvalue())
    assert is_harmless(drawn(look, look.text(event.copy_terminal)))


def test_an_event_of_newer_code_is_harmless_too(look: Look) -> None:
    event = from_wire(
        {"kind": HOSTILE, "x": HOSTILE, "copy": HOSTILE, "copy_terminal": f"{HOSTILE}\n{HOSTILE}"}, {}
    )
    assert isinstance(event, ForeignEvent)
    out = io.StringIO()
    Output(stdout=out).event(event)
    assert is_harmless(out.getvalue())
    picture = UpdatePicture(look)
    picture.show(event)
    assert is_harmless(drawn(look, picture))
    assert to_wire(event)["x"] == HOSTILE


def test_the_pieces_of_the_shell(look: Look) -> None:
    facts = StatusFacts(profile=HOSTILE, account=HOSTILE, model=HOSTILE, gateway=HOSTILE, busy=HOSTILE)
    for width in (40, 80):
        assert is_harmless(drawn(look, banner(look, facts, width), width))
        assert is_harmless(drawn(look, answer_box(look, HOSTILE, width), width))
        assert all(text.isprintable() for _, text in status_parts(look, facts, width))
    assert look.tool_line(HOSTILE, HOSTILE).isprintable()
    assert all(line.isprintable() for line in table((HOSTILE,), [(HOSTILE,)]))


async def test_a_hostile_answer_and_a_hostile_tool(look: Look) -> None:
    said: list[str] = []

    class Tool:
        name, text = HOSTILE, HOSTILE

    async def stream(home: Path, messages: Any) -> Any:
        for piece in (HOSTILE, "\n", HOSTILE, Tool()):
            yield piece

    await Turn(look, said.append, said.append, lambda: None).run(stream, Path("/"), [])
    assert len(said) >= 3
    assert all(line.isprintable() for line in said)


async def test_a_hostile_code_in_the_panel(look: Look) -> None:
    said: list[str] = []
    code = hostile(SIGN_IN_STATES["code"])

    async def states(cancelled: Any) -> Any:
        yield code

    panel = LoginPanel(states, said.append, lambda: None, said.append)
    await panel.run()
    for key in ("enter", "r"):
        panel.key(key)
        assert all(look.text(line).plain.isprintable() for _, line in panel.lines(80, 24))
    assert all(line.isprintable() for line in said)


def test_json_values_survive_their_escapes() -> None:
    out = io.StringIO()
    Output(as_json=True, stdout=out).record({"kind": "x", "text": HOSTILE + "\U000e0041"})
    assert out.getvalue().rstrip("\n").isprintable()
    assert json.loads(out.getvalue())["text"] == HOSTILE + "\U000e0041"
