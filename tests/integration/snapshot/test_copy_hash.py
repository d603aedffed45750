"""The hash in a manifest is the copy's, whichever way the copy was made."""

from __future__ import annotations

import hashlib
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from nedura.update.state.snapshot_take import Taken, take_snapshot
from nedura.update.state.sqlite import PIECE, copy_database
from tests.integration.snapshot.homes import make_database, rows

ON_XFS = """
import hashlib, os, sys
from pathlib import Path
from nedura.update.state.sqlite import check_copy, copy_database
from tests.integration.snapshot.homes import make_database, rows
folder = Path(sys.argv[1])
source = make_database(folder / "a.db", 3000)
os.sync()
copy, digest = folder / "copy.db", hashlib.sha256()
copy.touch(0o600)
before = os.statvfs(folder).f_bfree
copy_database(source, copy, digest=digest)
os.sync()
check_copy(copy)
assert digest.hexdigest() == hashlib.sha256(copy.read_bytes()).hexdigest()
assert rows(copy) == 3000
print(source.stat().st_size, (before - os.statvfs(folder).f_bfree) * os.statvfs(folder).f_frsize)
"""


def taken(home: Path) -> Taken:
    found = take_snapshot("p", home, label="pre-update", keep=1, now=1.8e9)
    assert found is not None
    return found


@pytest.mark.parametrize("held", [False, True], ids=["at rest", "its log waits"])
def test_the_manifest_has_the_hash_of_the_copy(tmp_path: Path, held: bool) -> None:
    path = make_database(tmp_path / "state.db", 4000)
    assert path.stat().st_size > PIECE, "more than one piece"
    (tmp_path / "config.yaml").write_text("a: 1\n")
    code = (
        "import sqlite3, sys\n"
        "db = sqlite3.connect(sys.argv[1], isolation_level=None); db.execute('PRAGMA wal_autocheckpoint=0')\n"
        "db.execute('INSERT INTO t(body) VALUES(?)', ('late',)); print('go', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        holder.stdout.readline()
        if not held:
            holder.communicate()
        found = taken(tmp_path)
        holder.stdin.close()
    for name, digest in found.manifest.sha256.items():
        assert hashlib.sha256((found.folder / name).read_bytes()).hexdigest() == digest, name
    assert set(found.manifest.sha256) == {"state.db", "config.yaml"}
    assert rows(found.folder / "state.db") == 4001


def test_a_database_that_is_open_here_is_hashed_too(tmp_path: Path) -> None:
    path = make_database(tmp_path / "a.db", 500)
    copy, digest = tmp_path / "copy.db", hashlib.sha256()
    copy.touch(0o600)
    with closing(sqlite3.connect(path)) as mine:
        mine.execute("SELECT count(*) FROM t").fetchone()
        copy_database(path, copy, digest=digest)
    assert digest.hexdigest() == hashlib.sha256(copy.read_bytes()).hexdigest()


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone mounts")
def test_a_file_system_that_shares_blocks_copies_none(tmp_path: Path) -> None:
    image, mount = tmp_path / "image", tmp_path / "mount"
    mount.mkdir()
    with image.open("wb") as file:
        file.truncate(400 * 1024 * 1024)
    mkfs = shutil.which("mkfs.xfs", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    assert mkfs, "install xfsprogs"
    subprocess.run([mkfs, "-q", "-m", "reflink=1", str(image)], check=True)
    script = 'mount -o loop "$1" "$2" && "$3" -c "$4" "$2"; status=$?; umount "$2"; exit $status'
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script, "sh", str(image), str(mount), sys.executable, ON_XFS],
        capture_output=True, text=True, check=False, timeout=60, cwd=Path(__file__).parents[3],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    size, taken_bytes = map(int, done.stdout.split())
    assert size > 256 * 1024
    assert taken_bytes < size / 4
