"""What a plan must not keep to itself: whatever would stop the very update, or send it elsewhere."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import attrs
import pytest

from nedura.errors import StoreError
from nedura.testing.installs import Site, git
from nedura.update.events import PlanReady
from nedura.update.planning.admission import find_subject
from nedura.update.planning.deadlines import BACKUP_RATE
from nedura.update.planning.plan import Plan, plan_update
from nedura.update.planning.plan_collect import unwritable
from nedura.update.real import plan as plan_stage
from nedura.update.source.check import check_for_update
from tests.kits.sealed import Stages


async def plan_of(site: Site) -> Plan:
    return await plan_update(home=site.home, product=site.product)


async def test_a_remote_that_is_not_the_pinned_one_is_told(site: Site) -> None:
    git(site.checkout, "remote", "set-url", "origin", "https://u:needle@elsewhere.example/o/r.git")
    plan = await plan_of(site)
    assert plan.moved_to == "https://elsewhere.example/o/r.git"
    assert "The source's remote is https://elsewhere.example/o/r.git now" in plan.copy_terminal
    assert "needle" not in plan.copy_terminal
    git(site.checkout, "remote", "set-url", "origin", f"{site.origin.folder}/")
    assert (await plan_of(site)).moved_to == ""


async def test_a_source_that_is_gone_hides_neither_remote_nor_channel(stages: Stages) -> None:
    """A sealed install is updated without it."""
    site = stages.site
    shutil.rmtree(site.checkout)
    plan = await plan_of(site)
    assert plan.remote == str(site.origin.folder)
    assert plan.follows == "main (from install)"
    assert "it is gone" in plan.unreadable["source"]
    site.origin.commit({"toy/value.py": "VALUE = 2\n"})
    await stages.update()
    assert site.run().stdout.splitlines()[0] == "2"


async def test_a_home_in_which_no_update_works_is_told(site: Site) -> None:
    site.home.chmod(0o777)
    plan = await plan_of(site)
    assert "can be written by other users" in plan.copy_terminal
    assert "chmod go-w" in plan.copy_terminal
    site.home.chmod(0o700)
    assert (await plan_of(site)).conflicts == ()


async def test_an_install_that_cannot_be_told_says_why_it_is_not_updatable(
    site: Site, tmp_path: Path
) -> None:
    """The line ended behind its colon."""
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    nul = tmp_path / "a\0b"
    with pytest.raises(ValueError, match="null"):
        find_subject(site.home, site.product, dict(os.environ), anchor=nul)
    plan = await plan_update(home=site.home, product=site.product, anchor=nul)
    assert not plan.updatable_in_place
    assert plan.refusal
    assert f"Not updatable in place: {plan.refusal}" in plan.copy_terminal


@pytest.mark.parametrize("linked", [True, False])
async def test_a_damaged_record_of_an_install_comes_with_the_way_out(site: Site, linked: bool) -> None:
    """The plan said what was wrong and no more; the id was shown with our own folder in the place of the checkout."""
    anchor = Path(os.path.realpath(site.paths.current)) / "tree/toy/__init__.py"
    site.paths.record.write_text("{")
    if not linked:
        site.paths.source.unlink()
    subject = find_subject(site.home, site.product, dict(os.environ), anchor=anchor)
    assert subject.checkout == (site.checkout if linked else None)
    way_out = "Install it again: ./run install, in " + (str(site.checkout) if linked else "the folder")
    plan = await plan_update(home=site.home, product=site.product, anchor=anchor)
    assert way_out in plan.unreadable["source"]
    assert way_out in plan.copy_terminal
    with pytest.raises(StoreError) as caught:
        check_for_update(site.home, site.product, dict(os.environ), anchor=anchor)
    assert way_out in caught.value.diagnostics()


async def test_a_home_that_can_only_be_read_is_called_that(site: Site) -> None:
    """On a disk that was mounted read-only after a fault everything can be read, and nothing is "permission denied"."""

    def may_read(path: Path, mode: int) -> bool:
        return not mode & os.W_OK

    assert unwritable(site.home) == ""
    assert "its owner and mode" in unwritable(site.home, access=may_read)
    assert "read-only" in unwritable(site.home, access=may_read, flags=lambda path: os.ST_RDONLY)
    assert unwritable(site.home, access=lambda path, mode: False) == "", "what cannot be read is told as that"
    if os.geteuid() != 0:  # root may write everywhere
        home = site.home / "profiles/fixed"
        home.mkdir(parents=True)
        home.chmod(0o500)
        plan = await plan_of(site)
        home.chmod(0o700)
        assert plan.unreadable == {}
        assert "Profile fixed cannot be written" in plan.copy_terminal


async def test_an_install_whose_host_provides_the_packages_gets_no_time_for_them(site: Site) -> None:
    """What was recorded at the install counts, not what the product would choose today."""
    managed = attrs.evolve(site.product, environment="managed")
    plan = await plan_update(home=site.home, product=managed)
    assert plan.deadlines["prepare"] == 300
    record = site.paths.record
    record.write_text(record.read_text().replace('"none"', '"managed"'))
    assert (await plan_of(site)).deadlines["prepare"] == 2100


async def test_a_full_backup_gets_time_for_its_bytes(stages: Stages) -> None:
    """The snapshot set may be small where a home holds much else."""
    site = stages.site
    with open(site.home / "video.bin", "wb") as file:
        file.truncate(100 * BACKUP_RATE)
    (site.home / "state-snapshots").mkdir()
    with open(site.home / "state-snapshots/large", "wb") as file:  # no backup takes these along
        file.truncate(100 * BACKUP_RATE)
    quick = (await plan_of(site)).deadlines["snapshot"]
    asked = await plan_update(home=site.home, product=site.product, saves="full")
    assert asked.deadlines["snapshot"] == pytest.approx(quick + 100, abs=2)
    (site.home / "config.yaml").write_text("updates:\n  pre_update_backup: full\n")
    assert (await plan_of(site)).deadlines["snapshot"] == asked.deadlines["snapshot"]
    run = stages.run(no_backup=True)
    (told,) = [event async for event in plan_stage(run) if isinstance(event, PlanReady)]
    assert told.plan["deadlines"]["snapshot"] == quick
