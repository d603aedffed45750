"""A file of the owner's own that nothing loads is not run, and stops no update: only what the version has is asked for (C048)."""

from __future__ import annotations

from pathlib import Path

import pytest

from nedura.errors import UpdateError
from nedura.product import NEDURA
from nedura.testing.installs import make_site
from tests.kits.sealed import Stages


async def test_a_scratch_file_in_the_package_is_not_run(tmp_path: Path) -> None:
    site = make_site(tmp_path, "own", product=NEDURA)
    ran = tmp_path / "ran"
    (site.checkout / "nedura/scratch.py").write_text(f"open({str(ran)!r}, 'w')\nraise SystemExit('mine')\n")
    (site.checkout / "nedura/trials").mkdir()
    (site.checkout / "nedura/trials/__init__.py").write_text(f"open({str(ran)!r}, 'w')\n1 / 0\n")
    site.origin.commit({"more.txt": "more\n"}, "two")
    await Stages(site).update(probe=False)
    assert not ran.exists()
    current = site.paths.current.resolve()
    assert current.name == "000002"
    assert (current / "tree/nedura/scratch.py").is_file()


async def test_an_edit_of_a_file_of_the_version_is_judged(tmp_path: Path) -> None:
    site = make_site(tmp_path, "own", product=NEDURA)
    with (site.checkout / "nedura/update/pipeline.py").open("a") as file:
        file.write("from nedura import scratch\n")
    (site.checkout / "nedura/scratch.py").write_text("1 / 0\n")
    site.origin.commit({"more.txt": "more\n"}, "two")
    with pytest.raises(UpdateError, match=r"nedura\.update\.pipeline: ZeroDivisionError") as caught:
        await Stages(site).update(probe=False)
    assert "nedura/scratch.py, nedura/update/pipeline.py" in caught.value.advice
