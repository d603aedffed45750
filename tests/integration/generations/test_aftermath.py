"""After the commit: the source follows where that touches no edit; declared builds; stale locks of our repository."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import attrs
import pytest

from nedura.errors import RefusedError, UpdateError
from nedura.product import Build
from nedura.testing.installs import TOY, TOY_FILES, Site, git, make_site
from nedura.update.generation.aftermath import follow_source
from nedura.update.generation.generations import read_manifest, verify_generation
from tests.kits.sealed import Stages

from .evil import make_evil, markers


def follow(site: Site) -> str:
    return follow_source(site.paths, dict(os.environ))


async def test_the_source_follows_and_nothing_of_it_runs(stages: Stages, tmp_path: Path) -> None:
    site = stages.site
    marks = make_evil(site.checkout, tmp_path / "evil")
    wanted = site.origin.commit({"toy/value.py": "VALUE = 2\n"})
    await stages.update()
    assert follow(site) == f"fast-forwarded to {wanted[:12]}"
    assert git(site.checkout, "-c", "core.fsmonitor=false", "rev-parse", "HEAD") == wanted
    assert (site.checkout / "toy/value.py").read_text() == "VALUE = 2\n"
    assert markers(marks) == []
    assert follow(site) == "it is there already"


async def test_edits_that_are_not_touched_stay_and_the_source_follows(stages: Stages) -> None:
    site = stages.site
    (site.checkout / "toy/main.py").write_text("print('mine')\n")
    (site.checkout / "toy/extra.py").write_text("E = 1\n")
    wanted = site.origin.commit({"toy/value.py": "VALUE = 2\n"})
    await stages.update()
    assert follow(site) == f"fast-forwarded to {wanted[:12]}"
    assert (site.checkout / "toy/main.py").read_text() == "print('mine')\n"
    assert git(site.checkout, "status", "--porcelain").splitlines() == [" M toy/main.py", "?? toy/extra.py"]


@pytest.mark.parametrize("name", ["toy/value.py", "toy/new.py"])
async def test_an_edit_in_the_way_leaves_the_source_alone(stages: Stages, name: str) -> None:
    site = stages.site
    head = git(site.checkout, "rev-parse", "HEAD")
    (site.checkout / name).write_text("# mine\nVALUE = 1\n")
    site.origin.commit({"toy/value.py": "VALUE = 1\n# theirs\n", "toy/new.py": "# theirs\n"})
    await stages.update()
    assert follow(site).startswith("left: the new version changes files that are edited there")
    assert git(site.checkout, "rev-parse", "HEAD") == head
    assert (site.checkout / name).read_text() == "# mine\nVALUE = 1\n"


@pytest.mark.parametrize("kind", ["a file", "a file for a folder", "a folder for a file"])
async def test_an_ignored_file_in_the_way_leaves_the_source_alone(stages: Stages, kind: str) -> None:
    site = stages.site
    head = git(site.checkout, "rev-parse", "HEAD")
    (site.checkout / ".git/info/exclude").write_text("mine\n")
    place = site.checkout / ("mine/x" if kind == "a folder for a file" else "mine")
    place.parent.mkdir(exist_ok=True)
    place.write_text("precious\n")
    site.origin.commit({"mine/x" if kind == "a file for a folder" else "mine": "theirs\n"})
    await stages.update()
    with pytest.raises(UpdateError, match="in the way"):
        follow(site)
    assert place.read_text() == "precious\n"
    assert git(site.checkout, "rev-parse", "HEAD") == head
    assert git(site.checkout, "status", "--porcelain") == ""


async def test_other_branches_and_own_commits_are_left(stages: Stages) -> None:
    site = stages.site
    git(site.checkout, "checkout", "-q", "-b", "side")
    site.origin.commit({"toy/value.py": "VALUE = 2\n"})
    await stages.update()
    assert follow(site).startswith("left: side is checked out")
    git(site.checkout, "checkout", "-q", "main")
    git(site.checkout, "commit", "-q", "--allow-empty", "-m", "mine")
    assert follow(site) == "left: it has commits of its own"


def built(command: str, **changes: Any) -> Build:
    return attrs.evolve(
        Build(
            name="web", command=("/bin/sh", "-c", command), inputs=("web",), artifact="web/dist", timeout=20
        ),
        **changes,
    )


def with_build(folder: Path, build: Build) -> Site:
    product = attrs.evolve(TOY, builds=(build,))
    return make_site(folder, {**TOY_FILES, "web/a.js": "1\n"}, product=product)


MAKE = "mkdir -p web/dist && cat web/a.js > web/dist/out && echo >> toy/value.py"


async def test_a_build_runs_aside_and_its_artifact_is_sealed(tmp_path: Path) -> None:
    stages = Stages(with_build(tmp_path, built(MAKE)))
    site = stages.site
    first = site.paths.generations / "000001"
    assert (first / "tree/web/dist/out").read_text() == "1\n", "the first installation builds, too"
    site.origin.commit({"web/a.js": "2\n"})
    run = await stages.update()
    assert run.candidate is not None
    out = run.candidate.tree / "web/dist/out"
    assert out.read_text() == "2\n"
    assert out.stat().st_mode & 0o222 == 0
    assert (run.candidate.tree / "toy/value.py").read_text() == "VALUE = 1\n", (
        "a build writes into a copy, never a generation"
    )
    assert verify_generation(run.candidate.folder) == []
    assert set(read_manifest(run.candidate.folder).built) == {"web/dist/out"}
    assert not (await stages.prepare()).changed


async def test_unchanged_inputs_take_the_artifact_over(tmp_path: Path) -> None:
    stages = Stages(with_build(tmp_path, built(MAKE)))
    stages.site.origin.commit({"toy/value.py": "VALUE = 2\n"})
    run = await stages.update()
    assert run.candidate is not None
    old = stages.site.paths.generations / "000001/tree/web/dist/out"
    assert (run.candidate.tree / "web/dist/out").stat().st_ino == old.stat().st_ino
    assert [event.detail.split(",")[0] for event in stages.told("step") if event.name == "build web"] == [
        "reuse"
    ]


FAILURES = {
    "exit": ("echo broken >&2; exit 3", "exit 3: broken"),
    "no artifact": ("true", "web/dist was not made"),
    "too long": ("sleep 60", "not finished within 1 s"),
}


@pytest.mark.parametrize(("command", "reason"), FAILURES.values(), ids=FAILURES)
async def test_a_failed_build_is_owed_and_keeps_the_old_artifact(
    tmp_path: Path, command: str, reason: str
) -> None:
    site = with_build(tmp_path, built(MAKE))
    stages = Stages(
        attrs.evolve(site, product=attrs.evolve(site.product, builds=(built(command, timeout=1),)))
    )
    site.origin.commit({"web/a.js": "2\n"})
    run = await stages.update()
    (owed,) = stages.told("follow_up")
    assert owed.step == "build"
    assert reason in owed.reason
    assert run.candidate is not None
    assert (run.candidate.tree / "web/dist/out").read_text() == "1\n"
    again = Stages(site)
    run = await again.update()
    assert run.changed, "the retry prepares a new generation of the same commit"
    assert run.candidate is not None
    assert (run.candidate.tree / "web/dist/out").read_text() == "2\n"


async def test_c052_a_grandchild_that_keeps_the_output_open_ends_nothing(tmp_path: Path) -> None:
    stages = Stages(with_build(tmp_path, built(f"{MAKE}; sleep 1000 & exit 0")))
    stages.site.origin.commit({"web/a.js": "2\n"})
    start = time.monotonic()
    await stages.update()
    assert time.monotonic() - start < 20
    assert stages.told("follow_up") == []


async def test_a_lost_artifact_comes_back_by_its_stamp_even_without_news(tmp_path: Path) -> None:
    """#90495: the stamp under the home says that this install has it."""
    site = with_build(tmp_path, built(MAKE, stamp="web-stamp.json"))
    stages = Stages(site)
    assert not (site.paths.generations / "000001/tree/web/dist").exists(), "never had it, no stamp: left out"
    assert not (await stages.prepare()).changed
    (site.home / "web-stamp.json").write_text("{}")
    run = await stages.update()
    assert run.changed
    assert run.candidate is not None
    assert (run.candidate.tree / "web/dist/out").exists()
    assert '"inputs"' in (site.home / "web-stamp.json").read_text()


async def test_c036_an_old_lock_is_moved_aside_and_a_live_one_never(stages: Stages) -> None:
    repo = stages.site.paths.repo
    stages.site.origin.commit({"toy/value.py": "VALUE = 2\n"})
    for name in ("shallow.lock", "packed-refs.lock"):
        (repo / name).touch()
        os.utime(repo / name, (time.time() - 7200,) * 2)
    await stages.update()
    (step,) = [event for event in stages.told("step") if event.name == "stale_locks"]
    assert "shallow.lock" in step.detail
    (repo / "shallow.lock").touch()
    with pytest.raises(RefusedError):
        await stages.prepare()
    assert (repo / "shallow.lock").exists()
    os.utime(repo / "shallow.lock", (time.time() - 7200,) * 2)
    with open(repo / "shallow.lock"), pytest.raises(RefusedError, match=str(os.getpid())):
        await stages.prepare()
    assert (repo / "shallow.lock").exists()
