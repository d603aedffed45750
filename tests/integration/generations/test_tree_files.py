"""Reading and linking the files of a generation: nothing is taken as read that could have changed since."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from nedura.testing.installs import Site
from nedura.update.events import Notice, StepDone
from nedura.update.generation.generations import read_generation, read_manifest, verify_generation
from nedura.update.generation.prepare import prepare
from nedura.update.generation.tree_files import Base, Seen, hash_files, link_entries, read_files
from nedura.update.generation.tree_rules import Entry
from tests.kits.sealed import Stages

TEXT = b"VALUE = 1\n"


def blob(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def laid_out(folder: Path, names: tuple[str, ...] = ("pkg/a.py",)) -> list[Entry]:
    """Read-only files, old enough for their ctime to tell."""
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(TEXT)
        path.chmod(0o444)
    time.sleep(0.08)
    return [Entry("100644", blob(TEXT), len(TEXT), name) for name in names]


def base_with(folder: Path, entries: list[Entry], seen: dict[str, Seen]) -> Base:
    return Base(tree=folder, files={e.path: (e.mode, e.oid) for e in entries}, tag="x", seen=seen)


def target(tmp_path: Path) -> Path:
    folder = tmp_path / "new"
    (folder / "pkg").mkdir(parents=True)
    return folder


def test_what_was_read_and_stands_untouched_needs_no_second_reading(tmp_path: Path) -> None:
    old, new = tmp_path / "old", target(tmp_path)
    entries = laid_out(old)
    seen = read_files(old, entries)
    assert seen["pkg/a.py"].oid == blob(TEXT)
    assert link_entries(base_with(old, entries, seen), entries, new) == ([], {"pkg/a.py"})
    assert (new / "pkg/a.py").stat().st_ino == (old / "pkg/a.py").stat().st_ino


def _written_in_place(path: Path) -> None:
    """Same size, same mtime, same mode: only the ctime tells."""
    info = path.stat()
    path.chmod(0o644)
    path.write_bytes(path.read_bytes().replace(b"1", b"2"))
    os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns))
    path.chmod(0o444)


def _replaced(path: Path) -> None:
    info = path.stat()
    other = path.with_name("other")
    other.write_bytes(TEXT.replace(b"1", b"2"))
    other.chmod(0o444)
    os.utime(other, ns=(info.st_atime_ns, info.st_mtime_ns))
    other.replace(path)


def _made_writable(path: Path) -> None:
    path.chmod(0o644)


@pytest.mark.parametrize("change", [_written_in_place, _replaced, _made_writable])
def test_what_was_touched_after_it_was_read_is_read_again(
    tmp_path: Path, change: Callable[[Path], None]
) -> None:
    old, new = tmp_path / "old", target(tmp_path)
    entries = laid_out(old)
    seen = read_files(old, entries)
    change(old / "pkg/a.py")
    assert link_entries(base_with(old, entries, seen), entries, new) == ([], set())


def test_a_file_that_was_read_as_something_else_or_writable_or_too_fresh_is_read_again(
    tmp_path: Path,
) -> None:
    old, new = tmp_path / "old", target(tmp_path)
    entries = laid_out(old, ("pkg/a.py", "pkg/b.py"))
    (old / "pkg/b.py").chmod(0o644)
    fresh = read_files(old, entries)["pkg/b.py"]
    assert fresh == Seen(blob(TEXT), None)
    time.sleep(0.08)
    seen = read_files(old, entries)
    assert seen["pkg/b.py"].stamp is not None
    wrong = Seen("0" * 40, seen["pkg/a.py"].stamp)
    assert link_entries(base_with(old, entries, {**seen, "pkg/a.py": wrong}), entries, new) == ([], set())


def test_what_cannot_be_linked_is_named(tmp_path: Path) -> None:
    old, new = tmp_path / "old", target(tmp_path)
    entries = laid_out(old, ("pkg/a.py", "pkg/b.py"))
    (old / "pkg").chmod(0o700)
    (old / "pkg/b.py").unlink()
    assert link_entries(base_with(old, entries, {}), entries, new) == (["pkg/b.py"], set())
    assert link_entries(base_with(tmp_path / "gone", entries, {}), entries, new)[0] == [
        "pkg/a.py",
        "pkg/b.py",
    ]


def test_what_is_no_file_is_missing_and_nothing_is_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    entries = [Entry("100644", "0" * 40, 0, name) for name in ("pipe", "folder", "link", "gone")]
    assert set(hash_files(tmp_path, entries).values()) == {"missing"}
    assert hash_files(tmp_path / "gone", entries) == dict.fromkeys(
        ("pipe", "folder", "link", "gone"), "missing"
    )


def test_large_files_links_and_long_ids_hash_as_git_does(tmp_path: Path) -> None:
    data = os.urandom((2 << 20) + 7)
    (tmp_path / "large").write_bytes(data)
    (tmp_path / "link").symlink_to("large")
    short = [Entry("100644", "0" * 40, 0, "large"), Entry("120000", "0" * 40, 0, "link")]
    assert hash_files(tmp_path, short) == {"large": blob(data), "link": blob(b"large")}
    long = hashlib.sha256(b"blob %d\0" % len(data) + data).hexdigest()
    assert hash_files(tmp_path, [Entry("100644", "0" * 64, 0, "large")]) == {"large": long}


async def test_a_file_of_what_runs_that_changes_during_the_fetch_is_written_afresh(
    stages: Stages, site: Site
) -> None:
    """The files are read beside the fetch; what is damaged between that and the link must not reach the new version."""
    site.origin.commit({"toy/other.py": "VALUE = 3\n"})
    damaged = site.paths.generations / "000001/tree/toy/value.py"
    text = damaged.read_bytes()
    time.sleep(0.08)
    run = stages.run()
    async for event in prepare(run):
        stages.events.append(event)
        if isinstance(event, StepDone) and event.name == "fetch":
            _written_in_place(damaged)
            assert damaged.read_bytes() != text
    assert run.candidate is not None
    assert (run.candidate.tree / "toy/value.py").read_bytes() == text
    assert any("toy/value.py" in event.text for event in stages.events if isinstance(event, Notice))
    assert verify_generation(run.candidate.folder) == []


def test_a_generation_that_was_read_is_judged_by_what_was_read(site: Site) -> None:
    time.sleep(0.08)
    current = site.paths.pointed()
    assert current is not None
    seen = read_generation(current, read_manifest(current))
    assert all(one.stamp is not None for one in seen.values())
    assert verify_generation(current, seen) == []
    wrong = {**seen, "toy/value.py": Seen("missing")}
    assert verify_generation(current, wrong) == ["toy/value.py"]
    del wrong["toy/value.py"]
    assert verify_generation(current, wrong) == ["toy/value.py"]
