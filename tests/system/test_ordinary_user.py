"""Installing and updating as an ordinary user: no capability of root may be what makes it work."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

NOBODY = 65534
SYSTEM_PYTHON = "/usr/bin/python3"
PACKAGES = ("attr", "attrs", "cattr", "cattrs", "ruamel", "psutil", "typing_extensions.py")

WORK = """
import asyncio, os, sys
from pathlib import Path
from nedura.clock import SystemClock
from nedura.testing.installs import make_site
from nedura.update.generation.collect import collect
from nedura.update.source.repository import open_repository
from tests.kits.sealed import Stages
site = make_site(Path(sys.argv[1]))
site.origin.commit({"toy/value.py": "VALUE = 2\\n"})
stages = Stages(site)
asyncio.run(stages.update())
print(site.run().stdout.splitlines()[0])
tree = site.paths.generations / "000002/tree/toy/value.py"
try:
    tree.write_text("x")
except PermissionError:
    print("read-only")
site.origin.commit({"toy/value.py": "VALUE = 3\\n"})
asyncio.run(stages.update())
print(collect(site.paths, open_repository(site.paths, None), SystemClock().time() + 10_000).removed)
(Path(sys.argv[1]) / "shared").mkdir()
os.chmod(Path(sys.argv[1]) / "shared", 0o775)
from nedura.errors import RefusedError
from nedura.update.generation.install import install_checkout
try:
    install_checkout(site.checkout, Path(sys.argv[1]) / "shared/home", product=site.product, environment="none")
except RefusedError as error:
    print("refused")
"""


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that an ordinary user can reach, with the code and its packages in it."""
    folder = Path("/var/tmp") / f"nedura-user-{os.getpid()}"
    folder.mkdir(mode=0o755)
    try:
        yield folder
    finally:
        from nedura.update.generation.environment import discard

        discard(folder)


def copy_code(folder: Path) -> None:
    root = Path(__file__).parents[2]
    ignore = shutil.ignore_patterns("__pycache__", "*.pyc")
    for name in ("nedura", "tests/kits"):
        shutil.copytree(root / name, folder / name, ignore=ignore)
    import attrs

    source = Path(attrs.__file__).parents[1]
    for name in PACKAGES:
        if (source / name).is_dir():
            shutil.copytree(source / name, folder / name, ignore=ignore)
        elif (source / name).is_file():
            shutil.copy(source / name, folder / name)
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o755 if path.is_dir() or path.suffix == ".so" else 0o644)


@pytest.mark.system
@pytest.mark.root
@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None,
    reason="needs root and setpriv to become somebody else",
)
def test_an_ordinary_user_installs_updates_and_collects(place: Path) -> None:
    if not os.path.exists(SYSTEM_PYTHON):
        pytest.skip("there is no system Python")
    version = subprocess.run(
        [SYSTEM_PYTHON, "-c", "import sys; print(sys.version_info[:2])"],
        capture_output=True,
        text=True,
        check=True,
    )
    if version.stdout.strip() != str(tuple(sys.version_info[:2])):
        pytest.skip("the system Python is another version than the packages")
    code, work = place / "code", place / "work"
    code.mkdir()
    copy_code(code)
    work.mkdir(mode=0o700)
    os.chown(work, NOBODY, NOBODY)
    done = subprocess.run(
        ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", SYSTEM_PYTHON, "-c", WORK, str(work)],
        env={"PATH": "/usr/bin:/bin", "HOME": str(work), "LANG": "C.UTF-8", "PYTHONPATH": str(code), "PYTHONDONTWRITEBYTECODE": "1"},
        cwd="/", capture_output=True, text=True, timeout=55, check=False,
    )  # fmt: skip
    assert done.stdout.splitlines() == ["2", "read-only", "('000001',)", "refused"], done.stderr
