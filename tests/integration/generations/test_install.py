"""Installing: real git, real processes."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import attrs
import pytest

from nedura.errors import NeduraError, RefusedError, UpdateError
from nedura.installs import find_installs, read_identity
from nedura.testing.installs import TOY, TOY_FILES, Site, git, make_origin, make_site
from nedura.update.generation.generations import read_manifest, verify_generation
from nedura.update.generation.install import install_checkout
from nedura.update.generation.record import read_record
from nedura.update.planning.plan import plan_update


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return make_site(tmp_path)


def test_the_launcher_runs_the_installed_generation(site: Site) -> None:
    done = site.run("one", "two words")
    generation = site.paths.generations / "000001"
    assert (done.stdout.splitlines(), done.returncode) == (["1", str(generation), "one", "two words"], 0)


def test_the_install_says_what_it_is(site: Site) -> None:
    generation = site.paths.pointed()
    assert generation is not None
    identity = read_identity(generation)
    assert identity.code_sha == site.origin.head
    assert identity.code_version == "1.0"
    assert identity.tree_hash == git(site.origin.folder, "rev-parse", "HEAD^{tree}")
    assert identity.install_id == site.paths.install_id
    assert verify_generation(generation) == []
    record = read_record(site.paths)
    assert (record.remote_url, record.branch) == (str(site.origin.folder), "main")
    assert [paths.install_id for paths in find_installs(site.home)] == [site.paths.install_id]


def test_trees_are_read_only_and_compiled(site: Site) -> None:
    tree = site.paths.generations / "000001" / "tree"
    modes = {stat.S_IMODE(path.stat().st_mode) for path in tree.rglob("*") if path.is_file()}
    assert modes == {0o444}
    assert (tree / "toy" / "__pycache__").is_dir()
    assert stat.S_IMODE((tree / "toy").stat().st_mode) == 0o555


def _stamps(checkout: Path) -> dict[Path, int]:
    """Every file with its time; git renews the time of a borrowed pack (never its bytes), so there it is the size."""
    return {
        p: p.stat().st_size if "objects" in p.parts else p.stat().st_mtime_ns for p in checkout.rglob("*")
    }


def test_the_source_is_left_as_it_was(tmp_path: Path) -> None:
    origin = make_origin(tmp_path / "origin")
    checkout = origin.clone(tmp_path / "source")
    before = _stamps(checkout)
    install_checkout(checkout, tmp_path / "home", product=TOY, python=sys.executable)
    assert _stamps(checkout) == before


def test_a_source_without_remote_is_its_own_remote(tmp_path: Path) -> None:
    origin = make_origin(tmp_path / "origin")
    done = install_checkout(origin.folder, tmp_path / "home", product=TOY, python=sys.executable)
    (paths,) = find_installs(tmp_path / "home")
    assert read_record(paths).remote_url == str(origin.folder)
    assert done.generation == "000001"


def test_installing_again_is_no_second_install(site: Site) -> None:
    os.unlink(site.launcher)
    again = install_checkout(site.checkout, site.home, product=site.product, python=sys.executable)
    assert again.existing
    assert os.listdir(site.paths.generations) == ["000001"]
    assert site.run().returncode == 0


def test_a_second_install_may_not_take_the_launcher(site: Site, tmp_path: Path) -> None:
    other = site.origin.clone(tmp_path / "other")
    before = site.launcher.read_bytes()
    with pytest.raises(RefusedError, match="already runs another install"):
        install_checkout(other, site.home, product=site.product, python=sys.executable)
    assert site.launcher.read_bytes() == before
    assert len(find_installs(site.home)) == 1


@pytest.mark.parametrize("mode", [0o777, 0o775])
def test_a_parent_that_others_can_write_is_refused(tmp_path: Path, mode: int) -> None:
    origin = make_origin(tmp_path / "origin")
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(mode)
    with pytest.raises(RefusedError, match="can be written by other users") as caught:
        install_checkout(origin.folder, shared / "home", product=TOY, python=sys.executable)
    assert "chmod go-w" in caught.value.advice
    assert not (shared / "home").exists()


BROKEN: dict[str, dict[str, str | bytes | None]] = {
    "launch module does not compile": {"toy/main.py": "def broken(:\n"},
    "python nobody has": {"pyproject.toml": '[project]\nname = "toy"\nrequires-python = ">=9.9"\n'},
}


@pytest.mark.parametrize("change", BROKEN.values(), ids=BROKEN)
def test_nothing_is_left_of_a_failed_installation(
    tmp_path: Path, change: dict[str, str | bytes | None]
) -> None:
    origin = make_origin(tmp_path / "origin", {**TOY_FILES, **change})
    with pytest.raises(UpdateError):
        install_checkout(origin.folder, tmp_path / "home", product=TOY, python=sys.executable)
    assert not (tmp_path / "home").exists()


def test_nothing_is_left_without_a_lock_file(tmp_path: Path) -> None:
    origin = make_origin(tmp_path / "origin")
    managed = attrs.evolve(TOY, environment="managed")
    with pytest.raises(UpdateError, match=r"no requirements\.lock"):
        install_checkout(origin.folder, tmp_path / "home", product=managed)
    assert not (tmp_path / "home").exists()


def test_no_commit_yet_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    git(tmp_path / "empty", "init", "-q")
    with pytest.raises(RefusedError, match="no commit yet"):
        install_checkout(tmp_path / "empty", tmp_path / "home", product=TOY)


HOMES = ["with blank", "h\u00f6me-\u65e5\u672c", "x" * 120, "quo'te\"s", "dollar$x;y", "plain"]


@pytest.mark.parametrize("name", HOMES)
def test_any_home_name_works(tmp_path: Path, name: str) -> None:
    origin = make_origin(tmp_path / "origin")
    done = install_checkout(origin.folder, tmp_path / name, product=TOY, python=sys.executable)
    site = Site(
        origin=origin,
        checkout=origin.folder,
        home=tmp_path / name,
        paths=find_installs(tmp_path / name)[0],
        product=TOY,
    )
    answer = site.run("x")
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.splitlines()[1].startswith(str(tmp_path / name))
    assert done.launcher == str(site.launcher)


@pytest.mark.parametrize("mask", [0o000, 0o077])
def test_the_umask_decides_nothing(tmp_path: Path, mask: int) -> None:
    origin = make_origin(tmp_path / "origin")
    old = os.umask(mask)
    try:
        install_checkout(origin.folder, tmp_path / "home", product=TOY, python=sys.executable)
    finally:
        os.umask(old)
    loose = [
        path
        for path in (tmp_path / "home").rglob("*")
        if not path.is_symlink() and path.stat().st_mode & 0o022
    ]
    assert loose == []


def test_a_moved_home_and_a_linked_launcher_still_run(site: Site, tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    site.home.rename(moved)
    link = tmp_path / "toy"
    link.symlink_to(moved / "bin" / "toy")
    done = subprocess.run(
        [str(link)], capture_output=True, text=True, check=True, env={"PATH": os.environ["PATH"]}
    )
    assert done.stdout.splitlines()[1].startswith(str(moved))


@pytest.mark.parametrize("path", ["", "/nowhere"])
@pytest.mark.parametrize("linked", [False, True])
def test_a_search_path_without_tools_is_no_damage(
    site: Site, tmp_path: Path, path: str, linked: bool
) -> None:
    """`readlink` was not found, so every install was called damaged; with an empty path one of the current folder would have run."""
    trap = tmp_path / "trap"
    trap.mkdir()
    for name in ("readlink", "dirname", "python3"):
        (trap / name).write_text("#!/bin/sh\necho trapped >&2\nexit 1\n")
        (trap / name).chmod(0o755)
    command = site.launcher
    if linked:
        command = tmp_path / "linked" / "toy"
        command.parent.mkdir()
        command.symlink_to(site.launcher)
    done = subprocess.run(
        [str(command)], capture_output=True, text=True, check=False, env={"PATH": path}, cwd=trap
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[1].startswith(str(site.home))


@pytest.mark.parametrize(
    "target", ["../x", "/x", "generations/1/../..", "generations/", "generations/../000001"]
)
def test_a_damaged_pointer_is_not_followed(site: Site, target: str) -> None:
    site.paths.current.unlink()
    site.paths.current.symlink_to(target)
    done = site.run()
    assert done.returncode == 127
    assert "damaged" in done.stderr
    with pytest.raises(NeduraError):
        site.paths.pointed()


def test_what_runs_is_the_manifest(site: Site) -> None:
    manifest = read_manifest(site.paths.generations / "000001")
    assert set(manifest.files) == set(TOY_FILES)
    assert manifest.broken == {}
    assert manifest.env == ""


def test_local_edits_are_part_of_what_is_installed(tmp_path: Path) -> None:
    origin = make_origin(tmp_path / "origin")
    checkout = origin.clone(tmp_path / "source")
    (checkout / "toy/value.py").write_text("VALUE = 'mine'\n")
    (checkout / "toy/extra.py").write_text("E = 1\n")
    done = install_checkout(checkout, tmp_path / "home", product=TOY, python=sys.executable)
    (paths,) = find_installs(tmp_path / "home")
    manifest = read_manifest(paths.generations / done.generation)
    assert set(manifest.edits) == {"toy/value.py", "toy/extra.py"}
    assert subprocess.run([done.launcher], capture_output=True, text=True, check=True).stdout.startswith(
        "mine\n"
    )


@pytest.mark.parametrize("content", ["", "{}", "[1]"])
async def test_a_plan_names_a_damaged_record_instead_of_leaving_the_source_out(
    site: Site, content: str
) -> None:
    (site.paths.folder / "install.json").write_text(content)
    running = site.paths.current.resolve() / "tree/toy/value.py"
    plan = await plan_update(home=site.home, product=site.product, anchor=running)
    assert any("install.json" in why for why in plan.unreadable.values()), plan.unreadable
    assert "could not be read" in plan.copy_terminal


async def test_a_plan_writes_nothing_anywhere(site: Site, clean_environment: Path) -> None:
    (site.checkout / "toy/value.py").write_text("VALUE = 'mine'\n")
    (site.checkout / "toy/extra.py").write_text("E = 1\n")
    folders = (site.home, site.checkout, clean_environment)

    def everything() -> dict[str, tuple[int, int, int]]:
        found = {}
        for path in (path for folder in folders for path in folder.rglob("*")):
            if (
                "objects" in path.parts and path.is_file()
            ):  # git renews the time stamp of a pack it still needs
                continue
            info = path.lstat()
            found[str(path)] = (info.st_ino, info.st_size, info.st_mtime_ns)
        return found

    before = everything()
    plan = await plan_update(home=site.home, product=site.product)
    assert set(plan.local_edits) == {"toy/value.py", "toy/extra.py"}
    assert everything() == before
