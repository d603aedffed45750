"""What a live tree of a release may hold besides its files: nothing of it is lost, and what is in the way is named."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from nedura.clock import SystemClock
from nedura.errors import StoreError, UpdateError
from nedura.installs import RELEASE, CodeIdentity
from nedura.records import write_json
from nedura.update.commit.zip import ZipJob, move_zip
from nedura.update.commit.zip_files import OsCalls, SwapFiles
from nedura.update.commit.zip_swap import SWAP, recover_swap, swap_tree
from nedura.update.commit.zip_tree import changed_files, tree_hashes
from nedura.update.commit_point import Armed
from nedura.update.run import Candidate, Run
from nedura.whole import mend_own_tree

OLD = {"pkg/a.py": "A = 1\n", "pkg/sub/b.py": "B = 1\n", "README.md": "one\n"}
NEW = {"pkg/a.py": "A = 2\n", "pkg/sub/b.py": "B = 2\n", "README.md": "two\n"}


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    return folder


def content(folder: Path) -> dict[str, str]:
    return {str(p.relative_to(folder)): p.read_text() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.fixture
def job(tmp_path: Path) -> ZipJob:
    live = write(tmp_path / "live", OLD)
    write_json(tmp_path / "record.json", {"schema": 1, "files": tree_hashes(live)})
    return ZipJob(tree=write(tmp_path / "new", NEW), live=live, record=tmp_path / "record.json")


async def run(job: ZipJob) -> None:
    async for _ in move_zip(job):
        pass


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    ("script", "name"),
    [
        ("mkfifo pkg/pipe", "pkg/pipe"),
        ("mkdir $OUT; touch $OUT/mine; ln -s $OUT pkg/data", "pkg/data"),
        ("rm pkg/a.py; mkfifo pkg/a.py", "pkg/a.py"),
        ("mv pkg $OUT; ln -s $OUT pkg", "pkg"),
    ],
)
async def test_what_is_no_plain_file_is_the_owners_too(
    job: ZipJob, tmp_path: Path, script: str, name: str
) -> None:
    """An added pipe, or a link to a folder, was thrown away with the old copy."""
    env = {**os.environ, "OUT": str(tmp_path / "out")}
    subprocess.run(["/bin/sh", "-ec", script], cwd=job.live, env=env, check=True)
    with pytest.raises(UpdateError) as caught:
        await run(job)
    assert (caught.value.stop_class, name in caught.value.message) == ("local_changes_blocked", True)
    assert os.path.lexists(job.live / name)


class Closed(OsCalls):
    """A system where one path cannot be removed."""

    def __init__(self, name: str) -> None:
        self.name = name

    def remove(self, path: str) -> None:
        if Path(path).name == self.name and os.path.lexists(path):
            raise StoreError(f"{self.name} cannot be removed: Operation not permitted.")
        super().remove(path)


def test_an_old_copy_of_an_earlier_swap_is_never_put_in_the_place_of_what_ran(
    job: ZipJob, tmp_path: Path
) -> None:
    """It could not be removed; the next swap failed on it, and its undo took it for what had stood there."""
    files = SwapFiles(Closed("pkg.nedura-update-old"))
    swap_tree(job.tree, job.live, files=files)
    third = write(tmp_path / "third", {**NEW, "pkg/a.py": "A = 3\n"})
    with pytest.raises(UpdateError, match=r"pkg\.nedura-update-old") as caught:
        swap_tree(third, job.live, files=files)
    assert caught.value.stop_class == "files_in_use"
    assert content(job.live / "pkg") == {"a.py": "A = 2\n", "sub/b.py": "B = 2\n"}
    (job.live / SWAP).unlink()  # somebody tidies up by hand
    with pytest.raises(UpdateError, match=r"pkg\.nedura-update-old"):
        swap_tree(third, job.live, files=files)
    assert content(job.live / "pkg") == {"a.py": "A = 2\n", "sub/b.py": "B = 2\n"}
    swap_tree(third, job.live)
    assert content(job.live) == {**NEW, "pkg/a.py": "A = 3\n"}


async def test_an_old_copy_whose_entry_and_marker_are_gone_comes_back(job: ZipJob) -> None:
    os.rename(job.live / "pkg", job.live / "pkg.nedura-update-old")
    assert recover_swap(job.live) == "undone"
    assert content(job.live) == OLD
    os.rename(job.live / "README.md", job.live / "README.md.nedura-update-old")
    await run(job)
    assert content(job.live) == NEW


@contextmanager
def mounted(place: Path) -> Iterator[None]:
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "mode=0755", "none", str(place)], check=False, capture_output=True
    )
    if done.returncode != 0:
        pytest.skip("mounting is not permitted here")
    try:
        yield
    finally:
        subprocess.run(["umount", str(place)], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount")
@pytest.mark.parametrize("name", ["apps/desktop/release", "pkg/a b\tc"])
async def test_what_is_mounted_in_the_tree_is_not_emptied(job: ZipJob, name: str) -> None:
    """The old copy went with everything in it, through the mount: a volume for the built app was empty after an update."""
    write(job.live, {"apps/desktop/src.js": "js"})
    write_json(job.record, {"schema": 1, "files": tree_hashes(job.live)})
    write(job.tree, {"apps/desktop/src.js": "new"})
    (job.live / name).mkdir(parents=True)
    with mounted(job.live / name):
        if "release" in name:
            (job.live / name / "app").write_text("built")
        with pytest.raises(UpdateError, match="is mounted at") as caught:
            await run(job)
        assert caught.value.stop_class == "files_in_use"
        assert os.listdir(job.live / name) == (["app"] if "release" in name else [])
    await run(job)
    assert (job.live / "apps/desktop/src.js").read_text() == "new"


def test_what_is_mounted_where_no_swap_goes_is_no_obstacle(job: ZipJob) -> None:
    class Elsewhere(OsCalls):
        def mounts(self) -> list[str]:
            return [
                "/",
                str(job.live),
                str(job.live / "venv/cache"),
                str(job.live.parent),
                f"{job.live}2/pkg",
            ]

    swap_tree(job.tree, job.live, files=SwapFiles(Elsewhere()))
    assert content(job.live) == NEW


@pytest.mark.parametrize("name", ["pkg/a.py", "pkg/sub"])
def test_a_file_that_cannot_be_read_is_named(job: ZipJob, name: str) -> None:
    """It ended in a traceback; a folder counted as removed by its owner."""
    (job.live / name).chmod(0)
    code = (
        "import os, pathlib, sys\n"
        "from nedura.errors import UpdateError\n"
        "from nedura.update.commit.zip_tree import changed_files\n"
        "os.chdir(sys.argv[1])\n"
        "if os.geteuid() == 0: os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "try: changed_files(pathlib.Path('.'), {})\n"
        "except UpdateError as error: print(error.stop_class, error.message)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(job.live)], capture_output=True, text=True, check=False
    )
    (job.live / name).chmod(0o755)
    assert done.stdout == f"permission_denied ./{name} cannot be read: Permission denied.\n", done.stderr


def test_a_disk_that_fills_while_staging_is_called_that_and_other_failures_are_not(job: ZipJob) -> None:
    """Every failure of staging was a full disk."""
    for error, stop_class in (
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), "disk_full"),
        (shutil.Error([("a", "b", f"[Errno 28] {os.strerror(errno.ENOSPC)}")]), "disk_full"),
        (PermissionError(errno.EACCES, os.strerror(errno.EACCES)), "permission_denied"),
        (OSError(errno.EIO, os.strerror(errno.EIO)), "checkout_move_failed"),
    ):

        def stage(new: Path, live: Path, places: Mapping[str, Path], error: OSError = error) -> None:
            (live / "pkg.nedura-update-staging").mkdir()
            raise error

        with pytest.raises(UpdateError) as caught:
            swap_tree(job.tree, job.live, stage=stage)
        assert caught.value.stop_class == stop_class
        assert content(job.live) == OLD
        assert sorted(os.listdir(job.live)) == ["README.md", "pkg"]


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("mkfifo M", "not a plain file. Move it away"),
        ("mkdir M", "Move it away"),
        ("echo garbage > M", "Unpack the release of this folder over it again"),
        ("echo {} > M", "Unpack the release of this folder over it again"),
        ("ln -s pkg/a.py M", "Unpack the release of this folder over it again"),
    ],
)
def test_a_swap_record_that_cannot_be_used_says_what_to_do(job: ZipJob, script: str, words: str) -> None:
    """A pipe in its place held up every start of the command for good; what no parser takes ended without a way out."""
    subprocess.run(["/bin/sh", "-ec", script.replace("M", SWAP)], cwd=job.live, check=True)
    relaunch, why = mend_own_tree(str(job.live))
    assert (relaunch, words in why) == (False, True), why
    assert SWAP in why
    for place in job.live.glob(f"{SWAP}*"):
        place.rmdir() if place.is_dir() else place.unlink()
    assert content(job.live) == OLD


def test_the_count_of_tries_is_nobodys_edit(job: ZipJob) -> None:
    (job.live / f"{SWAP}.tries").write_text("1")
    assert changed_files(job.live, tree_hashes(job.live)) == ()
    assert f"{SWAP}.tries" not in tree_hashes(job.live)


@pytest.mark.parametrize(
    ("script", "words", "way_out"),
    [
        ("rm README.md", "gone from the tree: README.md", "rm -f README.md; echo one > README.md"),
        (
            "echo mine > pkg/mine.py",
            "files of its own; an archive cannot carry them: pkg/mine.py",
            "mv pkg/mine.py ..",
        ),
        (
            "echo mine > pkg/a.py",
            "changes of its own; an archive cannot carry them: pkg/a.py",
            "echo 'A = 1' > pkg/a.py",
        ),
        (
            "echo mine > pkg/a.py; rm README.md; touch x",
            "changes of its own; an archive cannot carry them: README.md and 2 more",
            "",
        ),
    ],
)
async def test_what_stops_a_swap_is_named_with_a_way_out_that_works(
    job: ZipJob, script: str, words: str, way_out: str
) -> None:
    """An edited or lost file was to be moved out of the tree, which made it no better."""
    subprocess.run(["/bin/sh", "-ec", script], cwd=job.live, check=True)
    with pytest.raises(UpdateError) as caught:
        await run(job)
    assert words in caught.value.message
    assert ("npack the release" in caught.value.advice) is ("mine.py" not in words)
    if way_out:
        subprocess.run(["/bin/sh", "-ec", way_out], cwd=job.live, check=True)
        await run(job)
        assert (job.live / "pkg/a.py").read_text() == NEW["pkg/a.py"]


def test_old_copies_that_wait_are_no_move_of_the_next_run(job: ZipJob, tmp_path: Path) -> None:
    """The next update is refused before it moves anything: what it had armed would have stayed armed for code that never came."""
    swap_tree(job.tree, job.live, files=SwapFiles(Closed("pkg.nedura-update-old")))
    write_json(job.live / RELEASE, {"schema": 1, "commit": "ab" * 20, "version": "2", "files": {}})
    assert (job.live / SWAP).exists()

    def of(commit: str) -> Run:
        code = CodeIdentity(code_sha=commit)
        candidate = Candidate(
            layout="zip", identity=code, folder=tmp_path, tree=tmp_path, python=tmp_path, target=commit
        )
        return Run(
            run_id="x", root_home=tmp_path, home=tmp_path, clock=SystemClock(), started_at=0.0, environ={}, layout="zip",
            candidate=candidate, checkout=job.live, before=CodeIdentity(code_sha="00" * 20),
        )  # fmt: skip

    assert not Armed(marker=None).moved(of("cd" * 20))
    assert Armed(marker=None).arrived(of("ab" * 20)), "and a swap that is whole has arrived all the same"
    marker = json.loads((job.live / SWAP).read_text())
    (job.live / SWAP).write_text(json.dumps({**marker, "phase": "swapping"}))
    assert Armed(marker=None).moved(of("cd" * 20))
    (job.live / SWAP).write_text("garbage")
    assert Armed(marker=None).moved(of("cd" * 20))
