"""Field reports of the area update.apply that concern a checkout layout: each by its id, with real git."""

from __future__ import annotations

import compileall
import importlib.util
import os
import py_compile
import sqlite3
import subprocess
import sys
import time
import zipfile
from contextlib import closing
from pathlib import Path

import pytest

from nedura.errors import RefusedError, UpdateError
from nedura.programs import find_program
from nedura.testing.installs import git
from nedura.update.commit import stash
from nedura.update.commit.gitlocks import check_writable, clear_stale_locks
from nedura.update.commit.waiting import remind
from nedura.update.commit.zip import unpack_release
from nedura.update.source.owner_checkout import read_source
from nedura.update.source.torn import is_torn
from nedura.update.state.archive import UnsafeArchive
from tests.integration.checkout.trees import Tree, make_tree, run_move


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return make_tree(tmp_path)


async def test_c021_many_colliding_edits_make_one_stash_and_one_reminder(tmp_path: Path) -> None:
    names = [f"src/f{n}.txt" for n in range(43)]
    base = {"toy/__init__.py": "", "toy/main.py": "", **dict.fromkeys(names, "a\nb\n")}
    tree = make_tree(tmp_path, base)
    tree.commit(dict.fromkeys(names, "a\nb\ntheirs\n"), "theirs")
    for name in names:
        (tree.checkout / name).write_text("a\nb\nmine\n")
    target = tree.fetch()
    first = await run_move(tree.job(target))
    assert first.committed
    assert len(first.actions) == 1
    (parked,) = tree.stashes
    for _ in range(2):
        again = await run_move(tree.job(target))
        assert again.committed
        assert tree.stashes == [parked]
        reminder = remind(tree.runner())
        assert reminder is not None
        assert parked in reminder.reason
    assert tree.head == target
    assert tree.status == []


async def test_c025_a_conflict_leaves_no_markers_and_a_tree_that_compiles(tree: Tree) -> None:
    tree.commit({"toy/value.py": "VALUE = 'theirs'\n"}, "theirs")
    (tree.checkout / "toy/value.py").write_text("VALUE = 'mine'\n")
    result = await run_move(tree.job(tree.fetch()))
    assert result.committed
    assert "<<<<<<<" not in (tree.checkout / "toy/value.py").read_text()
    assert compileall.compile_dir(tree.checkout / "toy", quiet=2)
    assert "git stash apply" in result.actions[0].reason


def test_c036_old_locks_are_moved_aside_and_live_ones_never(tree: Tree) -> None:
    folder = tree.checkout / ".git"
    now = time.time()
    for name in ("index.lock", "shallow.lock"):
        (folder / name).touch()
        os.utime(folder / name, (now - 7200, now - 7200))
    assert clear_stale_locks(folder, folder, now=now) == ["index.lock", "shallow.lock"]
    assert not (folder / "index.lock").exists()
    (folder / "index.lock").touch()
    with pytest.raises(RefusedError) as fresh:
        clear_stale_locks(folder, folder, now=time.time())
    assert fresh.value.exit_code == 2
    os.utime(folder / "index.lock", (now - 7200, now - 7200))
    with (folder / "index.lock").open("rb") as held:
        child = subprocess.Popen(["sleep", "60"], stdin=held)
    try:
        with pytest.raises(RefusedError, match=str(child.pid)):
            clear_stale_locks(folder, folder, now=time.time())
        assert (folder / "index.lock").exists()
    finally:
        child.kill()
        child.wait()


def test_c038_an_unwritable_folder_is_found_before_anything_else(tree: Tree) -> None:
    folder = tree.checkout / ".git"
    (victim,) = [path for path in (folder / "objects").iterdir() if len(path.name) == 2][:1]
    if os.geteuid() == 0:
        os.chown(victim, 12345, 12345)
    else:
        victim.chmod(0o500)
    with pytest.raises(RefusedError) as caught:
        check_writable(tree.checkout, folder, folder)
    assert victim.name in caught.value.message
    assert "chown" in caught.value.advice
    assert caught.value.exit_code == 2
    if os.geteuid() == 0:
        os.chown(victim, 0, 0)
    victim.chmod(0o755)
    check_writable(tree.checkout, folder, folder)


async def test_c042_line_end_noise_is_nobodys_edit(tmp_path: Path) -> None:
    files = {
        "toy/__init__.py": "",
        "toy/main.py": "",
        **{f"src/f{n}.txt": f"one {n}\ntwo\n" for n in range(200)},
    }
    tree = make_tree(tmp_path, files)
    for path in (tree.checkout / "src").iterdir():
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    tree.git("config", "core.autocrlf", "true")
    tree.commit({"src/f0.txt": "changed\n"}, "two")
    target = tree.fetch()
    result = await run_move(tree.job(target))
    assert result.committed
    assert tree.stashes == []
    assert tree.head == target
    assert len([event for event in result.events if getattr(event, "name", "") == "machine_changes"]) <= 1
    assert tree.status == []


async def test_c044_our_own_marker_files_are_never_parked(tree: Tree) -> None:
    for name in (".install_method", ".update_marker", ".nedura-x"):
        (tree.checkout / name).write_text("git\n")
    for number in range(2):
        tree.commit({"README": f"{number}\n"}, f"n{number}")
        result = await run_move(tree.job(tree.fetch()))
        assert result.committed
        assert tree.stashes == []
        assert (tree.checkout / ".install_method").read_text() == "git\n"


async def test_c045_the_home_in_the_checkout_keeps_its_live_database(tree: Tree) -> None:
    home = tree.checkout
    with closing(sqlite3.connect(home / "state.db")) as db:
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("CREATE TABLE t(x)")
        db.execute("INSERT INTO t VALUES(1)")
        db.commit()
        (home / "auth.json").write_text("{}")
        (home / "state-snapshots").mkdir()
        (home / "state-snapshots/x").write_text("x")
        inodes = {
            name: (home / name).stat().st_ino
            for name in ("state.db", "state.db-wal", "auth.json", "state-snapshots/x")
        }
        (tree.checkout / "README").write_text("mine\n" + (tree.checkout / "README").read_text())
        tree.commit({"toy/value.py": "VALUE = 2\n"}, "two")
        result = await run_move(tree.job(tree.fetch(), home=home))
        assert result.committed
        assert {name: (home / name).stat().st_ino for name in inodes} == inodes
        db.execute("INSERT INTO t VALUES(2)")
        db.commit()
        assert db.execute("SELECT count(*) FROM t").fetchone() == (2,)
    assert (tree.checkout / "README").read_text().startswith("mine\n")


async def test_c045_new_code_that_brings_a_file_of_the_homes_is_refused(tree: Tree) -> None:
    (tree.checkout / "auth.json").write_text('{"mine": 1}')
    tree.commit({"auth.json": "{}"}, "theirs")
    before = tree.head
    result = await run_move(tree.job(tree.fetch(), home=tree.checkout))
    assert isinstance(result.error, UpdateError)
    assert tree.head == before
    assert (tree.checkout / "auth.json").read_text() == '{"mine": 1}'
    assert tree.stashes == []


async def test_c046_nothing_to_fetch_touches_nothing(tree: Tree) -> None:
    (tree.checkout / "README").write_text("mine\n")
    stamp = (tree.checkout / "README").stat().st_mtime_ns
    for _ in range(2):
        result = await run_move(tree.job(tree.head))
        assert result.error is None
        assert tree.stashes == []
        assert (tree.checkout / "README").stat().st_mtime_ns == stamp


async def test_c047_no_local_commit_becomes_unreachable(tree: Tree) -> None:
    mine = [tree.commit({f"mine{n}.txt": "x"}, f"mine {n}", where=tree.checkout) for n in range(2)]
    git(tree.origin, "commit", "-q", "--amend", "-m", "rewritten")
    tree.commit({"toy/value.py": "VALUE = 2\n"}, "two")
    target = tree.fetch()
    result = await run_move(tree.job(target))
    assert result.committed
    ref = result.step("rescue_ref").detail
    assert ref.startswith("refs/nedura/rescue/")
    assert ref in result.text
    tree.git("reflog", "expire", "--expire=now", "--all")
    unreachable = tree.git("fsck", "--unreachable", "--no-reflogs")
    assert not any(commit in unreachable for commit in mine)


async def test_c048_code_that_does_not_compile_goes_back_and_the_old_works(tree: Tree) -> None:
    before = tree.head
    tree.commit({"toy/main.py": "<<<<<<< ours\nprint(1)\n=======\nprint(2)\n>>>>>>> theirs\n"}, "broken")
    result = await run_move(tree.job(tree.fetch()))
    assert isinstance(result.error, UpdateError)
    assert result.error.exit_code == 1
    assert tree.head == before
    done = subprocess.run(
        [sys.executable, "-m", "toy.main"], cwd=tree.checkout, capture_output=True, text=True, check=True
    )
    assert done.stdout == "1\n"


async def test_c049_old_bytecode_of_equal_size_and_time_does_not_run(tree: Tree) -> None:
    source = tree.checkout / "toy/value.py"
    os.utime(source, (1_700_000_000, 1_700_000_000))
    compiled = py_compile.compile(str(source), doraise=True)
    assert compiled == importlib.util.cache_from_source(str(source))
    tree.commit({"toy/value.py": "VALUE = 2\n"}, "same length")
    result = await run_move(tree.job(tree.fetch()))
    assert result.committed
    os.utime(source, (1_700_000_000, 1_700_000_000))
    run = [sys.executable, "-c", "from toy.value import VALUE; print(VALUE)"]
    assert subprocess.run(run, cwd=tree.checkout, capture_output=True, text=True, check=True).stdout == "2\n"


async def test_c057_a_full_disk_puts_everything_back(tmp_path: Path) -> None:
    """A real full file system: the move fails half-way and is undone."""
    if os.geteuid() != 0:
        pytest.skip("needs root for a small tmpfs")
    place = tmp_path / "small"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m,mode=0700", "none", str(place)], check=True)
    try:
        tree = make_tree(place)
        pre = tree.head
        tree.commit({f"big/b{n}.txt": str(n) * 60_000 for n in range(12)})
        target = tree.fetch()
        (tree.checkout / "README").write_text("mine\n")
        free = os.statvfs(place)
        (place / "filler").write_bytes(b"x" * (free.f_bavail * free.f_frsize - 300_000))
        result = await run_move(tree.job(target))
        assert result.error is not None
        assert not result.committed
        assert not is_torn(str(tree.checkout))
        (place / "filler").unlink()
        assert (tree.head, tree.branch) == (pre, "main")
        assert tree.status == [" M README"]
        assert (tree.checkout / "README").read_text() == "mine\n"
    finally:
        subprocess.run(["umount", str(place)], check=True)


@pytest.mark.root
async def test_c040_a_checkout_of_another_user_is_refused_with_a_remedy_that_works(tree: Tree) -> None:
    """The whole tree is refused for us, and the printed command is the owner's; no safe.directory is ever asked for."""
    if os.geteuid() != 0:
        pytest.skip("needs root for a second uid")
    for parent, folders, files in os.walk(tree.checkout):
        for name in (*folders, *files, "."):
            os.chown(Path(parent, name), 12345, 12345, follow_symlinks=False)
    program = find_program("git")
    assert program is not None
    with pytest.raises(RefusedError) as caught:
        read_source(tree.checkout, program)
    assert "12345" in caught.value.diagnostics()
    assert "safe.directory" not in caught.value.diagnostics()


async def test_c058_another_stash_pushed_in_between_is_not_dropped(tree: Tree) -> None:
    (tree.checkout / "README").write_text("mine\n")
    ours = stash.save(tree.runner(), ["README"], [], now=time.time(), branch="main")
    stash.take_out(tree.runner(), ["README"], [])
    (tree.checkout / "toy/main.py").write_text("# another tool's\n")
    tree.git("stash", "push", "-q", "-m", "another tool")
    other = tree.stashes[0]
    assert stash.drop(tree.runner(), ours)
    assert tree.stashes == [other]
    assert not stash.drop(tree.runner(), ours), "it is not there: nothing is dropped"
    assert tree.stashes == [other]


@pytest.mark.parametrize("members", [["."], ["./"], ["../x"], ["/etc/x"], []])
def test_c068_an_empty_or_unsafe_archive_is_called_that(tmp_path: Path, members: list[str]) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for name in members:
            info = zipfile.ZipInfo("x")
            info.filename = name
            archive.writestr(info, b"")
    with pytest.raises(UnsafeArchive) as caught:
        unpack_release(tmp_path / "a.zip", tmp_path / "stage")
    assert "ermission" not in caught.value.message
    assert not (tmp_path / "stage").exists()


async def test_c069_a_detached_start_arrives_and_is_never_undone(tree: Tree) -> None:
    tree.git("checkout", "-q", "--detach", "HEAD")
    for number in range(3):
        tree.commit({"toy/value.py": f"VALUE = {number + 2}\n"}, f"n{number}")
    target = tree.fetch()
    for _ in range(2):
        result = await run_move(tree.job(target))
        assert result.committed
        assert tree.head == target
        assert tree.branch == "main"
    assert "VALUE = 4" in (tree.checkout / "toy/value.py").read_text()
    assert not is_torn(str(tree.checkout))
