"""The one list of what a snapshot holds, and which older snapshot may go."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nedura.errors import RecordCorrupt, UsageError
from nedura.update.state.snapshot_manifest import (
    Manifest,
    parse_manifest,
    prunable,
    snapshot_folder,
    snapshot_name,
)
from nedura.update.state.snapshot_set import SNAPSHOT_SET, in_set


def manifest(
    number: int, files: dict[str, int], *, failed: tuple[str, ...] = (), label: str = "pre-update"
) -> Manifest:
    name = f"20260101-0000{number:02d}-{label}"
    return Manifest(id=name, timestamp=name[:15], label=label, files=files, failed_dbs=failed)


def test_the_set_is_closed_and_relative() -> None:
    names = [member.path for member in SNAPSHOT_SET]
    assert len(set(names)) == len(names)
    assert all(not name.startswith(("/", ".../")) and ".." not in name.split("/") for name in names)
    assert {"state.db", "config.yaml", ".env", "auth.json", "cron/jobs.json", "guest_handoff.json"} <= set(
        names
    )


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("state.db", True),
        ("cron/jobs.json", True),
        ("kanban/boards/a/b.db", True),
        ("pairing/x.json", True),
        ("kanban/boards/a/workspaces/x", False),
        ("kanban/boards/attachments/x", False),
        ("kanban/boards", False),
        ("../state.db", False),
        ("/state.db", False),
        ("cron/../state.db", False),
        ("cron//jobs.json", False),
        ("pairing/../../x", False),
        ("pairing/a\\b", False),
        ("pairing/a\0b", False),
        ("bin/nedura", False),
        ("gateway.pid", False),
        ("", False),
    ],
)
def test_only_paths_of_the_set_may_be_named(path: str, expected: bool) -> None:
    assert in_set(path) is expected


@given(st.text(max_size=60))
def test_no_path_that_leaves_the_home_is_in_the_set(path: str) -> None:
    if in_set(path):
        assert not path.startswith("/")
        assert ".." not in path.split("/")


@pytest.mark.parametrize(
    "name", ["", "..", "../x", "a/b", "20260101-000000-", "20260101-000000-A", "x", "20260101-000000-a\n"]
)
def test_an_id_is_our_own_pattern(name: str) -> None:
    with pytest.raises(UsageError):
        snapshot_folder(Path("/h"), name)


def test_a_taken_name_gets_a_number() -> None:
    assert snapshot_name([], "20260101-000000", "pre-update") == "20260101-000000-pre-update"
    taken = ["20260101-000000-pre-update", "20260101-000000-pre-update-2"]
    assert snapshot_name(taken, "20260101-000000", "pre-update") == "20260101-000000-pre-update-3"
    with pytest.raises(UsageError):
        snapshot_name([], "20260101-000000", "../x")


def test_a_complete_one_replaces_all_older_of_its_label() -> None:
    older = [
        manifest(1, {"a": 1}),
        manifest(2, {"a": 1}, failed=("state.db",)),
        manifest(3, {"a": 1}, label="manual"),
    ]
    assert prunable(older, manifest(4, {}), 1) == [older[0].id, older[1].id]
    assert prunable(older, manifest(4, {}), 2) == [older[0].id]


def test_an_incomplete_one_never_pushes_out_a_complete_one() -> None:
    complete = manifest(1, {"state.db": 9, "config.yaml": 1})
    assert prunable([complete], manifest(2, {"config.yaml": 1}, failed=("state.db",)), 1) == []


def test_incomplete_ones_do_not_pile_up() -> None:
    """Case C013: a run that fails the same way each time must not fill the disk."""
    complete = manifest(1, {"state.db": 9})
    existing = [complete]
    for number in range(2, 50):
        new = manifest(number, {"config.yaml": 1}, failed=("state.db",))
        gone = prunable(existing, new, 1)
        assert complete.id not in gone
        existing = [one for one in [*existing, new] if one.id not in gone]
    assert len(existing) == 2


@given(
    st.lists(
        st.tuples(st.frozensets(st.sampled_from("abcd")), st.booleans()),
        max_size=8,
    ),
    st.integers(1, 4),
)
def test_no_last_copy_is_ever_lost(history: list[tuple[frozenset[str], bool]], keep: int) -> None:
    """After an incomplete snapshot every file that any snapshot held is still held; after any, the newest complete one is there."""
    existing: list[Manifest] = []
    for number, (files, whole) in zip(itertools.count(), history, strict=False):
        new = manifest(number, dict.fromkeys(files, 1), failed=() if whole else ("x",))
        gone = prunable(existing, new, keep)
        before = set().union(*(one.files for one in [*existing, new]))
        assert new.id not in gone
        existing = [one for one in [*existing, new] if one.id not in gone]
        after = set().union(*(one.files for one in existing))
        if not new.complete:
            assert after == before
        newest = next((one for one in reversed([*existing]) if one.complete), None)
        assert (newest is not None) or not any(w for _, w in history[: number + 1])


def test_a_manifest_from_elsewhere_is_judged_before_it_is_used() -> None:
    good = Manifest(
        id="20260101-000000-manual",
        timestamp="20260101-000000",
        label="manual",
        files={"state.db": 3},
        sha256={"state.db": "0" * 64},
    )
    assert parse_manifest(good.record(), good.id).files == {"state.db": 3}
    changes: list[dict[str, object]] = [
        {"files": {"../../etc/passwd": 3}, "sha256": {"../../etc/passwd": "0" * 64}},
        {"files": {"/etc/passwd": 3}},
        {"files": {"bin/nedura": 3}, "sha256": {"bin/nedura": "0" * 64}},
        {"files": {"state.db": True}},
        {"files": {"state.db": -1}},
        {"files": ["state.db"]},
        {"sha256": {}},
        {"sha256": {"state.db": "zz"}},
        {"id": "20260101-000001-manual"},
    ]
    for change in changes:
        with pytest.raises(RecordCorrupt):
            parse_manifest({**good.record(), **change}, good.id)
    with pytest.raises(RecordCorrupt):
        parse_manifest([], good.id)
