"""A version that could not be started, finished or served is refused before it becomes current, whoever took the part out of it."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest

from nedura.errors import UpdateError
from nedura.testing.installs import TOY, TOY_FILES, Site, git, make_site
from tests.kits.sealed import Stages

PARTS = {"toy/gateway.py": "raise SystemExit('never asked')\n", "toy/finish.py": "FINISH = 1\n"}


@pytest.fixture
def whole(tmp_path: Path) -> Site:
    product = attrs.evolve(TOY, gateway_modules=("toy.gateway",), bootstrap="toy/finish.py")
    return make_site(tmp_path, {**TOY_FILES, **PARTS}, product=product)


@pytest.mark.parametrize("part", ["toy/main.py", "toy/finish.py", "toy/gateway.py"])
@pytest.mark.parametrize("who", ["publisher", "owner"])
async def test_a_version_without_an_essential_part_never_becomes_current(
    whole: Site, part: str, who: str
) -> None:
    if who == "publisher":
        whole.origin.commit({part: None}, "without it")
    else:
        whole.origin.commit({"toy/value.py": "VALUE = 2\n"}, "two")
        (whole.checkout / part).unlink()
    stages = Stages(whole)
    with pytest.raises(UpdateError, match=part) as caught:
        await stages.update(probe=False)
    assert caught.value.stop_class == "incomplete"
    assert ("local edit" in caught.value.advice) == (who == "owner")
    assert whole.paths.current.readlink() == Path("generations/000001")
    assert whole.run().stdout.splitlines()[0] == "1"


async def test_a_part_that_was_never_there_is_not_asked_for(stages: Stages) -> None:
    stages.site.origin.commit({"toy/value.py": "VALUE = 2\n"}, "two")
    await stages.update()
    assert git(stages.site.paths.repo, "rev-parse", "refs/generations/000002")
