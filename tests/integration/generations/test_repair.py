"""A base interpreter that disappeared (C062): the launcher needs no environment to notice and mend it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from nedura.testing.installs import Site, make_site


@pytest.fixture
def own(tmp_path: Path) -> Site:
    return make_site(tmp_path, "own")


def break_python(site: Site) -> Path:
    """What a system upgrade leaves: a link to a base interpreter that is gone."""
    link = site.paths.generations / "000001/venv/bin/python"
    link.parent.chmod(0o755)
    link.unlink()
    link.symlink_to("/nonexistent/python3.11")
    link.parent.chmod(0o555)
    return link


def test_c062_a_dangling_interpreter_is_replaced_and_nothing_is_removed_first(own: Site) -> None:
    link = break_python(own)
    done = own.run("--version")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("nedura ")
    assert "generation 000002 uses Python" in done.stderr
    assert own.paths.current.readlink() == Path("generations/000002")
    assert link.is_symlink(), "the broken generation is still there"
    assert own.run("--version").stderr == ""
    identity = json.loads((own.paths.generations / "000002/identity.json").read_text())
    assert (identity["generation"], identity["code_sha"]) == ("000002", own.origin.head)


def test_c062_without_any_python_the_launcher_says_what_to_install(own: Site, tmp_path: Path) -> None:
    break_python(own)
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("readlink", "dirname"):
        (tools / name).symlink_to(f"/usr/bin/{name}")
    done = own.run("--version", PATH=str(tools))
    assert done.returncode == 127
    assert "Install Python 3.11 or newer" in done.stderr
    assert sorted(os.listdir(own.paths.generations)) == ["000001"]


def test_a_repair_that_fails_is_tried_three_times_with_one_interpreter_then_by_hand(own: Site) -> None:
    break_python(own)
    manifest = own.paths.generations / "000001/manifest.json"
    whole = manifest.read_bytes()
    manifest.parent.chmod(0o755)
    manifest.chmod(0o644)
    manifest.write_text("{")
    tools = own.home.parent / "tools"
    tools.mkdir()
    for name, real in (
        ("readlink", "/usr/bin/readlink"),
        ("dirname", "/usr/bin/dirname"),
        ("python3", sys.executable),
    ):
        (tools / name).symlink_to(real)
    said = [own.run("--version", PATH=str(tools)) for _ in range(5)]
    assert {done.returncode for done in said} == {127}
    assert ["3 tries to repair" in done.stderr for done in said] == [False] * 3 + [True] * 2
    assert "--again" in said[-1].stderr
    manifest.write_bytes(whole)
    assert own.run("--version", PATH=str(tools)).returncode == 127, (
        "the limit holds although the cause is gone"
    )
    words = said[-1].stderr.split("run: ", 1)[1].splitlines()[0].rstrip(".").split(" ")
    by_hand = subprocess.run(words, capture_output=True, text=True, check=False)
    assert by_hand.returncode == 0, by_hand.stderr
    assert own.run("--version", PATH=str(tools)).returncode == 0
    assert not list(own.paths.folder.glob(".python-repair-tries*"))
