"""A file system that is full: nothing half-made, nothing lost, and the next update with room works."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from nedura.update.generation.generations import verify_generation
from tests.kits.site import world


@pytest.fixture
def small() -> Iterator[Path]:
    """A file system of 120 MB."""
    if os.geteuid() != 0:
        pytest.skip("mounting needs uid 0")
    folder = Path(tempfile.mkdtemp(prefix="nf-"))
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=120m,mode=700", "none", str(folder)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode != 0:
        folder.rmdir()
        pytest.skip("no tmpfs can be mounted here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)
    folder.rmdir()


def fill(folder: Path, leave: int) -> Path:
    """Use up the file system but for some bytes."""
    free = os.statvfs(folder)
    size = free.f_bavail * free.f_frsize - leave
    path = folder / "ballast"
    with path.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, size)
    return path


@pytest.mark.root
@pytest.mark.system
@pytest.mark.timeout(200)
@pytest.mark.parametrize(
    "leave",
    [
        64 * 1024,
        pytest.param(0, marks=pytest.mark.soak),
        pytest.param(4 * 1024 * 1024, marks=pytest.mark.soak),
    ],
)
def test_a_full_disk_costs_nothing(small: Path, leave: int) -> None:
    with world(parent=small) as here:
        old = here.current
        here.site.origin.commit({"nedura/_note.py": "NOTE = 1\n"}, "newer")
        ballast = fill(small, leave)
        code, events = here.update("--no-probe")
        assert code in (1, 2), events
        assert here.current == old
        assert verify_generation(here.site.paths.generations / old) == []
        assert not (here.site.paths.folder / "source-completion-pending").exists()
        assert not (here.home / ".nedura-update-in-progress").exists()
        for receipt in here.receipts():
            assert receipt["outcome"] in ("failed", "refused"), receipt["outcome"]
        ballast.unlink()
        code, events = here.update("--no-probe")
        assert code == 0, events[-1]
        assert here.current != old
