"""A link among the profiles is one only where it leads to a home: an update writes folders and files into each profile."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from nedura.errors import ProfileError
from nedura.profiles import find_profile, list_profiles, stray_profiles
from nedura.testing.installs import make_site
from nedura.update.planning.plan import plan_update
from nedura.update.state.backup import ZIP_NOTE, write_backup
from nedura.update.state.snapshot_take import take_snapshot


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "user/home"
    (root / "profiles").mkdir(parents=True)
    (root / "config.yaml").write_text("a: 1\n")
    return root


def targets(root: Path) -> dict[str, Path]:
    documents = root.parents[1] / "documents"
    (documents / "letters").mkdir(parents=True)
    return {"docs": documents, "loop": root, "above": root.parent, "beside": root / "profiles"}


def test_a_link_to_any_folder_is_no_profile(root: Path) -> None:
    """Each was one: snapshots, folders, `.env` and configuration were written into it (/etc, for root)."""
    for name, target in targets(root).items():
        (root / "profiles" / name).symlink_to(target)
    assert [profile.name for profile in list_profiles(root)] == ["default"]
    strays = {stray.name: stray.reason for stray in stray_profiles(root)}
    assert "no home" in strays["docs"]
    assert all("this home lies in" in strays[name] for name in ("loop", "above", "beside"))
    with pytest.raises(ProfileError):
        find_profile(root, "docs")


@pytest.mark.parametrize("sign", ["config.yaml", "state.db", ".env", "gateway.lock", "SOUL.md", ""])
def test_a_link_to_a_home_or_to_an_empty_folder_stays_a_profile(root: Path, sign: str) -> None:
    """A profile on another disk; one that is begun there is empty."""
    other = root.parents[1] / "disk/big"
    other.mkdir(parents=True)
    if sign:
        (other / sign).write_text("")
        (other / "notes").mkdir()
    (root / "profiles/big").symlink_to(other)
    assert [profile.name for profile in list_profiles(root)] == ["default", "big"]
    assert stray_profiles(root) == ()


def test_a_full_backup_leaves_such_a_link_out_and_is_whole(root: Path) -> None:
    """A folder beside the home was packed whole; a link to one above it ended the backup."""
    made = targets(root)
    (made["docs"] / "letters/one.txt").write_text("x")
    for name, target in made.items():
        (root / "profiles" / name).symlink_to(target)
    taken = write_backup(root, now=0)
    assert taken.files == 1
    assert set(taken.skipped) == {f"profiles/{name}" for name in made}
    with zipfile.ZipFile(taken.path) as archive:
        assert archive.namelist() == ["config.yaml", ZIP_NOTE]


def test_a_linked_home_is_saved_in_itself(root: Path) -> None:
    other = root.parents[1] / "disk/big"
    other.mkdir(parents=True)
    (other / "config.yaml").write_text("b: 2\n")
    (root / "profiles/big").symlink_to(other)
    taken = take_snapshot("big", root / "profiles/big", label="manual", keep=1, now=0)
    assert taken is not None
    assert list(taken.manifest.files) == ["config.yaml"]
    assert (other / "state-snapshots" / taken.manifest.id / "config.yaml").read_text() == "b: 2\n"


def test_nothing_is_written_where_there_is_nothing_to_save(tmp_path: Path) -> None:
    """A lock and an empty folder for snapshots came into being in each."""
    (tmp_path / "notes").mkdir()
    assert take_snapshot("x", tmp_path, label="manual", keep=1, now=0) is None
    assert [path.name for path in tmp_path.iterdir()] == ["notes"]


async def test_the_plan_names_such_a_link(tmp_path: Path) -> None:
    site = make_site(tmp_path)
    (site.home / "profiles").mkdir(exist_ok=True)
    (site.home / "profiles/docs").symlink_to(site.checkout)
    plan = await plan_update(home=site.home, product=site.product)
    assert plan.profiles == ("default",)
    assert "profiles/docs: a link to a folder that is no home" in plan.copy_terminal
