"""What another user could have put into the source is not carried into what runs as its owner (threats.md 1)."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nedura.errors import RefusedError
from nedura.testing.installs import Site, make_site
from nedura.update.generation.places import private_group
from tests.kits.sealed import Stages


@pytest.fixture
def open_site() -> Iterator[Site]:
    """A site whose folders everybody may enter."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield make_site(folder)
    shutil.rmtree(folder)


def _file(checkout: Path) -> None:
    (checkout / "toy/evil.py").chmod(0o666)


def _folder(checkout: Path) -> None:
    (checkout / "toy").chmod(0o777)


def _group(checkout: Path) -> None:
    if private_group(os.geteuid()) is not None:
        pytest.skip("the group of this user is nobody else's")
    (checkout / "toy").chmod(0o775)


@pytest.mark.parametrize("expose", [_file, _folder, _group])
async def test_an_edit_that_others_could_have_made_is_left_out(
    open_site: Site, expose: Callable[[Path], None]
) -> None:
    (open_site.checkout / "toy/evil.py").write_text("EVIL = 1\n")
    (open_site.checkout / "mine.txt").write_text("mine\n")
    expose(open_site.checkout)
    open_site.origin.commit({"more.txt": "more\n"}, "two")
    stages = Stages(open_site)
    run = await stages.update()
    assert run.candidate is not None
    assert not (run.candidate.tree / "toy/evil.py").exists()
    assert (run.candidate.tree / "mine.txt").is_file()
    assert "toy/evil.py: other users can write" in stages.told("notice")[0].text


async def test_a_tracked_file_and_a_deletion_are_judged_alike(open_site: Site) -> None:
    (open_site.checkout / "toy/value.py").write_text("VALUE = 666\n")
    (open_site.checkout / "toy/__init__.py").unlink()
    _folder(open_site.checkout)
    open_site.origin.commit({"more.txt": "more\n"}, "two")
    run = await Stages(open_site).update()
    assert run.candidate is not None
    assert open_site.run().stdout.splitlines()[0] == "1"
    assert (run.candidate.tree / "toy/__init__.py").is_file()


async def test_below_a_private_folder_modes_do_not_matter(open_site: Site) -> None:
    (open_site.checkout / "toy/value.py").write_text("VALUE = 7\n")
    _folder(open_site.checkout)
    open_site.checkout.chmod(0o700)
    open_site.origin.commit({"more.txt": "more\n"}, "two")
    await Stages(open_site).update()
    assert open_site.run().stdout.splitlines()[0] == "7"


@pytest.mark.parametrize("place", [".git/objects", ".git/objects/pack"])
async def test_object_folders_that_others_can_write_to_are_refused(open_site: Site, place: str) -> None:
    (open_site.checkout / place).chmod(0o777)
    with pytest.raises(RefusedError, match="can be written by other users") as caught:
        await Stages(open_site).prepare()
    assert "chmod -R go-w" in caught.value.advice
