"""An unpacked release that is a volume's top folder: the file system's own folder in it, which only root can read, is nobody's work."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from nedura.programs import child_environment
from nedura.update.commit.zip_swap import swap_tree
from nedura.update.commit.zip_tree import changed_files, tree_hashes

LOOK = """
import encodings.ascii, os, sys
from pathlib import Path
from nedura.update.commit.zip_tree import tree_hashes
os.seteuid(65534)
print(sorted(tree_hashes(Path(sys.argv[1]))))
"""


def test_what_the_file_system_keeps_is_no_change_and_stays(tmp_path: Path) -> None:
    live, new = tmp_path / "live", tmp_path / "new"
    for tree, content in ((live, "1\n"), (new, "2\n")):
        tree.mkdir()
        (tree / "a.txt").write_text(content)
    installed = tree_hashes(live)
    (live / "lost+found").mkdir()
    (live / "lost+found/#123").write_text("found by fsck\n")
    assert changed_files(live, installed) == ()
    swap_tree(new, live, installed=installed)
    assert (live / "a.txt").read_text() == "2\n"
    assert (live / "lost+found/#123").read_text() == "found by fsck\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="root makes a folder that another user cannot read")
def test_who_may_not_read_it_is_not_stopped() -> None:
    live = Path(tempfile.mkdtemp())
    live.chmod(0o755)
    (live / "lost+found").mkdir(mode=0o700)
    (live / "a.txt").write_text("1\n")
    done = subprocess.run(
        [sys.executable, "-c", LOOK, str(live)],
        env=child_environment(os.environ, PYTHONPATH=os.pathsep.join(sys.path)),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    shutil.rmtree(live)
    assert done.stdout == "['a.txt']\n", done.stderr
