"""The one wire form."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nedura.text import Secret
from nedura.wire import ForeignEvent, from_wire, to_json_line, to_wire


@attrs.frozen(kw_only=True)
class Sample:
    kind: ClassVar[str] = "sample"
    path: Path
    names: tuple[str, ...] = ()
    secret: Any = None

    @property
    def copy(self) -> str:
        return "short"

    @property
    def copy_terminal(self) -> str:
        return f"long {self.path}"


KNOWN = {"sample": Sample}


def test_the_wire_form_holds_kind_fields_and_both_registers() -> None:
    wire = to_wire(Sample(path=Path("/a"), names=("x", "y")))
    assert wire == {
        "kind": "sample",
        "path": "/a",
        "names": ["x", "y"],
        "secret": None,
        "copy": "short",
        "copy_terminal": "long /a",
    }
    assert "\n" not in to_json_line(Sample(path=Path("/a\nb")))


def test_a_secret_cannot_go_on_the_wire() -> None:
    with pytest.raises(TypeError):
        to_wire(Sample(path=Path("/a"), secret=Secret("x")))


def test_a_known_kind_comes_back_typed() -> None:
    event = Sample(path=Path("/a"), names=("x",))
    assert from_wire(json.loads(to_json_line(event)), KNOWN) == event


@given(st.dictionaries(st.text(max_size=10), st.none() | st.integers() | st.text(max_size=20), max_size=5))
def test_an_unknown_kind_keeps_everything_and_never_raises(fields: dict[str, Any]) -> None:
    record = {**fields, "kind": "from_the_future", "copy": "hello\x1b[2J", "copy_terminal": "there"}
    event = from_wire(record, KNOWN)
    assert isinstance(event, ForeignEvent)
    assert event.copy == "hello"
    again = to_wire(event)
    for key, value in fields.items():
        if key not in ("kind", "copy", "copy_terminal"):
            assert again[key] == value


def test_a_known_kind_of_another_shape_is_foreign() -> None:
    assert isinstance(from_wire({"kind": "sample", "path": "/a", "newer": 1}, KNOWN), ForeignEvent)
    assert isinstance(from_wire({"kind": "sample"}, KNOWN), ForeignEvent)
