"""Local edits that cannot travel are left out and named: start-up modules, files that may not be read, a branch without a commit."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from nedura.errors import StoreError, UpdateError
from nedura.testing.installs import Site, git, make_origin
from nedura.update.generation.tree_rules import Entry, check_start_hooks
from nedura.update.source.edit_rules import judge_untracked
from nedura.update.source.edits import Edits, read_edits
from nedura.update.source.git import Git, find_git
from nedura.update.source.owner_checkout import read_source
from tests.kits.sealed import Stages

HOOKS = (
    "sitecustomize.py", "sitecustomize/__init__.py", "deep/usercustomize/a.txt", "sitecustomize.so",
    "sitecustomize.cpython-311-x86_64-linux-gnu.so", "usercustomize.abi3.so", ".pth", "deep/x.pth",
)  # fmt: skip


@pytest.mark.parametrize("path", HOOKS)
def test_what_python_runs_at_each_start_is_not_carried(path: str) -> None:
    assert "each start of Python" in judge_untracked(path, "file", 1)


@pytest.mark.parametrize("path", ["sitecustomize.md", "docs/sitecustomize.d/x", "mysitecustomize.py"])
def test_what_only_looks_like_it_is(path: str) -> None:
    assert judge_untracked(path, "file", 1) == ""
    check_start_hooks([Entry("100644", "", 1, path)], ("", "docs"))


@pytest.mark.parametrize("path", [name for name in HOOKS if "site" in name])
def test_a_published_version_with_it_is_refused(path: str) -> None:
    with pytest.raises(UpdateError, match="each start of Python"):
        check_start_hooks([Entry("100644", "", 1, path)], ("", "deep"))


async def test_a_start_up_package_of_the_owner_stops_no_update(site: Site) -> None:
    (site.checkout / "sitecustomize").mkdir()
    (site.checkout / "sitecustomize/__init__.py").write_text("print('never')\n")
    site.origin.commit({"toy/value.py": "VALUE = 2\n"}, "two")
    stages = Stages(site)
    await stages.update()
    assert site.run().stdout.splitlines()[0] == "2"
    assert "sitecustomize/__init__.py: it would run at each start" in stages.told("notice")[0].text


async def test_a_branch_without_a_commit_stops_no_update(site: Site) -> None:
    git(site.checkout, "checkout", "-q", "--orphan", "fresh")
    site.origin.commit({"toy/value.py": "VALUE = 2\n"}, "two")
    stages = Stages(site)
    await stages.update()
    assert site.run().stdout.splitlines()[0] == "2"
    assert "no commit yet" in stages.told("notice")[0].text


def _as_nobody(work: object) -> str:
    """What a function returns in a child without root's rights; an error as its name and words."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.geteuid() == 0:
                os.setgid(65534)
                os.setuid(65534)
            told = str(work())  # type: ignore[operator]
        except BaseException as error:
            told = f"{type(error).__name__}: {error}"
        os.write(writing, told.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        told = file.read().decode()
    os.waitpid(child, 0)
    return told


@pytest.fixture
def common() -> Iterator[Path]:
    """A folder of the one who works in it."""
    folder = Path(tempfile.mkdtemp())
    if os.geteuid() == 0:
        os.chown(folder, 65534, 65534)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize("kind", ["untracked", "tracked"])
def test_a_file_that_may_not_be_read_is_left_out(tmp_path: Path, common: Path, kind: str) -> None:
    _nobodys(tmp_path, kind)  # loads what is loaded late: nobody may not read it

    def work() -> list[tuple[str, str]]:
        read = _nobodys(common, kind)
        assert read.files, "the other edit is carried"
        return [(item.path, item.reason) for item in read.left]

    name = "secret.txt" if kind == "untracked" else "toy/value.py"
    assert _as_nobody(work) == str([(name, "it cannot be read")])


def test_an_install_that_cannot_be_written_is_said_in_a_line(tmp_path: Path, common: Path) -> None:
    _nobodys(tmp_path, "tracked")

    def work() -> None:
        _nobodys(common, "untracked", scratch=0o500)

    told = _as_nobody(work)
    assert told.startswith(f"{StoreError.__name__}: "), told
    assert "cannot be written: Permission denied" in told


def _nobodys(folder: Path, kind: str, scratch: int = 0o700) -> Edits:
    origin = make_origin(folder / "origin")
    checkout = origin.clone(folder / "source")
    (checkout / "plain.txt").write_text("carried\n")
    locked = checkout / ("secret.txt" if kind == "untracked" else "toy/value.py")
    locked.write_text("VALUE = 1234567\n")
    locked.chmod(0)
    git(folder, "clone", "-q", "--bare", str(checkout), str(folder / "repo.git"))
    program = find_git(dict(os.environ))
    ours = Git(program=program, repo=folder / "repo.git", environ=dict(os.environ))
    (folder / "scratch").mkdir(mode=0o700)
    (folder / "scratch").chmod(scratch)
    return read_edits(ours, read_source(checkout, program), folder / "scratch")
