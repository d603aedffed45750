"""What a tree may hold (threats.md 1, hostile tree)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nedura.errors import UpdateError
from nedura.update.generation.tree_rules import (
    Entry,
    check_entries,
    check_link,
    left_out,
    needs_lfs,
    parse_listing,
)

OID = "a" * 40


def entry(path: str, mode: str = "100644", size: int = 1) -> Entry:
    return Entry(mode, OID, size, path)


BAD = {
    "absolute": [entry("/etc/passwd")],
    "dotdot": [entry("a/../../b")],
    "dot": [entry("a/./b")],
    "empty part": [entry("a//b")],
    "git folder": [entry("a/.git/config")],
    "git folder in capitals": [entry(".GIT/config")],
    "git folder by short name": [entry("git~1/config")],
    "git folder with dots": [entry(".git./config")],
    "newline": [entry("a\nb")],
    "escape": [entry("a\x1b[31mb")],
    "undecodable": [entry("a\udcffb")],
    "option": [entry("-rf")],
    "option below": [entry("a/--upload-pack=x")],
    "twins": [entry("Readme"), entry("README")],
    "twin folders": [entry("Lib/a"), entry("lib/b")],
    "unicode twins": [entry("caf\u00e9"), entry("cafe\u0301")],
    "file and folder": [entry("a"), entry("A/b")],
    "submodule": [entry("sub", "160000")],
    "unknown kind": [entry("x", "100600")],
    "huge": [entry("x", size=(1 << 30) + 1)],
}


@pytest.mark.parametrize("entries", BAD.values(), ids=BAD)
def test_refused_by_name(entries: list[Entry]) -> None:
    with pytest.raises(UpdateError) as caught:
        check_entries(entries)
    assert caught.value.stop_class == "tree"
    assert caught.value.message.isprintable()


def test_too_many_bytes() -> None:
    with pytest.raises(UpdateError, match="more than is accepted"):
        check_entries([entry(f"f{i}", size=1 << 30) for i in range(9)])


def test_plain_trees_pass() -> None:
    check_entries([entry("a/b.py"), entry("a/c.py"), entry(".github/x"), entry("a-b"), entry("x", "120000")])
    check_entries([entry("sub", "160000")], submodules=True)


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("a", "/etc/passwd"),
        ("a", "../x"),
        ("a/b", "../../x"),
        ("a/b", "c/../../../x"),
        ("a", ".."),
        ("a", "x\0y"),
    ],
)
def test_escaping_links(path: str, target: str) -> None:
    with pytest.raises(UpdateError, match="leaves the tree"):
        check_link(path, target)


@pytest.mark.parametrize(
    ("path", "target"), [("a/b", "../x"), ("a", "b/c"), ("a/b/c", "../../x"), ("a", "a/../b")]
)
def test_inner_links(path: str, target: str) -> None:
    check_link(path, target)


@given(st.lists(st.sampled_from(["..", ".", "a", "b", ""]), max_size=8), st.integers(0, 3))
def test_a_link_that_passes_stays_inside(parts: list[str], depth: int) -> None:
    """Whatever the target, an accepted link resolves to a place below the tree."""
    import posixpath

    path = "/".join(["d"] * depth + ["link"])
    target = "/".join(parts)
    try:
        check_link(path, target)
    except UpdateError:
        return
    end = posixpath.normpath(posixpath.join("/tree", posixpath.dirname(path), target))
    assert end == "/tree" or end.startswith("/tree/")


def test_listing() -> None:
    data = (
        b"100644 blob "
        + OID.encode()
        + b"      12\ta b\n.py\x00160000 commit "
        + OID.encode()
        + b"       -\tsub\x00"
    )
    assert parse_listing(data) == [Entry("100644", OID, 12, "a b\n.py"), Entry("160000", OID, 0, "sub")]


@pytest.mark.parametrize(
    ("path", "expected"),
    [("a/__pycache__/x.py", True), ("a/b.pyc", True), ("b.pyo", True), ("a/b.py", False)],
)
def test_bytecode_is_never_materialised(path: str, expected: bool) -> None:
    assert left_out(path) is expected


def test_lfs() -> None:
    assert needs_lfs({"a/.gitattributes": "*.bin filter=lfs diff=lfs merge=lfs -text"}) == "a/.gitattributes"
    assert needs_lfs({".gitattributes": "# *.bin filter=lfs\n*.py text"}) == ""
