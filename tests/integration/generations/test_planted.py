"""threats.md 3: something planted at each place that the installer, preparer and collector write or read."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from nedura.errors import NeduraError, RefusedError
from nedura.locks import FileLock
from nedura.testing.installs import TOY, Site, make_origin, make_site
from nedura.update.generation.failed import check_not_failed, remember_failed
from nedura.update.generation.generations import next_generation
from nedura.update.generation.install import install_checkout
from nedura.update.generation.launcher import write_launcher
from nedura.update.generation.places import check_home_place, check_parents
from nedura.update.generation.record import read_record
from nedura.update.notice import remember_check
from nedura.update.source.check import CheckResult

NEEDLE = b"precious\n"


def symlink(place: Path, victim: Path) -> None:
    place.symlink_to(victim)


def hardlink(place: Path, victim: Path) -> None:
    os.link(victim, place)


def fifo(place: Path, victim: Path) -> None:
    os.mkfifo(place)


def folder(place: Path, victim: Path) -> None:
    place.mkdir()


def dangling(place: Path, victim: Path) -> None:
    place.symlink_to(victim.with_name("not-there"))


PLANTS = [symlink, hardlink, fifo, folder, dangling]


def _lock(site: Site) -> None:
    FileLock(site.paths.lock).try_acquire()


def _read(site: Site) -> None:
    read_record(site.paths)


NAMES: dict[str, tuple[str, Callable[[Site], object]]] = {
    "install record, read": ("installs/{id}/install.json", _read),
    "install lock": ("installs/{id}/lock", _lock),
    "failed inputs, written": (
        "installs/{id}/failed.json",
        lambda site: remember_failed(site.paths, "abc", "x", 0.0),
    ),
    "failed inputs, read": (
        "installs/{id}/failed.json",
        lambda site: check_not_failed(site.paths, "abc", retry=False),
    ),
    "check record": (
        "update_check.json",
        lambda site: remember_check(site.home, CheckResult(state="current"), "abc", 0.0),
    ),
    "launcher": ("bin/toy", lambda site: write_launcher(site.paths, site.product)),
}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return make_site(tmp_path_factory.mktemp("site"))


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
@pytest.mark.parametrize(("name", "work"), NAMES.values(), ids=NAMES)
def test_a_planted_thing_harms_nobody(
    shared: Site,
    tmp_path: Path,
    name: str,
    work: Callable[[Site], object],
    plant: Callable[[Path, Path], None],
) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(NEEDLE)
    place = shared.home / name.format(id=shared.paths.install_id)
    kept = tmp_path / "kept"
    if place.exists():
        place.rename(kept)
    start = time.monotonic()
    try:
        plant(place, victim)
        told = ""
        try:
            work(shared)
        except NeduraError as error:
            told = error.message
        assert told or plant is hardlink, "only a second name of a file that is replaced whole needs no error"
        assert victim.read_bytes() == NEEDLE
        assert not victim.with_name("not-there").exists()
        assert time.monotonic() - start < 10
    finally:
        if place.is_dir() and not place.is_symlink():
            place.rmdir()
        else:
            place.unlink(missing_ok=True)
        if kept.exists():
            kept.rename(place)


def test_the_plants_would_harm_an_unguarded_writer(tmp_path: Path) -> None:
    victim, place = tmp_path / "victim", tmp_path / "place"
    victim.write_bytes(NEEDLE)
    symlink(place, victim)
    with open(place, "w", encoding="utf-8") as file:
        file.write("gone")
    assert victim.read_bytes() != NEEDLE


def test_a_planted_generation_is_not_taken(shared: Site, tmp_path: Path) -> None:
    (shared.paths.generations / "000007").symlink_to(tmp_path)
    try:
        assert next_generation(shared.paths).name == "000008"
    finally:
        (shared.paths.generations / "000007").unlink()


def test_parents_are_judged_up_to_the_root(tmp_path: Path) -> None:
    deep = tmp_path / "a/b/c"
    deep.mkdir(parents=True)
    check_parents(deep)
    (tmp_path / "a").chmod(0o775)
    with pytest.raises(RefusedError, match="/a can be written by other users"):
        check_parents(deep)
    (tmp_path / "a").chmod(0o1777)
    check_parents(deep)


def test_the_way_out_of_a_bad_place_neither_breaks_a_shared_folder_nor_misses(tmp_path: Path) -> None:
    """`chmod go-w` on a folder such as /tmp takes it from everybody else, and does nothing about a foreign owner."""
    shared = tmp_path / "tmp"
    shared.mkdir()
    shared.chmod(0o1777)
    with pytest.raises(RefusedError) as sticky:
        check_parents(shared / "home")
    assert "chmod" not in sticky.value.advice
    assert "folder of your own" in sticky.value.advice

    def look(path: str | Path) -> os.stat_result:
        info = os.stat(path)
        return os.stat_result((*info[:4], 4242, *info[5:10])) if Path(path) == tmp_path.resolve() else info

    with pytest.raises(RefusedError, match="belongs to user 4242") as foreign:
        check_parents(tmp_path / "home", look=look)
    assert "chmod" not in foreign.value.advice
    assert "folder of your own" in foreign.value.advice


def test_another_users_home_is_refused_with_the_right_command(tmp_path: Path) -> None:
    """Root never works in the home of somebody else (decision 53)."""
    with pytest.raises(RefusedError, match="belongs to user") as caught:
        check_home_place(tmp_path, me=os.geteuid() + 1)
    assert f"sudo -u '#{os.geteuid()}'" in caught.value.advice


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a folder away")
def test_root_refuses_a_users_source_and_home_and_changes_no_owner(tmp_path: Path) -> None:
    origin = make_origin(tmp_path / "origin")
    home = tmp_path / "theirs"
    home.mkdir()
    os.chown(home, 65534, 65534)
    with pytest.raises(RefusedError, match="belongs to user 65534"):
        install_checkout(origin.folder, home, product=TOY, environment="none")
    for path in [origin.folder, *origin.folder.rglob("*")]:
        os.chown(path, 65534, 65534, follow_symlinks=False)
    with pytest.raises(RefusedError, match="belongs to user 65534"):
        install_checkout(origin.folder, tmp_path / "ours", product=TOY, environment="none")
    assert not (tmp_path / "ours").exists()
    assert os.listdir(home) == []


def test_a_pointer_that_is_swapped_under_launches_gives_whole_processes(tmp_path: Path) -> None:
    """Each launch belongs wholly to the old or to the new generation; none fails."""
    import asyncio

    from nedura.update.generation.generations import point
    from tests.kits.sealed import Stages

    site = make_site(tmp_path)
    site.origin.commit({"toy/value.py": "VALUE = 2\n"})
    asyncio.run(Stages(site).update())
    first, second = (site.paths.generations / name for name in ("000001", "000002"))
    outputs = set()
    for number in range(40):
        running = [
            subprocess.Popen([str(site.launcher)], stdout=subprocess.PIPE, text=True) for _ in range(2)
        ]
        point(site.paths, site.paths.current, first if number % 2 else second)
        for process in running:
            out, _ = process.communicate(timeout=30)
            assert process.returncode == 0
            value, generation = out.splitlines()
            assert generation.endswith({"1": "000001", "2": "000002"}[value])
            outputs.add(value)
    assert outputs == {"1", "2"}
