"""A version whose next update, way back or repair could not be loaded is refused: these are loaded late, so a start shows nothing."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest

from nedura.errors import UpdateError
from nedura.product import NEDURA
from nedura.testing.installs import TOY, TOY_FILES, make_site, own_files
from tests.kits.sealed import Stages

PIPELINE = "nedura/update/pipeline.py"
ROLLBACK = "nedura/update/generation/rollback.py"


def _pipeline(text: str) -> dict[str, str | bytes | None]:
    source = own_files()[PIPELINE]
    assert isinstance(source, bytes)
    return {PIPELINE: source + text.encode()}


@pytest.mark.parametrize(
    ("change", "told", "stop"),
    [
        (_pipeline("\n<<<<<<< HEAD\n"), "nedura/update/pipeline.py: invalid syntax", "target_syntax_error"),
        (
            _pipeline("\nfrom nedura.update.run import gone\n"),
            "nedura.update.pipeline: ImportError",
            "import",
        ),
        (_pipeline("\nundefined_name\n"), "nedura.update.pipeline: NameError", "import"),
        (
            {ROLLBACK: "import nedura.gone\n"},
            "nedura.update.generation.rollback: ModuleNotFoundError",
            "import",
        ),
        (
            _pipeline("\nimport a_package_nobody_locked\n"),
            "nedura.update.pipeline: ModuleNotFoundError",
            "import",
        ),
        (_pipeline("\nraise SystemExit(0)\n"), "nedura.update.pipeline: SystemExit", "import"),
    ],
    ids=[
        "markers",
        "a name that is gone",
        "an undefined name",
        "a module that is gone",
        "a package that is not locked",
        "an exit",
    ],
)
async def test_c048_a_late_module_that_cannot_be_loaded_stops_the_update(
    tmp_path: Path, change: dict[str, str | bytes | None], told: str, stop: str
) -> None:
    site = make_site(tmp_path, "own", product=NEDURA)
    site.origin.commit(change, "broken")
    with pytest.raises(UpdateError, match=told) as caught:
        await Stages(site).update(probe=False)
    assert caught.value.stop_class == stop
    assert site.paths.current.readlink() == Path("generations/000001")


async def test_a_late_module_that_lacks_an_optional_package_is_no_fault(tmp_path: Path) -> None:
    site = make_site(tmp_path, "own", product=NEDURA)
    site.origin.commit({"nedura/optional.py": "import a_package_of_an_extra\n"}, "optional")
    await Stages(site).update(probe=False)
    assert site.paths.current.readlink() == Path("generations/000002")


LATE: dict[str, str | bytes | None] = {
    "toy/late.py": "LATE = 1\n",
    "toy/use.py": "def later():\n    from toy import late\n    return late\n",
    "toy/main.py": str(TOY_FILES["toy/main.py"]) + "from toy import use\n",
}


async def test_c048_of_a_hosts_own_tree_what_is_loaded_late_must_compile(tmp_path: Path) -> None:
    site = make_site(tmp_path, {**TOY_FILES, **LATE}, product=attrs.evolve(TOY, roots=("",)))
    site.origin.commit({"toy/late.py": "<<<<<<< HEAD\n", "scratch.py": ">>>>>>> not ours\n"}, "broken")
    with pytest.raises(UpdateError, match=r"toy/late\.py") as caught:
        await Stages(site).update()
    assert caught.value.stop_class == "target_syntax_error"
    site.origin.commit({"toy/late.py": "LATE = 2\n"}, "mended; what nothing loads may be anything")
    await Stages(site).update()
    assert site.paths.current.readlink().name != "000001"
