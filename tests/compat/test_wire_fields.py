"""An older release that waits for a newer completion knows its events: no field of v0.1.0's kinds travels that it never heard of.

A reader takes a record with a field too many as an event of no known kind; its view then loses stages and the matrix.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import attrs
import pytest

from nedura.fleet import Foreign, MatrixRow
from nedura.update.events import StageStarted
from nedura.update.kinds import known_kinds
from nedura.wire import LATER, from_wire, to_wire

OLD: dict[str, list[str]] = json.loads((Path(__file__).parent / "old_wire_fields.json").read_text())
"""Kind (or nested class) -> its fields in v0.1.0."""
OWN_WORDS = ("update_started", "update_finished")
"""What only the waiting half says; from a child these kinds are not shown."""


def classes() -> dict[str, type[Any]]:
    return {**known_kinds(), "MatrixRow": MatrixRow, "Foreign": Foreign}


@pytest.mark.parametrize("kind", sorted(set(OLD) - {*OWN_WORDS}))
def test_what_always_travels_was_known_to_the_first_release(kind: str) -> None:
    fields = attrs.fields(classes()[kind])
    always = {field.name for field in fields if not field.metadata.get("later")}
    assert always == set(OLD[kind]), "a new field takes metadata=LATER and a default; an old one stays"


def test_a_later_field_travels_only_when_it_says_something() -> None:
    plain, back = StageStarted(stage="deps"), StageStarted(stage="commit", going_back=True)
    assert LATER["later"]
    assert "going_back" not in to_wire(plain)
    assert to_wire(back)["going_back"] is True
    for event in (plain, back):
        assert from_wire(to_wire(event), known_kinds()) == event
