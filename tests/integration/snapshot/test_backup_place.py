"""Where a full backup lies and what it takes: inside the home, beside older ones, after a kill, on a full disk, through links."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from nedura.errors import RefusedError, StoreError
from nedura.update.state.backup import ZIP_NOTE, write_backup
from nedura.update.state.backup_walk import may_hold_ours, walk_home
from nedura.update.state.home_import import import_backup
from tests.integration.snapshot.homes import make_database, rows

NOW = 1_000_000_000.0


def small_home(root: Path) -> Path:
    make_database(root / "state.db", 5)
    (root / "config.yaml").write_text("a: 1\n")
    return root


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """A backup that packs itself ends here instead of at the end of the disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("folder", [".", "zz", "profiles/coder"])
def test_a_target_inside_the_home_never_packs_itself(tmp_path: Path, folder: str) -> None:
    root = small_home(tmp_path / "h")
    (root / "aa.bin").write_bytes(os.urandom(2_000_000))
    (root / folder).mkdir(parents=True, exist_ok=True)
    with files_of_at_most(20_000_000):
        taken = write_backup(root, now=NOW, target=root / folder / "mine.zip")
    with zipfile.ZipFile(taken.path) as archive:
        assert set(archive.namelist()) == {"aa.bin", "config.yaml", "state.db", ZIP_NOTE}


def test_an_older_backup_in_the_home_is_named_and_not_packed(tmp_path: Path) -> None:
    """Each would hold all before it (case C013); other archives are the user's own."""
    root = small_home(tmp_path / "h")
    with zipfile.ZipFile(root / "photos.zip", "w") as archive:
        archive.writestr("one.jpg", b"x")
    (root / "broken.zip").write_bytes(b"PK")
    write_backup(root, now=NOW, target=root / "monday.zip")
    taken = write_backup(root, now=NOW, target=root / "tuesday.zip")
    assert taken.skipped == {"monday.zip": "a full backup of before"}
    with zipfile.ZipFile(taken.path) as archive:
        assert set(archive.namelist()) == {"broken.zip", "config.yaml", "photos.zip", "state.db", ZIP_NOTE}


@pytest.mark.parametrize("keep", [1, 2])
def test_several_in_one_second_keep_the_newest(tmp_path: Path, keep: int) -> None:
    root = small_home(tmp_path / "h")
    paths = [Path(write_backup(root, now=NOW, keep=keep).path) for _ in range(11)]
    assert [path.name for path in paths if path.exists()] == [path.name for path in paths[-keep:]]


def test_a_clock_that_is_set_back_never_costs_the_new_one(tmp_path: Path) -> None:
    root = small_home(tmp_path / "h")
    ahead = [Path(write_backup(root, now=NOW * 2 + number, keep=2).path) for number in range(2)]
    taken = write_backup(root, now=NOW, keep=2)
    assert Path(taken.path).exists()
    assert taken.pruned == (ahead[0].name,)
    assert taken.size == os.stat(taken.path).st_size


def test_only_names_that_we_give_are_pruned(tmp_path: Path) -> None:
    root = small_home(tmp_path / "h")
    own = ["pre-update-before-the-move.zip", "pre-update-00.zip", "pre-update-20010101-000000-x.zip"]
    (root / "backups").mkdir()
    for name in own:
        (root / "backups" / name).write_text("mine")
    (root / "backups/pre-update-20000101-000000.zip").mkdir()  # what cannot go costs nothing
    first = write_backup(root, now=NOW, keep=1)
    second = write_backup(root, now=NOW + 1, keep=1)
    assert second.pruned == (Path(first.path).name,)
    assert set(own) <= set(os.listdir(root / "backups"))


KILLED = """
import os, sys, threading, time
from pathlib import Path
from nedura.update.state.backup import write_backup
root, target = Path(sys.argv[1]), sys.argv[2]
os.mkfifo(root / "state")  # named, not read
def begun():
    while not list(Path(target).parent.glob(".*.partial/*")) if target else not list((root / "backups").glob(".*.partial/*")):
        time.sleep(0.01)
    print("begun", flush=True)
    time.sleep(30)
threading.Thread(target=begun, daemon=True).start()
write_backup(root, now=1.0, target=Path(target) if target else None)
time.sleep(30)
"""


@pytest.mark.parametrize("own", [False, True], ids=["backups", "a folder of one's own"])
def test_what_a_killed_one_left_goes_with_the_next(tmp_path: Path, own: bool) -> None:
    root = small_home(tmp_path / "h")
    (root / "big.bin").write_bytes(os.urandom(30_000_000))
    place = tmp_path / "out" if own else root / "backups"
    place.mkdir()
    mine = place / ".nedura-backup.of.mine.partial"
    mine.mkdir()
    target = place / "b.zip" if own else None
    running = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(root), str(target or "")], stdout=subprocess.PIPE, text=True
    )
    assert running.stdout is not None
    assert running.stdout.readline() == "begun\n"
    running.send_signal(signal.SIGKILL)
    running.wait()
    running.stdout.close()
    assert [path for path in place.glob(".*.partial") if path != mine], "the kill came in the middle"
    (root / "big.bin").unlink()
    taken = write_backup(root, now=NOW, target=target)
    assert [path.name for path in place.glob(".*")] == [mine.name], "and nobody else's folder"
    with zipfile.ZipFile(taken.path) as archive:
        assert "state.db" in archive.namelist()


def test_one_that_still_runs_keeps_its_folder(tmp_path: Path) -> None:
    """Two homes may write into one folder at the same time."""
    place = tmp_path / "out"
    stage = place / f".nedura-backup.{os.getppid()}.0a1b2c3d.partial"
    stage.mkdir(parents=True)
    write_backup(small_home(tmp_path / "h"), now=NOW, target=place / "b.zip")
    assert stage.is_dir()


@pytest.mark.parametrize("length", [240, 251])
def test_a_long_name_of_ones_own(tmp_path: Path, length: int) -> None:
    target = tmp_path / ("n" * length + ".zip")
    assert Path(write_backup(small_home(tmp_path / "h"), now=NOW, target=target).path).exists()


def test_a_link_in_its_place_is_not_replaced(tmp_path: Path) -> None:
    root = small_home(tmp_path / "h")
    (tmp_path / "mine.zip").symlink_to(tmp_path / "not there yet")
    with pytest.raises(StoreError, match="exists already"):
        write_backup(root, now=NOW, target=tmp_path / "mine.zip")
    assert (tmp_path / "mine.zip").is_symlink()


def test_a_file_that_cannot_be_read_to_its_end_is_not_in_it_by_half(tmp_path: Path) -> None:
    root = small_home(tmp_path / "h")
    (root / "big.bin").write_bytes(os.urandom(3_000_000))
    (root / "zz").write_text("z")
    calls = 0

    def free(folder: Path) -> int:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise OSError(
                5, "Input/output error"
            )  # as a read of a bad block does, in the middle of the first large file
        return 1 << 40

    taken = write_backup(root, now=NOW, free=free)
    assert taken.skipped == {"big.bin": "Input/output error"}
    with zipfile.ZipFile(taken.path) as archive:
        assert set(archive.namelist()) == {"config.yaml", "state.db", "zz", ZIP_NOTE}
        assert archive.testzip() is None
    import_backup(Path(taken.path), tmp_path / "new", now=NOW)
    assert not (tmp_path / "new/big.bin").exists()


def test_a_stop_is_heard_within_a_large_file_and_its_bytes_are_told(tmp_path: Path) -> None:
    root = small_home(tmp_path / "h")
    (root / "big.bin").write_bytes(os.urandom(3_000_000))
    stop, calls = threading.Event(), []

    def free(folder: Path) -> int:
        calls.append(1)
        stop.set()
        return 1 << 40

    with pytest.raises(StoreError, match="stopped"):
        write_backup(root, now=NOW, stop=stop, free=free)
    assert len(calls) == 1
    assert os.listdir(root / "backups") == []


def test_a_file_that_grows_all_the_time_ends(tmp_path: Path) -> None:
    root = small_home(tmp_path / "h")
    (root / "run.log").write_text("line\n")

    def free(folder: Path) -> int:
        with (root / "run.log").open("a") as log:
            log.write("x" * 2_000_000)
        assert (root / "run.log").stat().st_size < 50_000_000, "it never ends"
        return 1 << 40

    with zipfile.ZipFile(write_backup(root, now=NOW, free=free).path) as archive:
        assert archive.getinfo("run.log").file_size < 10_000_000


def test_it_stops_before_the_disk_is_full(tmp_path: Path) -> None:
    """Whoever shares the disk still has to write: a live database, the update's own record."""
    root = small_home(tmp_path / "h")
    with pytest.raises(StoreError, match="MB free"):
        write_backup(root, now=NOW, free=lambda folder: 60 * 1024 * 1024)
    assert os.listdir(root / "backups") == []


@pytest.mark.parametrize("kind", ["a folder", "a pipe"])
def test_our_own_database_that_cannot_be_read_ends_it(tmp_path: Path, kind: str) -> None:
    root = small_home(tmp_path / "h")
    (root / "kanban.db").mkdir() if kind == "a folder" else os.mkfifo(root / "kanban.db")
    with pytest.raises(StoreError, match=r"kanban\.db"):
        write_backup(root, now=NOW)


def test_our_own_database_behind_a_link_that_leads_nowhere_ends_it(tmp_path: Path) -> None:
    root = small_home(tmp_path / "h")
    (root / "profiles/coder").mkdir(parents=True)
    (root / "profiles/coder/state.db").symlink_to(root / "nowhere.db")
    with pytest.raises(StoreError, match=r"profiles/coder/state\.db"):
        write_backup(root, now=NOW)


@pytest.mark.parametrize(
    ("folder", "ours"),
    [(".", True), ("profiles/", True), ("profiles/coder/", True), ("profiles/coder/cron/", True), ("gateway/", True),
     ("profiles/UPPER/", False), ("profiles/.tmp/", False), ("skills/", False), ("profiles/coder/sessions/", False),
     ("cronies/", False), ("skills/cron/", False)],
)  # fmt: skip
def test_which_folders_that_cannot_be_read_end_it(folder: str, ours: bool) -> None:
    """A backup without all profiles called itself full."""
    assert may_hold_ours(folder) is ours


def test_the_owners_own_links_to_members_are_read_through_and_come_back(tmp_path: Path) -> None:
    """Configuration in dotfiles, a database on another disk: a quick snapshot has them, and so has a backup."""
    root = small_home(tmp_path / "h")
    (root / "channel_aliases.json").write_text("[1]")
    elsewhere = tmp_path / "disk"
    elsewhere.mkdir()
    for name in ("state.db", "channel_aliases.json"):
        os.rename(root / name, elsewhere / name)
        (root / name).symlink_to(elsewhere / name)
    (root / "notes").symlink_to(elsewhere)
    with closing(sqlite3.connect(root / "state.db", isolation_level=None)) as writer:
        writer.execute("PRAGMA wal_autocheckpoint=0")
        writer.execute("INSERT INTO t(body) VALUES('late')")
        taken = write_backup(root, now=NOW, target=tmp_path / "b.zip")
    assert taken.skipped == {"notes": "a link"}
    import_backup(tmp_path / "b.zip", tmp_path / "new", now=NOW)
    assert rows(tmp_path / "new/state.db") == 6
    (elsewhere / "channel_aliases.json").write_text("{}")
    import_backup(tmp_path / "b.zip", root, now=NOW)
    assert (root / "channel_aliases.json").is_symlink()
    assert (elsewhere / "channel_aliases.json").read_text() == "[1]"


def test_a_folder_that_goes_while_the_home_is_walked_is_not_left_out(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x").touch()
    walk = walk_home(tmp_path)
    first = next(walk)
    shutil.rmtree(tmp_path / "b")
    assert [found.relative for found in (first, *walk)] == ["a/x"]


def test_linked_folders_on_the_way_to_members_are_followed_and_come_back(tmp_path: Path) -> None:
    """A quick snapshot has what lies behind them; a full backup left out a whole profile on another disk."""
    root, disk = small_home(tmp_path / "h"), tmp_path / "disk"
    small_home(disk / "coder")
    (disk / "coder/sessions").mkdir()
    (disk / "coder/sessions/a.json").write_text("{}")
    make_database(disk / "cron/executions.db", 3)
    (disk / "boards/x").mkdir(parents=True)
    (disk / "boards/x/b.json").write_text("{}")
    for name, there in (
        ("profiles/coder", "coder"),
        ("cron", "cron"),
        ("kanban/boards", "boards"),
        ("skills", "boards"),
    ):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).symlink_to(disk / there)
    (root / "pairing").symlink_to("/")  # the home lies in it
    (root / "platforms").symlink_to(tmp_path / "nowhere")
    taken = write_backup(root, now=NOW, target=tmp_path / "b.zip")
    left = {"skills": "a link", "pairing": "a link", "platforms": "a link"}
    assert taken.skipped == left
    with zipfile.ZipFile(taken.path) as archive:
        inside = {"state.db", "config.yaml", "cron/executions.db", "kanban/boards/x/b.json", ZIP_NOTE}
        profile = {f"profiles/coder/{name}" for name in ("state.db", "config.yaml", "sessions/a.json")}
        assert set(archive.namelist()) == inside | profile
    (disk / "coder/sessions/a.json").write_text("[]")
    with pytest.raises(RefusedError, match="outside the home"):
        import_backup(tmp_path / "b.zip", root, now=NOW)
    assert (disk / "coder/sessions/a.json").read_text() == "[]"
    import_backup(tmp_path / "b.zip", root, now=NOW, trust=True)
    assert (disk / "coder/sessions/a.json").read_text() == "{}"
    assert (root / "profiles/coder").is_symlink()


def test_the_wait_for_locked_databases_of_others_has_one_limit(tmp_path: Path) -> None:
    """A browser's profile holds dozens (case C010): they are waited for together, not one after the other."""
    root = small_home(tmp_path / "h")
    holders = []
    for number in range(6):
        make_database(root / f"browser/H{number}", 1, wal=False)
        holder = sqlite3.connect(root / f"browser/H{number}", isolation_level=None)
        holder.execute("BEGIN EXCLUSIVE")
        holders.append(holder)
    started = time.monotonic()
    try:
        taken = write_backup(root, now=NOW, foreign_busy=0.3)
    finally:
        for holder in holders:
            holder.close()
    assert time.monotonic() - started < 1.5
    assert set(taken.skipped) == {f"browser/H{number}" for number in range(6)}


@pytest.mark.parametrize("moment", [-1e9, 4e9, 1e10, 9e17])
def test_a_file_of_any_time_is_in_it(tmp_path: Path, moment: float) -> None:
    root = small_home(tmp_path / "h")
    (root / "odd.txt").write_text("x")
    os.utime(root / "odd.txt", (moment, moment))
    assert write_backup(root, now=NOW).skipped == {}


def test_the_codes_own_folder_is_no_input(tmp_path: Path) -> None:
    """A checkout may lie in the home; an import would put its old code over the new."""
    root = small_home(tmp_path / "h")
    for name in ("code", "other"):
        (root / name).mkdir()
        (root / name / "x.py").write_text("x")
    install = root / "installs/0123456789ab"
    install.mkdir(parents=True)
    (install / "install.json").write_text("{}")
    (install / "source").symlink_to(root / "other")
    taken = write_backup(root, now=NOW, checkout=tmp_path / "h/../h/code")
    with zipfile.ZipFile(taken.path) as archive:
        assert set(archive.namelist()) == {"config.yaml", "state.db", ZIP_NOTE}


RESCUE = """
set -e
mount --bind "$1" "$1"
mount -o remount,ro,bind "$1"
exec "$2" -c 'import sys; from pathlib import Path; from nedura.update.state.backup import write_backup
print(write_backup(Path(sys.argv[1]), now=1e9, target=Path(sys.argv[2])).skipped)' "$1" "$3"
"""


def can_mount() -> bool:
    if shutil.which("unshare") is None:
        return False
    asked = ["unshare", "--mount", "true"]
    return subprocess.run(asked, capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not can_mount(), reason="no mount namespace of one's own here")
def test_a_home_on_a_read_only_disk_can_be_saved_elsewhere(tmp_path: Path) -> None:
    """Disks are mounted read-only when they begin to fail: then is the time for a backup."""
    root = small_home(tmp_path / "h")
    ran = subprocess.run(
        ["unshare", "--mount", "sh", "-c", RESCUE, "sh", str(root), sys.executable, str(tmp_path / "b.zip")],
        capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stdout) == (0, "{}\n"), ran
    import_backup(tmp_path / "b.zip", tmp_path / "new", now=NOW)
    assert rows(tmp_path / "new/state.db") == 5


SAVE = """
import sys
from pathlib import Path
from nedura.update.state.backup import write_backup
print(write_backup(Path(sys.argv[1]), now=1e9, target=Path(sys.argv[2])).skipped)
"""


@pytest.mark.skipif(os.geteuid() == 0 and shutil.which("setpriv") is None, reason="root may write everywhere")
def test_a_home_that_cannot_be_written_can_be_saved_elsewhere(tmp_path: Path) -> None:
    root = small_home(tmp_path / "h")
    (root / ".backup.lock").touch(0o600)
    root.chmod(0o500)
    held_back = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
    ran = subprocess.run(
        [*held_back, sys.executable, "-c", SAVE, str(root), str(tmp_path / "b.zip")],
        capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    root.chmod(0o700)
    assert (ran.returncode, ran.stdout) == (0, "{}\n"), ran
    import_backup(tmp_path / "b.zip", tmp_path / "new", now=NOW)
    assert rows(tmp_path / "new/state.db") == 5


CHANGED_MEANWHILE = """
import os, sys
from pathlib import Path
from nedura.errors import StoreError
from nedura.update.state.sqlite import copy_database
source, target = map(Path, sys.argv[1:])
class Writer:
    def is_set(self):
        with open(source, "r+b") as file:
            file.seek(-1, 2)
            file.write(b"x")
        return False
target.touch()
try:
    copy_database(source, target, stop=Writer())
except StoreError as error:
    print(error.message)
"""


@pytest.mark.skipif(os.geteuid() == 0 and shutil.which("setpriv") is None, reason="root may write everywhere")
def test_a_database_that_changes_where_no_lock_can_be_taken_is_not_copied(tmp_path: Path) -> None:
    root = small_home(tmp_path / "h")
    root.chmod(0o500)
    held_back = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
    ran = subprocess.run(
        [*held_back, sys.executable, "-c", CHANGED_MEANWHILE, str(root / "state.db"), str(tmp_path / "copy")],
        capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    root.chmod(0o700)
    assert (ran.returncode, ran.stdout) == (0, "state.db was changed while it was copied.\n"), ran


def git(folder: Path, *args: str) -> None:
    who = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    subprocess.run(["git", *who, *args], cwd=folder, check=True, capture_output=True)


def test_the_code_of_a_flat_install_is_no_input(tmp_path: Path) -> None:
    """The home is the checkout itself (case C045): an import put the old code over the new."""
    root = small_home(tmp_path / "h")
    root.chmod(0o700)
    (root / "nedura").mkdir()
    (root / "nedura/x.py").write_text("code")
    (root / "nedura/mine.txt").write_text("mine")
    git(root, "init", "-q")
    git(root, "add", "nedura/x.py")
    git(root, "commit", "-q", "-m", "x")
    with zipfile.ZipFile(write_backup(root, now=NOW, checkout=root).path) as archive:
        assert set(archive.namelist()) == {"config.yaml", "state.db", "nedura/mine.txt", ZIP_NOTE}
    with zipfile.ZipFile(write_backup(root, now=NOW).path) as archive:
        assert "nedura/x.py" in archive.namelist(), "a home that its owner keeps in git is no code"
