"""What a note says where a file system has no locks: only what is certainly over lets a generation go (generations.md 9)."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nedura.update.generation.lease import DAY, Note, Table, why_noted

HERE = Table("machine", "boot", "pid:[1]")
LIVING = {7: 100}


def note(pid: int = 7, start: int = 100, table: Table = HERE) -> Note:
    return Note("000001", pid, start, table, Path("000001.7.100"))


@pytest.mark.parametrize(
    ("notes", "stays"),
    [
        ([], ""),
        ([note()], "in use"),
        ([note(pid=8)], ""),
        ([note(start=99)], ""),
        ([note(table=Table("machine", "an earlier boot", "pid:[1]"))], ""),
        ([note(table=Table("machine", "boot", "pid:[2]"))], "in use elsewhere, as far as can be told"),
        ([note(table=Table("another", "boot", "pid:[1]"))], "in use elsewhere, as far as can be told"),
        ([note(table=Table())], "in use elsewhere, as far as can be told"),
        ([note(pid=8), note()], "in use"),
    ],
)
def test_after_a_day_only_what_is_certainly_over_goes(notes: list[Note], stays: str) -> None:
    assert why_noted(notes, DAY, HERE, LIVING.get) == stays
    assert "day" in why_noted(notes, DAY - 1, HERE, LIVING.get)


words = st.sampled_from(["", "a", "b"])
tables = st.builds(Table, words, words, words)
notes = st.builds(note, st.sampled_from([7, 8]), st.sampled_from([99, 100]), tables)


@given(st.lists(notes, max_size=4), tables)
def test_nothing_goes_that_could_live(found: list[Note], here: Table) -> None:
    """It goes only if each note is of this machine, and of a start before, or of this very table and without its process."""
    goes = why_noted(found, DAY, here, LIVING.get) == ""
    over = [
        bool(here.machine)
        and one.table.machine == here.machine
        and (one.table.boot != here.boot or (one.table == here and LIVING.get(one.pid) != one.start))
        for one in found
    ]
    assert goes == all(over)
