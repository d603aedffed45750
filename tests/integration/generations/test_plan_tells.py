"""What a plan must not keep to itself: whatever would stop the very update, or send it elsewhere."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from nedura.testing.installs import Site, git
from nedura.update.planning.admission import find_subject
from nedura.update.planning.plan import Plan, plan_update
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
