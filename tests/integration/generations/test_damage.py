"""A damaged generation says so in one line, and the two ways out work although its own code does not."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nedura.product import NEDURA
from nedura.testing.installs import Site, make_site
from nedura.update.generation.damage import HOOKS, damage, launcher_code, module_code
from nedura.update.generation.generations import verify_generation


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Site]:
    site = make_site(tmp_path, "own")
    yield site
    assert not list(site.paths.folder.glob(".tmp*"))


def spoil(site: Site, path: str, text: str | None, name: str = "000001") -> Path:
    """Damage one file of a generation, as a dying disk or a root's slip does; None removes it."""
    file = site.paths.generations / name / path
    file.parent.chmod(0o755)
    file.unlink()
    if text is not None:
        file.write_text(text)
    return file


CORE = {
    "errors cut off": ("tree/nedura/errors.py", ""),
    "errors of nonsense": ("tree/nedura/errors.py", "def ("),
    "errors gone": ("tree/nedura/errors.py", None),
    "entry point empty": ("tree/renderers/cli/nedura_cli/main.py", ""),
    "entry point cut off": ("tree/renderers/cli/nedura_cli/main.py", "import os\nX = ("),
    "entry point gone": ("tree/renderers/cli/nedura_cli/main.py", None),
    "records cut off": ("tree/nedura/records.py", "import os\n"),
    "loaded late": ("tree/nedura/update/generation/pm.py", ""),
}


@pytest.mark.parametrize("name", CORE)
def test_a_start_says_one_line_and_a_sync_repairs_it(own: Site, name: str) -> None:
    path, text = CORE[name]
    spoil(own, path, text)
    done = own.run("pm", "status")
    assert done.returncode == 1, done.stdout
    assert "Traceback" not in done.stderr
    assert f"this install is damaged: {path.removeprefix('tree/')}" in done.stderr
    assert "pm sync" in done.stderr
    assert own.paths.current.readlink() == Path("generations/000001"), "never a silent switch"
    done = own.run("pm", "sync")
    assert done.returncode == 0, done.stderr
    assert f"generation 000001 is damaged ({path.removeprefix('tree/')})" in done.stderr
    assert "generation 000002" in done.stderr
    assert own.paths.current.readlink() == Path("generations/000002")
    assert verify_generation(own.paths.generations / "000002") == []
    healthy = own.run("pm", "status", "--verify", "--json")
    rows = json.loads(healthy.stdout)["generations"]
    assert [bool(row["problems"]) for row in rows] == [True, False]
    again = own.run("pm", "sync")
    assert (again.returncode, again.stderr) == (0, "")
    assert own.paths.current.readlink() == Path("generations/000002"), "a second one has nothing to do"


def test_a_whole_generation_is_left_alone_and_its_errors_are_its_own(own: Site) -> None:
    assert own.run("pm", "sync").stderr == ""
    assert own.paths.current.readlink() == Path("generations/000001")
    python = own.paths.generations / "000001/venv/bin/python"
    done = subprocess.run(
        [python, "-I", "-B", "-m", "nosuch.module"], capture_output=True, text=True, check=False
    )
    assert "damaged" not in done.stderr
    assert done.returncode == 1


def test_bytecode_that_is_cut_off_is_damage_too(own: Site) -> None:
    """No manifest lists it, and Python loads it instead of its source: the update after would take it over."""
    tag = sys.implementation.cache_tag
    path = f"tree/nedura/__pycache__/errors.{tag}.pyc"
    whole = (own.paths.generations / "000001" / path).read_bytes()
    spoil(own, path, "")
    (own.paths.generations / "000001" / path).write_bytes(whole[:200])
    done = own.run("fleet", "status")
    assert (done.returncode, f"errors.{tag}.pyc is not as it was" in done.stderr) == (1, True), done.stderr
    assert "Traceback" not in done.stderr
    done = own.run("pm", "sync")
    assert done.returncode == 0, done.stderr
    assert own.run("fleet", "status").returncode == 0


def test_an_entry_point_that_is_whole_and_ended_is_believed(site: Site) -> None:
    """A host's own, or an older version's, does not say that it started; what it printed and its exit code stand."""
    assert site.run().returncode == 0
    spoil(site, "tree/toy/value.py", "VALUE = 666\n")
    done = site.run()
    assert (done.returncode, done.stdout.splitlines()[0], done.stderr) == (0, "666", "")
    spoil(site, "tree/toy/main.py", "")
    done = site.run()
    assert (done.returncode, "toy/main.py is not as it was" in done.stderr) == (1, True), done.stderr


def test_a_damaged_pin_is_written_anew(own: Site) -> None:
    (pin,) = (own.paths.generations / "000001/venv/lib").glob("python*/site-packages/_generation.py")
    spoil(own, str(pin.relative_to(own.paths.generations / "000001")), "")
    assert own.run("fleet", "status").returncode != 0
    done = own.run("pm", "sync")
    assert done.returncode == 0, done.stderr
    assert own.run("fleet", "status").returncode == 0


def test_without_a_whole_copy_the_version_before_does_the_work(own: Site) -> None:
    """The repository lost the file: the way back still works, and says from where."""
    own.origin.commit({"nedura/_note.py": "NOTE = 1\n"}, "newer")
    done = own.run("update", "--no-backup", "--no-probe", timeout=120)
    assert done.returncode == 0, done.stderr
    spoil(own, "tree/nedura/_note.py", "", "000002")
    spoil(own, "tree/nedura/errors.py", "", "000002")
    repository = own.paths.repo
    repository.rename(repository.with_name("away"))
    said = own.run("pm", "sync")
    assert "This command runs from generation 000001" in said.stderr
    assert said.returncode == 0, said.stderr
    assert verify_generation(own.paths.generations / "000003") == []
    spoil(own, "tree/nedura/_note.py", "", "000003")
    repository.rename(repository.with_name("away2"))
    back = own.run("update", "--rollback", "--no-backup", "--no-probe", timeout=120)
    assert back.returncode == 0, back.stderr
    assert "generation 000003 is damaged" in back.stderr
    assert own.run("fleet", "status").returncode == 0


def test_when_nothing_is_whole_it_says_what_to_do(own: Site) -> None:
    spoil(own, "manifest.json", "{")
    spoil(own, "tree/nedura/errors.py", "")
    done = own.run("pm", "sync")
    assert done.returncode == 1
    assert "Install it again" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_texts_need_the_standard_library_alone(tmp_path: Path) -> None:
    for code in (launcher_code(NEDURA.roots), module_code()):
        named = {
            alias.name.partition(".")[0]
            for node in ast.walk(ast.parse(code))
            if isinstance(node, ast.Import)
            for alias in node.names
        }
        assert not any(isinstance(node, ast.ImportFrom) for node in ast.walk(ast.parse(code)))
        assert named <= sys.stdlib_module_names
    assert len(HOOKS.splitlines()) < 55, "it is compiled at each start"
    assert damage(str(tmp_path)) == ["manifest.json"]


@pytest.mark.parametrize("kept", [0.0, 0.1, 0.5, 0.97, None])
def test_a_damaged_pin_says_one_line_too(own: Site, kept: float | None) -> None:
    """Without it nothing of the generation is found: Python itself would say that there is no such module."""
    pin = next((own.paths.generations / "000001/venv").glob("lib/*/site-packages/_generation.py"))
    text = pin.read_text()
    where = str(pin.relative_to(own.paths.generations / "000001"))
    spoil(own, where, None if kept is None else text[: int(len(text) * kept)])
    done = own.run("profile", "list")
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (1, "", 1), done.stderr
    assert done.stderr.startswith("nedura: this install is damaged: its pin")
    assert "Repair it: nedura pm sync" in done.stderr
