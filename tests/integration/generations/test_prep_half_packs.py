"""What killed fetches left half written in our own repository goes with the next preparation or collection."""

from __future__ import annotations

import os
import time
from pathlib import Path

from nedura.testing.installs import Site
from nedura.update.generation.collect import HALF_AGE, sweep
from nedura.update.source.git import Git, find_git
from tests.kits.sealed import Stages

HALF = (
    "pack/tmp_pack_a",
    "pack/tmp_idx_a",
    "pack/tmp_rev_a",
    "ab/tmp_obj_a",
    "tmp_objdir-incoming-a/pack/x",
    "tmp_pack_b",
)


def plant(site: Site, age: float) -> list[Path]:
    made = []
    for name in HALF:
        path = site.paths.repo / "objects" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"half")
        for touched in (path, *([path.parents[1]] if "incoming" in name else [])):
            os.utime(touched, (time.time() - age,) * 2)
        made.append(path)
    return made


async def test_they_go_before_the_next_fetch(site: Site) -> None:
    made = plant(site, HALF_AGE + 60)
    await Stages(site).prepare()
    assert [path for path in made if path.exists()] == []


def test_young_and_open_ones_stay(site: Site) -> None:
    ours = Git(program=find_git(dict(os.environ)), repo=site.paths.repo, environ=dict(os.environ))
    young = plant(site, 60)
    assert sweep(site.paths, ours) == []
    assert all(path.exists() for path in young)
    old = plant(site, HALF_AGE + 60)
    with old[0].open("rb"):
        assert sweep(site.paths, ours) == [f"{len(HALF) - 1} half-written packs and objects"]
    assert [path for path in old if path.exists()] == [old[0]]
