"""A fleet that is wider than a line of the event pipe: the parent must not take the truth for a flood and end the child."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from nedura.fleet import FleetMatrix, MatrixRow
from nedura.update.completion.second_half import _Stream
from nedura.update.kinds import known_kinds
from nedura.update.ledger.receipt import apply, opened
from nedura.wire import MAX_LINE, ForeignEvent, fitting_line, from_wire, to_wire
from tests.kits.pipeline import NEW

MEMBERS = 400


def matrix(count: int) -> FleetMatrix:
    rows = tuple(
        MatrixRow(
            profile=f"agent-{number:04}",
            pid=100_000 + number,
            state="current",
            code_sha=NEW.code_sha,
            home=Path(f"/home/someone/.nedura/profiles/agent-{number:04}"),
        )
        for number in range(count)
    )
    return FleetMatrix(expected=NEW, rows=rows)


def sent(record: dict[str, Any]) -> bytes:
    """What the child's stream really puts on the pipe."""
    read, write = os.pipe()
    found: list[bytes] = []

    def listen() -> None:
        while chunk := os.read(read, 65536):
            found.append(chunk)

    thread = threading.Thread(target=listen)
    thread.start()
    _Stream(write).send(record)
    os.close(write)
    thread.join()
    os.close(read)
    return b"".join(found)


def test_the_matrix_of_a_wide_fleet_fits_a_line_and_says_the_whole() -> None:
    whole = {**to_wire(matrix(MEMBERS)), "at": "2026-01-01T00:00:00Z"}
    assert len(json.dumps(whole)) > MAX_LINE, "the trap"
    line = sent(whole)
    assert len(line) <= MAX_LINE
    assert line.count(b"\n") == 1
    record = json.loads(line)
    assert record["cut"]["rows"] + len(record["rows"]) == MEMBERS
    event = from_wire({key: value for key, value in record.items() if key != "at"}, known_kinds())
    assert isinstance(event, ForeignEvent)
    assert event.copy == f"All {MEMBERS} gateways run the new version."
    assert "more lines" in event.copy_terminal.splitlines()[-1]
    assert apply(opened(), record)["fleet"] == record["rows"]


def test_what_fits_is_sent_as_it_is() -> None:
    record = to_wire(matrix(3))
    assert json.loads(fitting_line(record)) == json.loads(json.dumps(record))


@given(
    st.dictionaries(
        st.text(max_size=8),
        st.one_of(st.text(max_size=400), st.lists(st.text(max_size=40), max_size=60), st.integers()),
        max_size=8,
    )
)
def test_any_record_fits(fields: dict[str, Any]) -> None:
    line = fitting_line({"kind": "x", **fields, "copy": "c" * 500, "copy_terminal": "t\n" * 500}, limit=2048)
    assert len(line) <= 2048
    assert isinstance(json.loads(line), dict)
