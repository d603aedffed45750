"""Candidates that come to nothing: gone by the hand that made them, and what killed runs left goes before it piles up."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from nedura.errors import UpdateError
from nedura.testing.installs import git
from nedura.update import real
from nedura.update.generation.collect import MANY
from nedura.update.run import Run
from nedura.update.validation.validate import validate
from tests.kits.sealed import Stages


def on_disk(stages: Stages) -> list[str]:
    return sorted(path.name for path in stages.site.paths.generations.iterdir())


async def fail(stages: Stages, number: int) -> Run:
    """A version whose entry point does not compile, prepared and refused."""
    stages.site.origin.commit({"toy/main.py": f"def ( # {number}\n"}, f"broken {number}")
    run = await stages.prepare()
    with pytest.raises(UpdateError, match="does not compile"):
        stages.events += [event async for event in validate(run)]
    return run


async def test_failures_in_quick_succession_leave_nothing(stages: Stages) -> None:
    """Within its ten minutes of grace each one stayed: a branch that is pushed to every minute filled the disk."""
    for number in range(3):
        run = await fail(stages, number)
        assert on_disk(stages) == ["000001", "000002"]
        real.tidy(run)
        assert on_disk(stages) == ["000001"]
    refs = git(stages.site.paths.repo, "for-each-ref", "--format=%(refname)", "refs/generations")
    assert refs.split() == ["refs/generations/000001"]
    assert stages.site.run().returncode == 0


async def test_one_that_is_held_stays_for_the_collection(stages: Stages) -> None:
    """A probe that outlives its check, say."""
    run = await fail(stages, 1)
    assert run.candidate is not None
    code = "import _generation, sys; print('held', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [run.candidate.python, "-I", "-B", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        real.tidy(run)
        assert on_disk(stages) == ["000001", "000002"]
        holder.kill()
    real.tidy(run)
    assert on_disk(stages) == ["000001"]


async def test_one_that_was_current_keeps_its_time_of_grace(stages: Stages) -> None:
    """A launcher may have named it a moment ago; the way back has taken the pointer from it."""
    stages.site.origin.commit({"toy/value.py": "VALUE = 2\n"})
    run = await stages.update()
    assert run.previous is not None
    for pointer, name in ((stages.site.paths.current, "000001"), (stages.site.paths.previous, "")):
        pointer.unlink()
        if name:
            pointer.symlink_to(f"generations/{name}")
    run.committed = False
    real.tidy(run)
    assert on_disk(stages) == ["000001", "000002"]


async def test_one_that_this_run_did_not_make_is_not_its_to_remove(stages: Stages) -> None:
    """A way back that fails names a kept generation as its candidate."""
    run = await fail(stages, 1)
    run.notes.pop("built")
    real.tidy(run)
    assert on_disk(stages) == ["000001", "000002"]


@pytest.mark.parametrize("pointer", ["current", "previous"])
async def test_one_that_a_pointer_names_stays(stages: Stages, pointer: str) -> None:
    run = await fail(stages, 1)
    link: Path = getattr(stages.site.paths, pointer)
    link.unlink(missing_ok=True)
    link.symlink_to("generations/000002")
    real.tidy(run)
    assert "000002" in on_disk(stages)


async def test_packages_of_earlier_tries_go_and_those_of_this_one_stay(stages: Stages) -> None:
    run = await fail(stages, 1)
    manifest = stages.site.paths.generations / "000002/manifest.json"
    manifest.chmod(0o644)
    manifest.write_text(manifest.read_text().replace('"env":""', '"env":"needed"'))
    for name in ("needed", "earlier"):
        (stages.site.paths.envs / name).mkdir(parents=True)
    real.tidy(run)
    assert os.listdir(stages.site.paths.envs) == ["needed"], "the next try wants the same ones"


async def test_what_killed_runs_left_is_collected_by_the_next_one(stages: Stages) -> None:
    """A timer that kills each update in its check: no run ever came to its own collection."""
    for number in range(MANY):
        await fail(stages, number)
    assert len(on_disk(stages)) == MANY + 1
    young = stages.site.paths.generations / on_disk(stages)[-1]
    for path in stages.site.paths.generations.iterdir():
        if path != young:
            os.utime(path, (1e9, 1e9))
    real.tidy(await fail(stages, MANY))
    assert on_disk(stages) == ["000001", young.name]
