"""What a prepare does not do twice: processes of git, bytecode of what did not change, flushes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import attrs
import pytest

from nedura.errors import UpdateError
from nedura.testing.installs import git
from nedura.update.source.target import tip_ref
from tests.kits.sealed import Stages


@pytest.fixture
def counted(tmp_path: Path) -> tuple[Mapping[str, str], Path]:
    """An environment whose git notes each of its runs."""
    real, log = shutil.which("git"), tmp_path / "runs"
    assert real is not None
    folder = tmp_path / "bin"
    folder.mkdir(mode=0o700)
    script = folder / "git"
    script.write_text(f'#!/bin/sh\nprintf "%s\\n" "$*" >>"{log}"\nexec "{real}" "$@"\n')
    script.chmod(0o755)
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}, log


async def test_a_look_that_finds_nothing_new_takes_few_processes(
    stages: Stages, counted: tuple[Mapping[str, str], Path]
) -> None:
    environ, log = counted
    await stages.prepare()
    run = await stages.prepare(attrs.evolve(stages.run(), environ=environ))
    assert not run.changed
    runs = log.read_text().splitlines()
    assert sum(" fetch " in line for line in runs) == 1
    assert not [line for line in runs if " update-ref " in line or " merge-base " in line]
    assert len(runs) <= 8, runs


BESIDE = """#!/bin/sh
case " $* " in
*" add "*) : >"{mark}" ;;
*" fetch "*)
    tries=0
    while [ ! -e "{mark}" ]; do
        tries=$((tries + 1))
        [ $tries -lt 100 ] || { echo "nobody read the edits meanwhile" >&2; exit 128; }
        sleep 0.1
    done ;;
esac
exec "{real}" "$@"
"""


async def test_edits_are_read_beside_the_fetch(stages: Stages, tmp_path: Path) -> None:
    await stages.prepare()
    real, folder = shutil.which("git"), tmp_path / "bin"
    folder.mkdir(mode=0o700)
    script = folder / "git"
    script.write_text(BESIDE.replace("{mark}", str(tmp_path / "mark")).replace("{real}", str(real)))
    script.chmod(0o755)
    (stages.site.checkout / "toy/mine.py").write_text("MINE = 1\n")
    stages.site.origin.commit({"toy/value.py": "VALUE = 7\n"})
    environ = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
    planless = attrs.evolve(stages.run(), environ=environ)
    run = await stages.prepare(planless)
    assert run.candidate is not None
    assert (run.candidate.tree / "toy/mine.py").read_text() == "MINE = 1\n"


async def test_a_fetch_that_fails_beside_the_edits_is_the_error_and_leaves_nothing(stages: Stages) -> None:
    await stages.prepare()
    shutil.move(stages.site.origin.folder, stages.site.origin.folder.with_name("away"))
    with pytest.raises(UpdateError) as failed:
        await stages.prepare()
    assert failed.value.stop_class
    assert not list(stages.site.paths.folder.glob(".tmp.edits.*"))


async def test_the_tip_is_kept_and_read_again_after_the_refs_were_packed(stages: Stages) -> None:
    site = stages.site
    await stages.prepare()
    first = git(site.origin.folder, "rev-parse", "HEAD")
    assert git(site.paths.repo, "rev-parse", tip_ref("main")) == first
    git(site.paths.repo, "pack-refs", "--all")
    assert not (site.paths.repo / tip_ref("main")).exists()
    second = site.origin.commit({"toy/value.py": "VALUE = 5\n"})
    await stages.update()
    assert git(site.paths.repo, "rev-parse", tip_ref("main")) == second
    git(site.origin.folder, "reset", "-q", "--hard", first)
    with pytest.raises(UpdateError, match="older than what runs"):
        await stages.update()


async def test_a_half_done_merge_is_named_without_a_copy_left(stages: Stages) -> None:
    checkout = stages.site.checkout
    for name, value in (("one", "7"), ("two", "8")):
        git(checkout, "checkout", "-q", "-B", name, "origin/main")
        (checkout / "toy/value.py").write_text(f"VALUE = {value}\n")
        git(checkout, "commit", "-q", "-a", "-m", name)
    with pytest.raises(AssertionError, match="merge"):
        git(checkout, "merge", "-q", "one")
    with pytest.raises(UpdateError, match="in the middle of a merge"):
        await stages.prepare()
    assert not [name for name in os.listdir(stages.site.paths.folder) if name.startswith(".tmp")]
