"""A restore first saves what it writes over, and never throws that copy away for the sake of another restore."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nedura.errors import StoreError
from nedura.update.state.restore import UNFINISHED, restore_snapshot
from nedura.update.state.snapshot_manifest import list_snapshots
from tests.integration.snapshot.homes import make_database, rows, snap

NOW = 1_800_000_000


def labels(home: Path) -> list[str]:
    return sorted(manifest.label for manifest in list_snapshots(home)[0])


@pytest.fixture
def home(tmp_path: Path) -> Path:
    make_database(tmp_path / "state.db", 3)
    (tmp_path / "config.yaml").write_text("a: saved\n")
    return tmp_path


def test_what_a_restore_writes_over_is_saved_and_can_be_taken_back(home: Path) -> None:
    name = snap(home)
    (home / "config.yaml").write_text("a: newer\n")
    (home / "state.db").unlink()
    make_database(home / "state.db", 7)
    done = restore_snapshot(home, name, profile="default", now=NOW)
    assert (rows(home / "state.db"), (home / "config.yaml").read_text()) == (3, "a: saved\n")
    assert done.safety.endswith("-pre-restore")
    assert f"What was there before is in snapshot {done.safety}" in done.copy_terminal
    back = restore_snapshot(home, done.safety, profile="default", now=NOW + 1)
    assert (rows(home / "state.db"), (home / "config.yaml").read_text()) == (7, "a: newer\n")
    assert back.safety.endswith("-pre-restore-again"), "the copy that comes back is not pruned for it"
    again = restore_snapshot(home, back.safety, profile="default", now=NOW + 2)
    assert again.safety.endswith("-pre-restore")
    assert rows(home / "state.db") == 3


def test_many_restores_keep_one_copy_and_prune_no_other_label(home: Path) -> None:
    name = snap(home, 1, "manual")
    other = snap(home, 2, "pre-update")
    for number in range(4):
        restore_snapshot(home, name, profile="default", now=NOW + number)
    assert labels(home) == ["manual", "pre-restore", "pre-update"]
    assert {name, other} <= {manifest.id for manifest in list_snapshots(home)[0]}


def test_a_restore_that_was_cut_off_keeps_the_copy_from_before_it(home: Path) -> None:
    """The next one would save the half restored home in its place."""
    name = snap(home)
    (home / "config.yaml").write_text("a: newer\n")
    first = restore_snapshot(home, name, profile="default", now=NOW)
    assert not (home / UNFINISHED).exists()
    (home / UNFINISHED).touch()
    second = restore_snapshot(home, name, profile="default", now=NOW + 1)
    assert second.safety.endswith("-pre-restore-again")
    assert first.safety in [manifest.id for manifest in list_snapshots(home)[0]]
    assert not (home / UNFINISHED).exists()


def test_a_disk_that_cannot_take_the_copy_is_told_with_the_way_out(home: Path) -> None:
    name = snap(home)
    (home / "config.yaml").write_text("a: newer\n")
    (home / "state.db").unlink()
    with open(home / "state.db", "wb") as file:  # more than any disk has, as far as sizes tell
        file.truncate(1 << 42)
    with pytest.raises(StoreError, match="Nothing was changed") as caught:
        restore_snapshot(home, name, profile="default", now=NOW)
    assert "--no-safety" in caught.value.advice
    assert (home / "config.yaml").read_text() == "a: newer\n"
    assert not (home / UNFINISHED).exists()
    os.truncate(home / "state.db", 0)
    done = restore_snapshot(home, name, profile="default", now=NOW, safety=False)
    assert (done.safety, (home / "config.yaml").read_text()) == ("", "a: saved\n")
    assert "What was there before" not in done.copy_terminal
    assert labels(home) == ["pre-update"]


def test_what_the_copy_lacks_is_told(home: Path) -> None:
    name = snap(home)
    (home / "cron").mkdir()
    (home / "cron/jobs.json").symlink_to("nowhere")
    done = restore_snapshot(home, name, profile="default", now=NOW)
    assert f"{done.safety}, without cron/jobs.json" in done.copy_terminal


def test_an_empty_home_has_nothing_to_save(home: Path) -> None:
    name = snap(home)
    for path in (home / "state.db", home / "config.yaml"):
        path.unlink()
    assert restore_snapshot(home, name, profile="default", now=NOW).safety == ""
    assert rows(home / "state.db") == 3
