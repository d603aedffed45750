"""`./run release`: what is packed is what an update takes, twice the same, and only what is committed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from nedura.testing.installs import git, write_files
from nedura.update.source.release import parse_index
from nedura.update.source.release_tree import open_release

ADDRESS = "https://releases.example/nedura/latest.json"
FILES = {
    "pyproject.toml": '[project]\nname = "nedura"\nversion = "1.4.0"\n',
    "nedura/__init__.py": "",
    "run": "#!/bin/sh\n",
}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    place = tmp_path / "a checkout"
    place.mkdir()
    git(place, "init", "-q", "-b", "main")
    write_files(place, FILES)
    (place / "run").chmod(0o755)
    commit(place)
    return place


def commit(place: Path) -> None:
    git(place, "add", "-A")
    git(place, "-c", "user.name=a", "-c", "user.email=a@localhost", "commit", "-q", "-m", "change")


def pack(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-B", "-m", "nedura_cli.release", "--source", str(place), *words],
        capture_output=True, text=True, check=False, cwd=place.parent,
    )  # fmt: skip


def test_a_release_is_packed_as_an_update_takes_it_and_twice_the_same(checkout: Path, tmp_path: Path) -> None:
    write_files(checkout, {"untracked.txt": "mine", "nedura/__pycache__/x.pyc": "x"})
    out = tmp_path / "out"
    done = pack(checkout, "--out", str(out), "--address", ADDRESS)
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(os.listdir(out)) == ["latest.json", "nedura-1.4.0.zip"]
    offer = parse_index(json.loads((out / "latest.json").read_text()), ADDRESS)
    assert offer.url == "https://releases.example/nedura/nedura-1.4.0.zip"
    tree, note = open_release(out / "nedura-1.4.0.zip", tmp_path / "tree", offer, ADDRESS)
    assert (set(note.files), note.archive) == (set(FILES), ADDRESS)
    assert note.commit == git(checkout, "rev-parse", "HEAD").strip()
    assert (tree / "run").stat().st_mode & 0o100
    before = (out / "nedura-1.4.0.zip").read_bytes()
    assert pack(checkout, "--out", str(out), "--address", ADDRESS).returncode == 0
    assert (out / "nedura-1.4.0.zip").read_bytes() == before


def test_what_cannot_be_a_release_is_refused_and_leaves_what_was_there(
    checkout: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    assert pack(checkout, "--out", str(out), "--address", "ftp://x/y").returncode == 2
    (checkout / "nedura/__init__.py").write_text("X = 1\n")
    dirty = pack(checkout, "--out", str(out))
    assert (dirty.returncode, "nedura/__init__.py" in dirty.stderr) == (2, True), dirty.stderr
    assert not out.exists()
    commit(checkout)
    first = pack(checkout, "--out", str(out))
    assert (first.returncode, "--address" in first.stderr) == (0, True), first.stderr
    kept = {path.name: path.read_bytes() for path in out.iterdir()}
    (checkout / "nedura/__init__.py").write_text("X = 2\n")
    commit(checkout)
    again = pack(checkout, "--out", str(out))
    assert (again.returncode, "new version" in again.stderr) == (2, True), again.stderr
    (checkout / "link").symlink_to("run")
    commit(checkout)
    linked = pack(checkout, "--out", str(out))
    assert (linked.returncode, "link" in linked.stderr) == (1, True), linked.stderr
    assert {path.name: path.read_bytes() for path in out.iterdir()} == kept
