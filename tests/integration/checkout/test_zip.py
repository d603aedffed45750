"""A tree without git: judged archives, all entries or none, killed swaps mended."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from contextlib import aclosing
from pathlib import Path

import pytest

from nedura.errors import NeduraError, StoreError, UpdateError
from nedura.records import write_json
from nedura.update.commit.zip import ZipJob, move_zip, unpack_release
from nedura.update.commit.zip_files import OsCalls, SwapFiles
from nedura.update.commit.zip_stage import check_room
from nedura.update.commit.zip_swap import SWAP, recover_swap, swap_tree
from nedura.update.commit.zip_tree import changed_files, gone_entries, tree_hashes
from nedura.update.state.archive import UnsafeArchive
from nedura.wire import Event

OLD = {
    "pyproject.toml": "[project]\n", "pkg/a.py": "A = 1\n", "pkg/gone.py": "x\n", "only_old/x": "x", ".env": "KEY=1\n",
    "venv/bin/python": "py",
}  # fmt: skip
NEW = {
    "pyproject.toml": "[project]\n# two\n",
    "pkg/a.py": "A = 2\n",
    "fresh/b.py": "B = 1\n",
    ".env": "evil",
    "venv/bin/python": "evil",
}


def tree(folder: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    return folder


def content(folder: Path) -> dict[str, str]:
    return {str(p.relative_to(folder)): p.read_text() for p in sorted(folder.rglob("*")) if p.is_file()}


AFTER = {
    "pyproject.toml": "[project]\n# two\n", "pkg/a.py": "A = 2\n", "fresh/b.py": "B = 1\n",
    ".env": "KEY=1\n", "venv/bin/python": "py",
}  # fmt: skip


def job(tmp_path: Path) -> ZipJob:
    live, new = tree(tmp_path / "live", OLD), tree(tmp_path / "new", NEW)
    write_json(tmp_path / "record.json", {"schema": 1, "files": tree_hashes(live)})
    return ZipJob(tree=new, live=live, record=tmp_path / "record.json")


async def run(one: ZipJob) -> list[Event]:
    async with aclosing(move_zip(one)) as events:
        return [event async for event in events]


async def test_a_swap_changes_what_the_archive_brings_and_nothing_else(tmp_path: Path) -> None:
    one = job(tmp_path)
    events = await run(one)
    assert [event.kind for event in events] == ["committed"]
    assert content(one.live) == AFTER
    assert changed_files(one.live, tree_hashes(one.live)) == ()
    (tmp_path / "new/pkg/a.py").write_text("A = 3\n")
    await run(one)
    assert (one.live / "pkg/a.py").read_text() == "A = 3\n"


@pytest.mark.parametrize(
    ("folder", "plain", "script"), [(0o755, 0o644, 0o755), (0o700, 0o600, 0o700), (0o750, 0o640, 0o750)]
)
async def test_who_could_read_the_old_tree_can_read_the_new_one(
    tmp_path: Path, folder: int, plain: int, script: int
) -> None:
    """An archive is unpacked for its owner alone; a tree that others run must stay theirs to read, and never to write."""
    one = job(tmp_path)
    for path in (one.tree, *one.tree.rglob("*")):
        path.chmod(0o700 if path.is_dir() else 0o600)
    (one.tree / "fresh/b.py").chmod(0o700)
    one.live.chmod(folder)
    await run(one)
    modes = {
        name: (one.live / name).stat().st_mode & 0o777
        for name in ("pkg", "pkg/a.py", "pyproject.toml", "fresh/b.py")
    }
    assert modes == {"pkg": folder, "pkg/a.py": plain, "pyproject.toml": plain, "fresh/b.py": script}


async def test_what_a_newer_release_has_not_goes_and_comes_back_with_the_older_one(tmp_path: Path) -> None:
    """Left there it could be imported for ever, and the next release that lacks it would be refused for it as an edit."""
    one = job(tmp_path)
    await run(one)
    assert not (one.live / "only_old").exists()
    again = ZipJob(tree=tree(tmp_path / "again", OLD), live=one.live, record=one.record)
    await run(again)
    assert content(one.live) == OLD


async def test_an_entry_that_goes_leaves_what_was_built_in_it(tmp_path: Path) -> None:
    one = job(tmp_path)
    tree(one.live, {"apps/desktop/src.js": "js", "apps/desktop/release/app": "built"})
    write_json(one.record, {"schema": 1, "files": tree_hashes(one.live)})
    await run(one)
    assert content(one.live / "apps") == {"desktop/release/app": "built"}
    assert changed_files(one.live, tree_hashes(one.tree)) == ()


async def test_an_added_file_in_an_entry_that_would_go_stops_the_swap(tmp_path: Path) -> None:
    one = job(tmp_path)
    (one.live / "only_old/mine.txt").write_text("mine")
    with pytest.raises(UpdateError, match=r"only_old/mine\.txt"):
        await run(one)
    assert content(one.live) == {**OLD, "only_old/mine.txt": "mine"}


def test_a_name_that_differs_only_in_case_goes_where_the_file_system_tells_them_apart(tmp_path: Path) -> None:
    """Elsewhere it is the very file that the new one replaces (here: a hard link stands for that)."""
    live = tree(tmp_path / "live", {"README.md": "old", "pkg/a.py": "", "ReadMe": "x"})
    installed = ["README.md", "pkg/a.py", "ReadMe"]
    assert gone_entries(live, installed, ["Readme.md", "pkg", "ReadMe"]) == ("README.md",)
    os.link(live / "README.md", live / "Readme.md")
    assert gone_entries(live, installed, ["Readme.md", "pkg", "ReadMe"]) == ()
    accented = tree(tmp_path / "accents", {"cafe\u0301/x": ""})
    assert gone_entries(accented, ["cafe\u0301/x"], ["caf\u00e9"]) == ("cafe\u0301",)


async def test_a_built_desktop_app_survives(tmp_path: Path) -> None:
    """#90495: a swap used to lose what had been built."""
    one = job(tmp_path)
    tree(one.live, {"apps/desktop/release/app": "built", "apps/desktop/src.ts": "old"})
    (one.live / "apps/desktop/release/Current").symlink_to("app")  # as macOS bundles have them
    write_json(one.record, {"schema": 1, "files": tree_hashes(one.live)})
    tree(one.tree, {"apps/desktop/src.ts": "new"})
    await run(one)
    assert (one.live / "apps/desktop/release/app").read_text() == "built"
    assert os.readlink(one.live / "apps/desktop/release/Current") == "app"
    assert (one.live / "apps/desktop/src.ts").read_text() == "new"


@pytest.mark.parametrize(
    "change", [("pkg/a.py", "mine\n"), ("pkg/added.txt", "mine\n"), ("notes.txt", "mine\n")]
)
async def test_a_tree_with_files_of_its_owners_is_refused(tmp_path: Path, change: tuple[str, str]) -> None:
    one = job(tmp_path)
    tree(one.live, dict([change]))
    before = content(one.live)
    with pytest.raises(UpdateError) as caught:
        await run(one)
    assert caught.value.stop_class == "local_changes_blocked"
    assert change[0] in caught.value.message
    assert content(one.live) == before


async def test_what_nobody_recorded_is_refused(tmp_path: Path) -> None:
    one = job(tmp_path)
    one.record.unlink()
    with pytest.raises(UpdateError, match="recorded"):
        await run(one)
    one.record.write_text("[]")
    with pytest.raises(StoreError):
        await run(one)
    assert content(one.live) == OLD


async def test_a_git_checkout_is_never_swapped(tmp_path: Path) -> None:
    one = job(tmp_path)
    (one.live / ".git").mkdir()
    with pytest.raises(UpdateError, match="git"):
        await run(one)


STEPS = [("renameat2", 1), ("renameat2", 2), *(("rename", when) for when in range(1, 5)), ("renameat", 2)]
"""Calls of a swap: two entries are exchanged, one is new, two are set aside, one goes, and the marker is written for the second time."""
GONE = ("only_old",)


@pytest.mark.parametrize(("call", "when"), [*STEPS, *(("no exchange", when) for when in range(1, 7))])
@pytest.mark.parametrize("fault", ["error=EIO", "signal=KILL"])
def test_a_fault_at_any_rename_leaves_the_old_tree(tmp_path: Path, call: str, when: int, fault: str) -> None:
    """Without an exchange (another system or file system) each entry is renamed away, then the new one into its place."""
    faults = [f"inject={call}:{fault}:when={when}"]
    if call == "no exchange":
        faults = ["inject=renameat2:error=EINVAL", f"inject=rename:{fault}:when={when}"]
    if not Path("/usr/bin/strace").exists():
        pytest.skip("strace is not installed")
    one = job(tmp_path)
    code = (
        "import sys; from pathlib import Path; from nedura.errors import NeduraError\n"
        "from nedura.update.commit.zip_swap import swap_tree\n"
        "try: swap_tree(Path(sys.argv[1]), Path(sys.argv[2]), gone=['only_old'])\n"
        "except NeduraError as error: print(error.message); sys.exit(3)\n"
    )
    strace = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=rename,renameat,renameat2"]
    for one_fault in faults:
        strace += ["-e", one_fault]
    done = subprocess.run(
        [*strace, sys.executable, "-B", "-c", code, str(one.tree), str(one.live)],
        capture_output=True,
        text=True,
        check=False,
    )
    if "signal" in fault:
        assert done.returncode == -9
        if call != "no exchange":
            swapped = (one.live / "pkg/a.py").read_text() == NEW["pkg/a.py"]
            needed = [name for name in OLD if not (swapped and name.startswith(GONE))]
            assert all(os.path.lexists(one.live / name.split("/")[0]) for name in needed), (
                "an entry is missing"
            )
        assert recover_swap(one.live) == "undone"
    else:
        assert done.returncode == 3, done.stderr
    assert content(one.live) == OLD, done.stdout
    assert recover_swap(one.live) == "none"
    swap_tree(one.tree, one.live, gone=GONE)
    assert content(one.live) == AFTER


def test_every_new_file_is_durable_before_its_first_rename(tmp_path: Path) -> None:
    """Single files of the top folder too: the note is one of them, and an empty one after a power cut would end all updates."""
    if not Path("/usr/bin/strace").exists():
        pytest.skip("strace is not installed")
    one = job(tmp_path)
    log = tmp_path / "log"
    code = (
        "import sys; from pathlib import Path; from nedura.update.commit.zip_swap import swap_tree\n"
        "swap_tree(Path(sys.argv[1]), Path(sys.argv[2]))"
    )
    strace = ["strace", "-f", "-y", "-qq", "-o", str(log), "-e", "trace=fsync,fdatasync,rename,renameat2"]
    subprocess.run([*strace, sys.executable, "-B", "-c", code, str(one.tree), str(one.live)], check=True)
    before = log.read_text().split("rename", 1)[0]
    for name in (
        "pyproject.toml.nedura-update-staging",
        "fresh.nedura-update-staging/b.py",
        "pkg.nedura-update-staging/a.py",
    ):
        assert f"/{name}>" in before, name


def test_a_kill_before_the_marker_stands_leaves_no_edit_behind(tmp_path: Path) -> None:
    """The half-written marker is nobody's file: it must not block every later update as a change of the owner's."""
    one = job(tmp_path)
    partial = one.live / f".{SWAP}.tmp.4194301.d1a56634c8f3"
    partial.write_text("{")
    tree(one.live, {"pkg.nedura-update-staging/a.py": "half\n"})
    assert changed_files(one.live, tree_hashes(tree(tmp_path / "same", OLD))) == ()
    swap_tree(one.tree, one.live, gone=GONE)
    assert content(one.live) == AFTER


class Stuck(OsCalls):
    """No old copy can be removed."""

    def remove(self, path: str) -> None:
        if path.endswith(".nedura-update-old") and os.path.lexists(path):
            raise OSError(5, "Input/output error")
        super().remove(path)


def test_old_copies_that_cannot_be_removed_undo_nothing(tmp_path: Path) -> None:
    """Every entry is in place: what is left goes later, and the update goes on to its restarts."""
    one, files = job(tmp_path), SwapFiles(Stuck())
    swap_tree(one.tree, one.live, gone=GONE, files=files)
    assert (one.live / "pkg/a.py").read_text() == "A = 2\n"
    assert (one.live / SWAP).exists(), "the leftovers are known"
    assert recover_swap(one.live, files=files) == "left"
    with pytest.raises(
        UpdateError, match=r"pkg\.nedura-update-old"
    ):  # they would pass for what stood there before this swap
        swap_tree(one.tree, one.live, gone=GONE, files=files)
    assert content(one.live / "pkg") == {"a.py": "A = 2\n"}
    assert recover_swap(one.live) == "finished"
    assert content(one.live) == AFTER


def test_a_swap_at_work_is_left_alone(tmp_path: Path) -> None:
    one = job(tmp_path)
    parent = os.getppid()
    import psutil

    write_json(
        one.live / SWAP,
        {
            "pid": parent,
            "create_time": psutil.Process(parent).create_time(),
            "phase": "swapping",
            "entries": [],
        },
    )
    assert recover_swap(one.live) == "busy"


BAD_MARKERS: list[object] = [
    [], {}, {"pid": 1, "create_time": 1, "phase": "done", "entries": [{"name": "../x", "was_there": True}]},
]  # fmt: skip


@pytest.mark.parametrize("record", BAD_MARKERS)
def test_a_marker_that_makes_no_sense_stays(tmp_path: Path, record: object) -> None:
    one = job(tmp_path)
    write_json(one.live / SWAP, record)
    with pytest.raises(StoreError):
        recover_swap(one.live)
    assert content(one.live).keys() - {SWAP} == OLD.keys()


async def test_too_little_room_is_found_before_the_first_write(tmp_path: Path) -> None:
    one = job(tmp_path)
    with open(one.tree / "huge.bin", "wb") as file:
        file.truncate(1 << 43)
    with pytest.raises((UpdateError, NeduraError)) as caught:
        check_room(one.tree, one.live)
    assert "MB free" in str(caught.value)


def make_zip(path: Path, files: dict[str, str]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path


def test_a_release_archive_is_unpacked_from_its_one_folder(tmp_path: Path) -> None:
    archive = make_zip(tmp_path / "a.zip", {f"repo-abc/{name}": text for name, text in NEW.items()})
    found = unpack_release(archive, tmp_path / "stage")
    assert found == tmp_path / "stage/repo-abc"
    assert content(found) == NEW
    flat = make_zip(tmp_path / "b.zip", NEW)
    assert unpack_release(flat, tmp_path / "flat") == tmp_path / "flat"


@pytest.mark.parametrize(
    "files",
    [
        {"other/file": "x"},
        {"a/pyproject.toml": "x", "b/pyproject.toml": "x"},
        {"repo/pyproject.toml": "x", "../x": "y"},
        {},
    ],
)
def test_what_is_no_release_is_called_that_and_leaves_nothing(tmp_path: Path, files: dict[str, str]) -> None:
    archive = make_zip(tmp_path / "a.zip", files)
    with pytest.raises(UnsafeArchive):
        unpack_release(archive, tmp_path / "stage")
    assert not (tmp_path / "stage").exists(), "it was judged before its first byte was unpacked"
