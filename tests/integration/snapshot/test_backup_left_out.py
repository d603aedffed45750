"""What a full backup leaves out by its name or kind, and what ends it instead."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import pytest

from nedura.errors import StoreError
from nedura.update.state.backup import ZIP_NOTE, write_backup
from nedura.update.state.code_files import code_in
from tests.integration.snapshot.test_backup_place import git, small_home

NOW = 1_000_000_000.0


def test_only_names_that_we_give_are_taken_for_work_of_ours(tmp_path: Path) -> None:
    """A folder of the user's was left out of every backup, and no line said so."""
    root = small_home(tmp_path / "h")
    ours = (
        ".nedura-backup.7.0a1b2c3d.partial",
        ".monday.zip.7.0a1b2c3d.partial",
        ".import-7-0a1b2c3d.partial",
    )
    for name in (*ours, ".draft.partial", "notes/.import-plan.partial"):
        (root / name).mkdir(parents=True)
        (root / name / "x").write_text("x")
    (root / ".download.partial").write_text("x")
    with zipfile.ZipFile(write_backup(root, now=NOW).path) as archive:
        mine = {".draft.partial/x", ".download.partial", "notes/.import-plan.partial/x"}
        assert set(archive.namelist()) == {*mine, "config.yaml", "state.db", ZIP_NOTE}


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone writes in folders of others")
def test_root_may_save_its_own_home_in_a_folder_of_another_user(tmp_path: Path) -> None:
    """A stick that a desktop has mounted, a folder of the host's in a container."""
    root = small_home(tmp_path / "h")
    place = tmp_path / "stick"
    place.mkdir()
    os.chown(place, 1000, 1000)
    assert Path(write_backup(root, now=NOW, target=place / "b.zip").path).is_file()
    assert os.listdir(place) == ["b.zip"]


def test_what_holds_no_database_of_ours_is_only_named(tmp_path: Path) -> None:
    """A pipe is no profile; a link to a disk that is not there may be one, and what to do is said."""
    root = small_home(tmp_path / "h")
    (root / "profiles").mkdir()
    os.mkfifo(root / "profiles/pipe")
    assert write_backup(root, now=NOW).skipped == {"profiles/pipe": "not a regular file"}
    (root / "profiles/coder").symlink_to(tmp_path / "disk/coder")
    with pytest.raises(StoreError, match="profiles/coder cannot be saved: a link") as found:
        write_backup(root, now=NOW)
    assert found.value.advice == "Put it right, or move it away."


@pytest.mark.parametrize(
    "place",
    ["installs/0123456789ab/generations/000001/tree/nedura/x.py", "venv/lib/site-packages/nedura/x.py"],
)
def test_a_home_that_its_owner_keeps_in_git_is_no_code_wherever_the_code_lies_in_it(
    tmp_path: Path, place: str
) -> None:
    """All that git tracks was taken for the code's checkout: 'There is nothing to back up.'"""
    root = small_home(tmp_path / "h")
    root.chmod(0o700)
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "mine")
    (root / place).parent.mkdir(parents=True)
    (root / place).touch()
    assert code_in(root, here=root / place).files == frozenset()
    git(root, "add", "-f", place)
    if "venv" in place:
        assert code_in(root, here=root / place).files == {"config.yaml", "state.db", place}
