"""A local edit that cannot travel is left out and named; the new version comes all the same, and nothing false is said of it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from nedura.errors import UpdateError
from nedura.testing.installs import Site, git
from nedura.update.generation.tree_rules import MAX_BLOB
from nedura.update.source.edit_rules import MAX_TOTAL, MAX_UNTRACKED, judge_untracked
from nedura.update.source.git import Git, find_git
from tests.kits.sealed import Stages

FILE = "README.md"


def _twin(checkout: Path) -> None:
    (checkout / "toy/VALUE.py").write_text("VALUE = 3\n")


def _folder_twin(checkout: Path) -> None:
    (checkout / "Toy").mkdir()
    (checkout / "Toy/other.py").write_text("A = 1\n")


def _grown(checkout: Path) -> None:
    os.truncate(checkout / FILE, MAX_BLOB + 1)


def _fifo(checkout: Path) -> None:
    (checkout / FILE).unlink()
    os.mkfifo(checkout / FILE)


def _lfs(checkout: Path) -> None:
    (checkout / ".gitattributes").write_text("*.bin filter=lfs diff=lfs merge=lfs -text\n")


@pytest.mark.parametrize(
    ("edit", "path", "why"),
    [
        (_twin, "toy/VALUE.py", "only in letter case"),
        (_folder_twin, "Toy/other.py", "only in letter case"),
        (_grown, FILE, "larger than 1024 MB"),
        (_fifo, FILE, "no regular file"),
        (_lfs, ".gitattributes", "git-lfs"),
    ],
)
async def test_an_edit_that_cannot_travel_stops_no_update(
    site: Site, edit: Callable[[Path], None], path: str, why: str
) -> None:
    site.origin.commit({FILE: "one\n"}, "a file to edit")
    stages = Stages(site)
    await stages.update()
    git(site.checkout, "pull", "-q", "--ff-only")
    (site.checkout / "toy/mine.py").write_text("MINE = 1\n")
    edit(site.checkout)
    site.origin.commit({"toy/value.py": "VALUE = 2\n"}, "two")
    await stages.update()
    assert site.run().stdout.splitlines()[0] == "2"
    tree = site.paths.current.resolve() / "tree"
    assert (tree / "toy/mine.py").is_file(), "the other edits are carried"
    assert not (tree / path).exists() or (tree / path).read_text() == "one\n"
    told = " ".join(event.copy_terminal for event in stages.events if hasattr(event, "copy_terminal"))
    assert why in told
    assert path in told


async def test_a_rename_of_case_alone_is_carried(site: Site) -> None:
    site.origin.commit({"toy/other.py": "A = 1\n"}, "a file to rename")
    stages = Stages(site)
    await stages.update()
    git(site.checkout, "pull", "-q", "--ff-only")
    git(site.checkout, "mv", "toy/other.py", "toy/Other.py")
    site.origin.commit({"toy/value.py": "VALUE = 2\n"}, "two")
    await stages.update()
    names = os.listdir(site.paths.current.resolve() / "tree/toy")
    assert "Other.py" in names
    assert "other.py" not in names


def test_untracked_files_are_bounded_in_all() -> None:
    assert judge_untracked("a", "file", MAX_UNTRACKED, MAX_TOTAL - MAX_UNTRACKED) == ""
    assert "in all" in judge_untracked("a", "file", 1, MAX_TOTAL)


def test_a_failure_names_the_command_and_not_its_settings(tmp_path: Path) -> None:
    with pytest.raises(UpdateError, match="git rev-parse failed"):
        Git(program=find_git(), repo=tmp_path).run("-c", "core.bare=true", "rev-parse", "HEAD")
