"""Each single file that a start of a sealed install goes through, damaged in each way: one line, and the way out it names works."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import attrs
import pytest

from nedura.errors import StoreError
from nedura.installs import InstallPaths
from nedura.product import NEDURA
from nedura.testing.installs import TOY, TOY_FILES, Site, make_origin, make_site, own_files
from nedura.update.generation.damage import damage
from nedura.update.generation.generations import verify_generation
from nedura.update.generation.install import install_checkout

WAYS = ("gone", "empty", "garbled", "cut", "folder", "dangling")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return make_site(tmp_path_factory.mktemp("whole"), "own")


@pytest.fixture
def site(whole: Site, tmp_path: Path) -> Site:
    """A copy of the install that all share; the many files of its tree are links, since a damage replaces a file."""
    home = tmp_path / "home"

    def copy(source: str, target: str) -> None:
        (os.link if "/tree/" in source else shutil.copy2)(source, target)

    shutil.copytree(whole.home, home, symlinks=True, copy_function=copy)
    return attrs.evolve(whole, home=home, paths=InstallPaths(home, whole.paths.install_id))


def spoil(site: Site, pattern: str, how: str) -> Path:
    """Damage the one file that a pattern below the install or the home names."""
    found = [*site.paths.folder.glob(pattern), *site.home.glob(pattern)]
    assert len(found) == 1, found
    file, data = found[0], b""
    file.parent.chmod(0o755)
    if file.is_symlink():
        data = os.readlink(file).encode()
    elif file.is_file():
        data = file.read_bytes()
    kept = file.with_name("kept")
    os.rename(file, kept)
    if kept.is_dir() and not kept.is_symlink():
        subprocess.run(["chmod", "-R", "u+w", str(kept)], check=True)
        shutil.rmtree(kept)
    else:
        kept.unlink()
    if how == "folder":
        file.mkdir()
    elif how == "dangling":
        file.symlink_to("nowhere/at/all")
    elif how != "gone":
        file.write_bytes(
            {"empty": b"", "garbled": b"\x93\xfe\0\n" * 40, "cut": data[: len(data) * 2 // 3]}[how]
        )
        file.chmod(0o755)
    return file


GENERATION = "generations/000001/"
PACKAGES = GENERATION + "venv/lib/python*/site-packages/"
LAUNCH_PATH = {
    "pth": PACKAGES + "_generation.pth",
    "pin": PACKAGES + "_generation.py",
    "config": GENERATION + "venv/pyvenv.cfg",
    "main": GENERATION + "tree/renderers/cli/nedura_cli/main.py",
    "library": GENERATION + "venv/lib",
}
"""What a start cannot do without, and `pm sync` writes anew."""
PYTHON = GENERATION + "venv/bin/python"


def one_line(done: subprocess.CompletedProcess[str], code: int = 1) -> str:
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (code, "", 1), done.stderr
    return done.stderr


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("part", LAUNCH_PATH)
def test_a_start_ends_with_one_line(site: Site, part: str, how: str) -> None:
    spoil(site, LAUNCH_PATH[part], how)
    for words in (("--version",), ("profile", "list")):
        said = one_line(site.run(*words))
        assert said.startswith("nedura: this install is damaged: ")
        assert said.endswith("Repair it: nedura pm sync. Or go back: nedura update --rollback\n")
    assert os.readlink(site.paths.current) == "generations/000001", "never a silent switch"


@pytest.mark.parametrize("part", LAUNCH_PATH)
def test_a_sync_mends_it(site: Site, part: str) -> None:
    """Garbled is the worst: Python ends with a fatal error of its own before anything of ours is read."""
    spoil(site, LAUNCH_PATH[part], "garbled")
    done = site.run("pm", "sync")
    assert (done.returncode, len(done.stderr.splitlines())) == (0, 1), done.stderr
    assert "Repaired: generation 000002" in done.stderr
    done = site.run("--version")
    assert (done.returncode, done.stderr) == (0, ""), done.stderr


@pytest.mark.parametrize("how", ["empty", "garbled", "folder"])
def test_an_interpreter_that_is_no_program_is_replaced(site: Site, how: str) -> None:
    """An emptied one was run as an empty script, and every command ended 0 without a word."""
    spoil(site, PYTHON, how)
    done = site.run("--version")
    assert (done.returncode, done.stdout[:7], len(done.stderr.splitlines())) == (0, "nedura ", 1), done.stderr
    assert "generation 000002 uses Python" in done.stderr


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("part", [*LAUNCH_PATH.values(), PYTHON, GENERATION + "identity.json"])
def test_the_look_at_a_generation_sees_it(site: Site, part: str, how: str) -> None:
    """A way back moved the pointer to a generation that no launcher then started."""
    folder = site.paths.generations / "000001"
    assert verify_generation(folder) == []
    spoil(site, part, how)
    assert len(verify_generation(folder)) == (2 if part.endswith("venv/lib") else 1)


def test_a_venv_that_is_gone_is_made_anew(site: Site) -> None:
    """Its pin knew the roots of the tree; a generation with guessed ones found no code for good."""
    spoil(site, GENERATION + "venv", "gone")
    done = site.run("--version")
    assert (done.returncode, done.stdout[:7]) == (0, "nedura "), done.stderr
    assert site.run("--version").stderr == ""


def test_an_identity_that_is_lost_is_written_anew(site: Site) -> None:
    """Its manifest has it, too. A sync said that this was no sealed install."""
    whole = (site.paths.current / "identity.json").read_text()
    spoil(site, GENERATION + "identity.json", "empty")
    done = site.run("pm", "sync")
    assert done.returncode == 0, done.stderr
    assert json.loads((site.paths.current / "identity.json").read_text()) == json.loads(
        whole.replace("000001", "000002")
    )


@pytest.mark.parametrize(
    ("part", "how", "again"),
    [
        *(("current", way, False) for way in WAYS),
        ("current", "gone", True),
        ("current", "folder", True),
        (GENERATION.rstrip("/"), "gone", True),
        (GENERATION.rstrip("/"), "folder", False),
        (GENERATION + "manifest.json", "garbled", True),
    ],
)
def test_what_only_an_install_can_mend_names_it_and_that_works(
    site: Site, part: str, how: str, again: bool
) -> None:
    """Nothing on disk says for certain what was current, or what belongs into its files."""
    spoil(site, part, how)
    manifest = part.endswith("manifest.json")
    said = one_line(site.run("pm", "sync"), 1 if manifest else 127)
    assert said.endswith(f"Install it again: ./run install, in {site.checkout}\n")
    if not manifest:
        assert said == one_line(site.run("--version"), 127)
    if again:
        install_checkout(site.checkout, site.home, product=attrs.evolve(NEDURA, environment="none"))
        done = site.run("--version")
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        assert site.run("pm", "sync").returncode == 0


@pytest.mark.parametrize("how", ["gone", "garbled", "cut"])
def test_a_lost_record_names_the_way_out(site: Site, how: str) -> None:
    spoil(site, "install.json", how)
    said = one_line(site.run("pm", "sync"))
    assert said.endswith(f" Install it again: ./run install, in {site.checkout}\n")
    install_checkout(site.checkout, site.home, product=attrs.evolve(NEDURA, environment="none"))
    assert site.run("pm", "sync").returncode == 0


@pytest.mark.parametrize("how", ["gone", "empty", "garbled", "cut"])
def test_a_launcher_is_written_again_by_an_install(site: Site, how: str) -> None:
    """It is the first thing that runs, so nobody can speak for it; installing again is the documented way."""
    spoil(site, "bin/nedura", how)
    install_checkout(site.checkout, site.home, product=attrs.evolve(NEDURA, environment="none"))
    done = site.run("--version")
    assert (done.returncode, done.stderr) == (0, ""), done.stderr


@pytest.mark.parametrize("how", ["folder", "dangling"])
def test_what_lies_in_a_launchers_place_is_not_taken_away(site: Site, how: str) -> None:
    file = spoil(site, "bin/nedura", how)
    product = attrs.evolve(NEDURA, environment="none")
    with pytest.raises(StoreError, match="bin/nedura is not a regular file") as refused:
        install_checkout(site.checkout, site.home, product=product)
    assert refused.value.advice == "Move it away."
    os.rename(file, site.home / "away")
    install_checkout(site.checkout, site.home, product=product)
    assert site.run("--version").returncode == 0


@pytest.mark.parametrize("how", ["changed", "gone"])
def test_packages_are_part_of_what_runs(tmp_path: Path, how: str) -> None:
    """`pm sync` said that everything was in order, and the start said "No module named"."""
    needs = {"toy/main.py": "import sys\nif 'sync' not in sys.argv:\n    import alpha\nprint('toy')\n"}
    files = {**own_files(), **TOY_FILES, **needs, "requirements.lock": "\n"}
    origin = make_origin(tmp_path / "origin", files)
    product = attrs.evolve(TOY, environment="managed")
    done = install_checkout(origin.folder, tmp_path / "home", product=product)
    paths = InstallPaths(tmp_path / "home", done.install_id)
    site = Site(origin=origin, checkout=origin.folder, home=paths.root_home, paths=paths, product=product)
    (env,) = paths.envs.iterdir()
    assert damage(str(paths.current.resolve())) == []
    if how == "changed":
        (packages,) = env.glob("lib/*/site-packages")
        packages.chmod(0o755)
        (packages / "beta.py").write_text("B = 1\n")
    else:
        env.rename(tmp_path / "away")
    said = site.run("start")
    assert (said.returncode, said.stderr) == (
        1,
        f"toy: this install is damaged: envs/{env.name} is not as it was installed. "
        "Repair it: toy pm sync. Or go back: toy update --rollback\n",
    )
    mended = site.run("pm", "sync")
    assert (mended.returncode, mended.stdout) == (0, "toy\n"), mended.stderr
    assert f"generation 000001 is damaged (envs/{env.name}). Repaired: generation 000002" in mended.stderr
    assert damage(str(paths.current.resolve())) == []
    assert os.listdir(paths.envs) == [env.name]


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["-c", "print('ran')", "-m"], "ran"),
        (["{script}", "-m"], "['-m']"),
        (["{script}", "-m", "nedura.gone"], "['-m', 'nedura.gone']"),
        (["-Im", "runpy", "{script}"], ""),
        (["-I", "-B", "-m", "timeit", "-n", "1", "-r", "1", "print('ran')"], "ran"),
    ],
)
def test_its_python_runs_what_is_none_of_ours(
    whole: Site, tmp_path: Path, words: list[str], answer: str
) -> None:
    """A '-m' among a script's own arguments had counted as our start, and the install as damaged."""
    script = tmp_path / "script.py"
    script.write_text("import sys\nprint(sys.argv[1:])\n")
    python = whole.paths.current / "venv/bin/python"
    argv = [str(python), *(word.format(script=script) for word in words)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    if answer:
        assert (done.returncode, done.stderr, done.stdout.splitlines()[:1]) == (0, "", [answer])
    assert "damaged" not in done.stderr
