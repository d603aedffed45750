"""What a terminal answers about its background is taken out of the keys, and nothing else is."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nedura_cli.background import Answers, may_ask

LIGHT = "\x1b]11;rgb:ffff/ffff/f0f0\x1b\\"
DARK = "\x1b]11;rgb:1e/1e/2e\x07"
ATTRIBUTES = "\x1b[?62;4;22c"


@pytest.mark.parametrize(
    ("answer", "light"),
    [
        (LIGHT, True),
        (DARK, False),
        ("\x1b]11;rgb:f/f/f\x07", True),
        ("\x1b]11;RGB:0000/0000/0000\x07", False),
        ("\x1b]11;rgba:ffff/ffff/ffff/0000\x07", True),
        ("\x1b]11;rgb:808/808/808\x07", True),
        ("\x1b]11;#ffffff\x07", None),
        ("\x1b]11;rgb:1/2\x07", None),
        ("\x1b]11;\x07", None),
    ],
)
def test_the_forms_of_an_answer(answer: str, light: bool | None) -> None:
    answers = Answers()
    assert answers.feed(answer + ATTRIBUTES) == ""
    assert (answers.light, answers.done) == (light, True)


KEYS = st.lists(
    st.sampled_from(
        ["a", "Z", "é", "/", "\r", "\x03", "\x1b[A", "\x1b[1;5C", "\x1bOP", "\x1bb", "]11;", "[?c"]
    ),
    max_size=6,
).map("".join)


@given(KEYS, KEYS, KEYS, st.sampled_from([LIGHT, DARK]), st.lists(st.integers(0, 60), max_size=6))
def test_what_is_typed_around_and_between_answers_comes_through(
    before: str, between: str, after: str, answer: str, cuts: list[int]
) -> None:
    answers = Answers()
    text = before + answer + between + ATTRIBUTES + after
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    typed = "".join(answers.feed(text[start:end]) for start, end in pairwise(places)) + answers.flush()
    assert typed == before + between + after
    assert (answers.light, answers.done) == (answer == LIGHT, True)


@pytest.mark.parametrize("keys", ["\x1b", "\x1b[", "\x1b]", "\x1b]1", "\x1b[?1"])
def test_the_beginning_of_an_answer_is_typed_after_all_when_nothing_follows(keys: str) -> None:
    answers = Answers()
    assert answers.feed(keys) == ""
    assert answers.flush() == keys
    assert answers.feed("x") == "x"


def test_an_endless_answer_is_no_answer() -> None:
    answers = Answers()
    flood = "\x1b]11;" + "f" * 10_000
    assert answers.feed(flood) == flood


@pytest.mark.parametrize(
    ("term", "colorfgbg", "background", "asked"),
    [
        ("xterm-256color", "", "auto", True),
        ("tmux-256color", "", "auto", True),
        ("xterm-256color", "", "light", False),
        ("xterm-256color", "", "dark", False),
        ("xterm-256color", "15;0", "auto", False),
        ("dumb", "", "auto", False),
        ("", "", "auto", False),
        ("linux", "", "auto", False),
        ("vt100", "", "auto", False),
    ],
)
def test_only_a_terminal_that_can_answer_is_asked_what_nobody_said(
    term: str, colorfgbg: str, background: str, asked: bool
) -> None:
    assert may_ask({"TERM": term, "COLORFGBG": colorfgbg}, background) is asked
