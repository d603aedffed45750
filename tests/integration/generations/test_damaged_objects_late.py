"""Objects of our own repository that are found broken behind the fetch: it is made again there, too, and the update goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from nedura.errors import UpdateError
from nedura.installs import InstallPaths, install_id_for
from nedura.testing.installs import Site, git
from nedura.update.events import Notice, Prepared
from nedura.update.generation.prepare import prepare
from tests.integration.checkout.test_unfinished_work import Desk
from tests.integration.checkout.test_unfinished_work import desk as desk  # the fixture
from tests.integration.generations.test_prep_damaged_repository import leftovers, spoil
from tests.kits.sealed import Stages


async def test_a_folder_of_the_target_that_edits_are_merged_into(site: Site) -> None:
    (site.checkout / "toy/mine.py").write_text("MINE = 1\n")
    stages = Stages(site)
    site.origin.commit({"toy/value.py": "VALUE = 2\n"}, "two")
    await stages.prepare()
    spoil(site.paths.repo, git(site.origin.folder, "rev-parse", "HEAD:toy"))
    await stages.update()
    assert "damaged and was made again" in stages.told("notice")[0].text
    assert site.run().stdout.splitlines()[0] == "2"
    assert (site.paths.current / "tree/toy/mine.py").read_text() == "MINE = 1\n"
    assert git(site.paths.repo, "fsck", "--connectivity-only", "--no-dangling") == ""
    assert leftovers(site) == []


async def test_a_file_of_the_target_that_an_earlier_try_fetched(site: Site) -> None:
    stages = Stages(site)
    site.origin.commit({"toy/value.py": "VALUE = 2\n"}, "two")
    await stages.prepare()
    spoil(site.paths.repo, git(site.origin.folder, "rev-parse", "HEAD:toy/value.py"))
    await stages.update()
    assert "damaged and was made again" in stages.told("notice")[0].text
    assert site.run().stdout.splitlines()[0] == "2"
    assert leftovers(site) == []


async def test_broken_objects_of_the_source_are_no_fault_of_ours(site: Site, tmp_path: Path) -> None:
    (site.checkout / "toy/mine.py").write_text("MINE = 1\n")
    git(site.checkout, "add", "toy/mine.py")
    git(site.checkout, "-c", "user.name=x", "-c", "user.email=x@x.invalid", "commit", "-qm", "mine")
    spoil(site.checkout / ".git", git(site.checkout, "rev-parse", "HEAD:toy"))
    site.origin.commit({"toy/value.py": "VALUE = 2\n"}, "two")
    told = ""
    with pytest.raises(UpdateError, match="damaged") as caught:
        async for event in prepare(Stages(site).run()):
            told += event.text if isinstance(event, Notice) else ""
    assert told == "", "nothing of ours was damaged"
    assert caught.value.stop_class == "broken_objects"
    assert "git fsck" in caught.value.advice
    assert leftovers(site) == []


async def test_a_checkout_is_no_different(desk: Desk) -> None:
    desk.origin.commit({"toy/value.py": "VALUE = 3\n"}, "three")
    await desk.prepare()
    install = InstallPaths(desk.home, install_id_for(desk.checkout))
    spoil(install.repo, git(desk.origin.folder, "rev-parse", "HEAD:toy/value.py"))
    events = await desk.prepare()
    assert [event.text for event in events if isinstance(event, Notice) and "made again" in event.text]
    (made,) = [event.candidate for event in events if isinstance(event, Prepared)]
    assert (made.tree / "toy/value.py").read_text() == "VALUE = 3\n"
