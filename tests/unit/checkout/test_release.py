"""What a release and its index may say: judged without a network."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nedura.errors import RefusedError, UpdateError
from nedura.update.source.release import (
    MAX_ARCHIVE,
    archive_remote,
    is_downgrade,
    parse_index,
    parse_note,
    windows_problem,
)

URL = "https://releases.test/nedura/latest.json"
INDEX: dict[str, Any] = {
    "schema": 1, "version": "1.2.0", "commit": "ab" * 20, "archive": "nedura-1.2.0.zip", "sha256": "cd" * 32, "size": 1000,
}  # fmt: skip
NOTE: dict[str, Any] = {
    "schema": 1, "version": "1.2.0", "commit": "ab" * 20, "archive": URL, "files": {"a/b.py": "cd" * 32},
}  # fmt: skip
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def test_a_sound_index_offers_an_archive_beside_it() -> None:
    offer = parse_index(INDEX, URL)
    assert offer.url == "https://releases.test/nedura/nedura-1.2.0.zip"
    assert (offer.version, offer.size, offer.sha256) == ("1.2.0", 1000, "cd" * 32)


BAD_INDEX: list[dict[str, Any]] = [
    {"schema": 2}, {"schema": True, "version": 1}, {"commit": "ab"}, {"commit": "-" * 40}, {"version": "--force"}, {"version": ""},
    {"sha256": "CD" * 32}, {"sha256": "cd"}, {"size": 0}, {"size": -1}, {"size": True}, {"size": 1.5}, {"size": MAX_ARCHIVE + 1},
    {"archive": "https://else.test/x.zip"}, {"archive": "http://releases.test/x.zip"}, {"archive": "//else.test/x.zip"},
    {"archive": "file:///etc/passwd"}, {"archive": "https://u:p@releases.test/x.zip"}, {"archive": 7},
]  # fmt: skip


@pytest.mark.parametrize("change", BAD_INDEX, ids=str)
def test_an_index_that_is_not_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(UpdateError) as caught:
        parse_index({**INDEX, **change}, URL)
    assert caught.value.stop_class == "fetch_failed"


@given(value=ANYTHING, key=st.sampled_from(sorted(INDEX)))
def test_no_index_and_no_note_ends_in_a_traceback(value: Any, key: str) -> None:
    for read, sound in ((lambda v: parse_index(v, URL), INDEX), (parse_note, NOTE)):
        for candidate in (value, {**sound, key: value}):
            try:
                read(candidate)
            except UpdateError:
                continue


BAD_NOTE: list[dict[str, Any]] = [
    {"commit": None}, {"version": 1}, {"files": []}, {"files": {"a": "x"}}, {"files": {"a": None}}, {"archive": None}, {"schema": 0},
]  # fmt: skip


@pytest.mark.parametrize("change", BAD_NOTE, ids=str)
def test_a_note_that_is_not_is_refused(change: dict[str, Any]) -> None:
    assert parse_note(NOTE).files == NOTE["files"]
    with pytest.raises(UpdateError):
        parse_note({**NOTE, **change})


@pytest.mark.parametrize(
    ("url", "fits"),
    [
        (URL, True), ("https://releases.test/main.zip", True), ("http://127.0.0.1:8000/x.json", True),
        ("http://releases.test/x.json", False), ("", False), ("https://releases.test", False), ("https://releases.test/x?a=b", False),
        ("https://releases.test/x#y", False), ("ssh://releases.test/x", False), ("/srv/x.json", False),
        ("https://user:secret@releases.test/x", False), ("ext::sh -c id", False),
    ],
)  # fmt: skip
def test_an_address_is_plain_https_or_this_machine(url: str, fits: bool) -> None:
    if fits:
        assert archive_remote(url).url == url
        return
    with pytest.raises(RefusedError) as caught:
        archive_remote(url)
    assert "secret" not in caught.value.message


@pytest.mark.parametrize(
    ("offered", "current", "older"),
    [
        ("1.2.0", "1.2.0", False), ("1.10.0", "1.9.9", False), ("1.9.9", "1.10.0", True), ("1.2.0rc1", "1.2.0", True),
        ("1.2.0", "1.2.0rc1", False), ("v2.0", "1.9", False), ("nightly", "nightly", False), ("nightly", "1.0", True),
        ("1.0", "nightly", True),
    ],
)  # fmt: skip
def test_what_is_older_or_cannot_be_ordered_is_a_downgrade(offered: str, current: str, older: bool) -> None:
    assert is_downgrade(offered, current) is older


VERSION = st.tuples(st.integers(0, 99), st.integers(0, 99), st.integers(0, 99))


@given(first=VERSION, second=VERSION)
def test_of_two_versions_at_most_one_is_a_downgrade(
    first: tuple[int, int, int], second: tuple[int, int, int]
) -> None:
    a, b = ".".join(map(str, first)), ".".join(map(str, second))
    assert is_downgrade(a, b) == (first < second)
    assert not (is_downgrade(a, b) and is_downgrade(b, a))


@pytest.mark.parametrize(
    ("path", "fits"),
    [
        ("nedura/main.py", True), ("a/.gitignore", True), ("a/console.py", True), ("a/b c.txt", True), ("a/ünï.py", True),
        ("a/CON", False), ("aux.py", False), ("a/nul.tar.gz", False), ("com1/x", False), ("a/lpt9.txt", False), ("a./b", False),
        ("a /b", False), ("a/b:c", False), ("a/b?", False), ("a/<b>", False), ("a\\b", False), ("a/b|c", False),
    ],
)  # fmt: skip
def test_names_that_windows_reads_differently_are_known(path: str, fits: bool) -> None:
    assert (windows_problem(path) == "") is fits
