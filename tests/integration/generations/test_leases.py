"""Leases where the file system has no flock: a real process writes its note, and the collector heeds it."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nedura.programs import child_environment
from nedura.testing.installs import TOY_FILES, Site, make_origin, make_site
from nedura.update.generation.collect import Collected, collect
from nedura.update.generation.lease import DAY, is_leased, read_notes
from nedura.update.source.repository import open_repository
from tests.kits.sealed import Stages

ROOT = Path(__file__).resolve().parents[3]
LONG = "import sys\nimport _generation\nprint(_generation.GENERATION, flush=True)\nsys.stdin.read()\n"


def no_locks(handle: int, how: int) -> None:
    raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))


def broken(handle: int, how: int) -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return make_site(tmp_path, {**TOY_FILES, "toy/main.py": LONG})


def start(site: Site, *before: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [*before, str(site.launcher)],
        env=child_environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline().strip().endswith("generations/000001")
    return process


def tidy(site: Site, ahead: float) -> Collected:
    return collect(site.paths, open_repository(site.paths, None), time.time() + ahead, lock=no_locks)


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace to take the lock away")
async def test_a_process_without_a_lock_leaves_a_note_and_keeps_its_generation(site: Site) -> None:
    tracer = ("strace", "-f", "-qq", "-o", os.devnull, "-e", "trace=flock", "-e", "inject=flock:error=ENOLCK")
    with start(site, *tracer) as process:
        try:
            first = site.paths.generations / "000001"
            assert [found.generation for found in read_notes(first)] == ["000001"]
            assert is_leased(first, no_locks)
            for value in (2, 3):
                site.origin.commit({"toy/value.py": f"VALUE = {value}\n"})
                await Stages(site).update()
            assert "day" in tidy(site, DAY / 2).kept["000001"]
            assert tidy(site, 2 * DAY).kept["000001"] == "in use"
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(20)
    assert "000001" in tidy(site, 2 * DAY).removed
    assert list((site.paths.folder / "leases").iterdir()) == [], (
        "the note of a process that is over goes, too"
    )


async def test_a_note_of_another_machine_keeps_a_generation(site: Site) -> None:
    for value in (2, 3):
        site.origin.commit({"toy/value.py": f"VALUE = {value}\n"})
        await Stages(site).update()
    notes = site.paths.folder / "leases"
    notes.mkdir(mode=0o700)
    far = notes / "000001.7.100"
    far.write_text("another-machine boot pid:[1]")
    assert "elsewhere" in tidy(site, 2 * DAY).kept["000001"]
    far.write_text("\x00 nonsense")
    assert "elsewhere" in tidy(site, 2 * DAY).kept["000001"]
    far.unlink()
    assert "000001" in tidy(site, 2 * DAY).removed


def test_with_locks_no_note_is_written_and_a_broken_disk_is_an_error(site: Site) -> None:
    with start(site) as process:
        assert is_leased(site.paths.generations / "000001")
        assert process.stdin is not None
        process.stdin.close()
    assert not (site.paths.folder / "leases").exists()
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        is_leased(site.paths.generations / "000001", broken)


INSTALL = (
    "import sys; from pathlib import Path\n"
    "from nedura.errors import RefusedError\n"
    "from nedura.testing.installs import TOY\n"
    "from nedura.update.generation.install import install_checkout\n"
    "try: install_checkout(Path(sys.argv[1]), Path(sys.argv[2]), product=TOY)\n"
    "except RefusedError as error: print(error.message)\n"
)


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace to take the links away")
def test_a_file_system_without_links_is_refused_by_name(tmp_path: Path) -> None:
    checkout = make_origin(tmp_path / "origin").clone(tmp_path / "source")
    tracer = ("strace", "-f", "-qq", "-o", os.devnull, "-e", "trace=symlink,symlinkat")
    done = subprocess.run(
        [*tracer, "-e", "inject=symlink,symlinkat:error=EPERM", sys.executable, "-c", INSTALL, str(checkout), str(tmp_path / "home")],
        cwd=ROOT, capture_output=True, text=True, timeout=50, check=True,
    )  # fmt: skip
    assert "has no symbolic links" in done.stdout
    assert not list((tmp_path / "home").rglob("manifest.json"))
