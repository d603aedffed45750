"""The source's index in every form git knows: what is missing on purpose (a sparse checkout) is never taken for somebody's deletion."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nedura.errors import UpdateError
from nedura.testing.installs import TOY_FILES, Site, git, make_site
from tests.kits.sealed import Stages

EXTRA = {f"docs/page{n}.txt": f"page {n}\n" for n in range(5)}


@pytest.fixture
def split(tmp_path: Path) -> Site:
    """A sparse checkout (`docs` is not there) with a split index."""
    site = make_site(tmp_path, {**TOY_FILES, **EXTRA})
    git(site.checkout, "sparse-checkout", "set", "--no-cone", "/*", "!/docs/")
    git(site.checkout, "update-index", "--split-index")
    assert any(name.startswith("sharedindex.") for name in os.listdir(site.checkout / ".git"))
    assert not (site.checkout / "docs").exists()
    return site


async def test_what_a_sparse_checkout_with_a_split_index_leaves_out_is_no_deletion(split: Site) -> None:
    (split.checkout / "toy/value.py").write_text("VALUE = 7\n")
    git(split.checkout, "add", "toy/value.py")
    split.origin.commit({"more.txt": "more\n"}, "two")
    run = await Stages(split).update()
    assert run.candidate is not None
    assert (run.candidate.tree / "docs/page3.txt").read_text() == "page 3\n"
    assert split.run().stdout.splitlines()[0] == "7"
    assert [name for name in os.listdir(split.paths.folder) if name.startswith(".tmp")] == []


async def test_a_real_deletion_beside_a_split_index_is_carried(split: Site) -> None:
    (split.checkout / ".gitignore").unlink()
    split.origin.commit({"more.txt": "more\n"}, "two")
    run = await Stages(split).update()
    assert run.candidate is not None
    assert not (run.candidate.tree / ".gitignore").exists()
    assert (run.candidate.tree / "docs/page3.txt").is_file()


async def test_a_half_done_merge_in_a_split_index_is_seen(split: Site) -> None:
    git(split.checkout, "checkout", "-q", "-b", "side")
    (split.checkout / "toy/value.py").write_text("VALUE = 8\n")
    git(split.checkout, "commit", "-qam", "side")
    git(split.checkout, "checkout", "-q", "main")
    (split.checkout / "toy/value.py").write_text("VALUE = 9\n")
    git(split.checkout, "commit", "-qam", "main")
    git(split.checkout, "merge", "-q", "side", check=False)
    git(split.checkout, "update-index", "--split-index")
    with pytest.raises(UpdateError, match="middle of a merge"):
        await Stages(split).prepare()


@pytest.mark.parametrize("damage", ["no index", "damaged index", "shared part gone"])
async def test_without_a_usable_index_nothing_of_a_sparse_checkout_is_deleted(
    split: Site, damage: str
) -> None:
    git_dir = split.checkout / ".git"
    if damage == "no index":
        (git_dir / "index").unlink()
    elif damage == "damaged index":
        (git_dir / "index").write_bytes(b"DIRC nonsense")
    else:
        for path in git_dir.glob("sharedindex.*"):
            path.unlink()
    (split.checkout / "toy/value.py").write_text("VALUE = 7\n")
    split.origin.commit({"more.txt": "more\n"}, "two")
    run = await Stages(split).update()
    assert run.candidate is not None
    assert (run.candidate.tree / "docs/page3.txt").is_file()
    assert split.run().stdout.splitlines()[0] == "7"
