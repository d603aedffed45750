"""The memory of versions that failed: a damaged one says the way on, hides no new failure, and one that works is taken off."""

from __future__ import annotations

import json

import pytest

from nedura.errors import RecordCorrupt, UpdateError
from nedura.testing.installs import Site
from tests.kits.sealed import Stages

BROKEN = {"toy/main.py": "import nothing_of_that_name\n"}


async def test_a_damaged_memory_says_the_way_on(site: Site) -> None:
    record = site.paths.folder / "failed.json"
    record.write_text("{")
    site.origin.commit({"toy/value.py": "VALUE = 2\n"}, "two")
    stages = Stages(site)
    with pytest.raises(RecordCorrupt) as caught:
        await stages.update()
    assert "--retry" in caught.value.advice
    assert record.read_text() == "{"
    await stages.update(retry=True)
    assert site.run().stdout.splitlines()[0] == "2"
    assert not record.exists()
    assert (site.paths.folder / "failed.json.corrupt").read_text() == "{"


async def test_a_damaged_memory_hides_no_new_failure(site: Site) -> None:
    (site.paths.folder / "failed.json").write_text("[]")
    site.origin.commit(BROKEN, "broken")
    with pytest.raises(UpdateError, match="nothing_of_that_name"):
        await Stages(site).update(retry=True)
    (kept,) = json.loads((site.paths.folder / "failed.json").read_text()).values()
    assert "nothing_of_that_name" in kept["reason"]


async def test_a_version_that_works_after_all_is_forgotten(site: Site) -> None:
    site.origin.commit({"toy/value.py": "VALUE = 2\n"}, "two")
    stages = Stages(site)
    run = await stages.prepare()
    assert run.candidate is not None
    record = site.paths.folder / "failed.json"
    record.write_text(json.dumps({run.candidate.inputs: {"reason": "a full disk", "at": ""}, "other": {}}))
    with pytest.raises(UpdateError, match="failed here before"):
        await stages.update()
    await stages.update(retry=True)
    assert json.loads(record.read_text()) == {"other": {}}
