"""Lines on a narrow terminal: broken at blanks only, rows below each other, nothing lost."""

from __future__ import annotations

import io

from hypothesis import given
from hypothesis import strategies as st

from nedura_cli.output import Output
from nedura_cli.tables import cells, stacked, wrapped

WORDS = st.text(st.sampled_from("abc日本é./:-"), min_size=1, max_size=30)
LINES = st.builds(
    lambda start, words, gap: " " * start + (" " * gap).join(words),
    st.integers(0, 6),
    st.lists(WORDS, max_size=12),
    st.integers(1, 3),
)


@given(LINES, st.integers(10, 90))
def test_a_line_is_broken_at_blanks_and_loses_no_word(line: str, width: int) -> None:
    parts = [*wrapped(line, width)]
    assert " ".join(parts).split() == line.split()
    for part in parts:
        assert cells(part) <= width or len(part.split()) <= 1, "only a single word may be too long"


@given(LINES)
def test_a_line_that_fits_and_a_file_keep_every_blank(line: str) -> None:
    assert [*wrapped(line, 0)] == [line]
    assert [*wrapped(line, max(1, cells(line)))] == [line]


def test_what_goes_on_stands_below_its_own_beginning() -> None:
    assert [*wrapped("  ↷ pid 7: left alone", 14)] == ["  ↷ pid 7:", "    left alone"]
    assert [*wrapped("See: nedura skin list", 12)] == ["See: nedura", "skin list"]


def test_rows_below_each_other_name_their_cells() -> None:
    rows = [("*", "default", "sticky", "/srv", ""), ("", "coder", "", "/srv/profiles/coder", "writes code")]
    assert [*stacked(("", "profile", "", "home", "about"), rows)] == [
        "*  default  sticky",
        "    home: /srv",
        "coder",
        "    home: /srv/profiles/coder",
        "    about: writes code",
    ]


def test_a_file_gets_the_table_as_it_is() -> None:
    stream = io.StringIO()
    Output(stdout=stream).table(("", "name"), [("*", "x" * 200)])
    assert stream.getvalue() == f"   name\n*  {'x' * 200}\n"
