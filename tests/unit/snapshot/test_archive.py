"""A corpus of hostile archives: nothing leaves the stage folder, nothing is believed, everything is bounded."""

from __future__ import annotations

import io
import os
import resource
import stat
import struct
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from nedura.update.state.archive import Limits, UnsafeArchive, extract, judge, open_archive

SMALL = Limits(members=50, size=5_000_000, ratio=200, depth=8)
Make = Callable[[zipfile.ZipFile], None]


def named(*names: str) -> Make:
    def make(archive: zipfile.ZipFile) -> None:
        for name in names:
            info = zipfile.ZipInfo("placeholder")
            info.filename = name
            archive.writestr(info, b"evil")

    return make


def special(kind: int, content: bytes = b"/etc/passwd") -> Make:
    def make(archive: zipfile.ZipFile) -> None:
        info = zipfile.ZipInfo("member")
        info.external_attr = (kind | 0o777) << 16
        archive.writestr(info, content)

    return make


def bomb(archive: zipfile.ZipFile) -> None:
    archive.writestr("bomb", bytes(4_000_000), zipfile.ZIP_DEFLATED)


def many_bombs(archive: zipfile.ZipFile) -> None:
    for number in range(40):
        archive.writestr(f"b{number}", os.urandom(1000) * 150, zipfile.ZIP_DEFLATED)


def nested_bomb(archive: zipfile.ZipFile) -> None:
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w") as zipped:
        zipped.writestr("x", bytes(10_000_000), zipfile.ZIP_DEFLATED)
    archive.writestr("../42.zip", inner.getvalue())


REFUSED: dict[str, Make] = {
    "empty": lambda archive: None,
    "only its root": named("./"),
    "only folders": named("a/", "b/"),
    "parent": named("../x"),
    "parent inside": named("a/../../x"),
    "parent at the end": named("a/.."),
    "absolute": named("/etc/x"),
    "double slash": named("a//b"),
    "dot part": named("a/./b"),
    "backslash": named("..\\x"),
    "drive": named("C:/x"),
    "drive without slash": named("C:x"),
    "newline": named("a\nb"),
    "escape": named("a\x1b[31m"),
    "bidi": named("a\u202eb"),
    "long part": named("n" * 300),
    "deep": named("/".join("d" * 20) + "/f"),
    "dots alone": named(".."),
    "twice": named("a", "a"),
    "case twin": named("State.db", "state.db"),
    "composition twin": named("é", "e\u0301"),
    "folder case twin": named("Dir/a", "dir/b"),
    "file then folder": named("a", "a/b"),
    "folder then file": named("a/b", "a"),
    "symlink": special(stat.S_IFLNK),
    "device": special(stat.S_IFCHR),
    "fifo": special(stat.S_IFIFO),
    "socket": special(stat.S_IFSOCK),
    "folder that says it is a file": special(stat.S_IFDIR),
    "ratio bomb": bomb,
    "many": named(*(f"f{n}" for n in range(60))),
    "sum of sizes": many_bombs,
    "nested zip outside": nested_bomb,
}


def build(tmp_path: Path, make: Make) -> Path:
    path = tmp_path / "a.zip"
    with pytest.MonkeyPatch.context(), zipfile.ZipFile(path, "w") as archive:
        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the library warns about duplicate names, which are the point
            make(archive)
    return path


def unpack(path: Path, stage: Path, limits: Limits = SMALL) -> tuple[str, ...]:
    with open_archive(path) as archive:
        entries = judge(archive, limits)
        extract(archive, entries, stage, limits)
        return tuple(entry.path for entry in entries)


@pytest.mark.parametrize("name", REFUSED)
def test_hostile_archives_are_refused_before_a_byte_is_written(tmp_path: Path, name: str) -> None:
    box = tmp_path / "box"
    box.mkdir()
    path = build(tmp_path, REFUSED[name])
    with pytest.raises(UnsafeArchive):
        unpack(path, box / "stage")
    assert os.listdir(box) == []


def patch(path: Path, marker: bytes, offset: int, value: bytes) -> None:
    data = bytearray(path.read_bytes())
    start = 0
    while (start := data.find(marker, start)) >= 0:
        data[start + offset : start + offset + len(value)] = value
        start += 4
    path.write_bytes(data)


LOCAL, CENTRAL = b"PK\x03\x04", b"PK\x01\x02"


def lying(path: Path, size: int) -> None:
    """Make both headers say another unpacked size."""
    patch(path, LOCAL, 22, struct.pack("<I", size))
    patch(path, CENTRAL, 24, struct.pack("<I", size))


@pytest.mark.parametrize("size", [10, 300_000, 100_000_000])
def test_a_size_that_lies_is_found_out_while_reading(tmp_path: Path, size: int) -> None:
    path = build(tmp_path, lambda archive: archive.writestr("f", os.urandom(200_000)))
    lying(path, size)
    with pytest.raises(UnsafeArchive):
        unpack(path, tmp_path / "stage")
    assert sum(p.stat().st_size for p in (tmp_path / "stage").rglob("*")) <= 300_000


def test_an_encrypted_member_is_refused(tmp_path: Path) -> None:
    path = build(tmp_path, named("f"))
    patch(path, LOCAL, 6, b"\x01\x00")
    patch(path, CENTRAL, 8, b"\x01\x00")
    with pytest.raises(UnsafeArchive, match="encrypted"):
        unpack(path, tmp_path / "stage")


def test_a_nul_in_the_raw_name_is_seen(tmp_path: Path) -> None:
    path = build(tmp_path, named("safeXevil"))
    path.write_bytes(path.read_bytes().replace(b"safeXevil", b"safe\0evil"))
    with pytest.raises(UnsafeArchive):
        unpack(path, tmp_path / "stage")


@pytest.mark.parametrize("cut", [0, 1, 10, 30, 100, -1, -10, -22])
def test_a_torn_archive_is_an_error_of_ours(tmp_path: Path, cut: int) -> None:
    path = build(tmp_path, lambda archive: archive.writestr("f", os.urandom(500)))
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(UnsafeArchive):
        unpack(path, tmp_path / "stage")


def test_a_changed_byte_is_found_by_its_checksum(tmp_path: Path) -> None:
    path = build(tmp_path, lambda archive: archive.writestr("f", os.urandom(5000)))
    data = bytearray(path.read_bytes())
    data[2000] ^= 1
    path.write_bytes(data)
    with pytest.raises(UnsafeArchive, match="damaged"):
        unpack(path, tmp_path / "stage")


def test_no_zip_no_folder_no_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "text").write_text("hello")
    for path in (tmp_path / "pipe", tmp_path / "text", tmp_path, tmp_path / "missing"):
        started = time.monotonic()
        with pytest.raises(UnsafeArchive):
            unpack(path, tmp_path / "stage")
        assert time.monotonic() - started < 1


def test_memory_stays_flat_under_a_large_honest_file(tmp_path: Path) -> None:
    block = os.urandom(1_000_000)
    limits = Limits(size=200_000_000)

    def make(archive: zipfile.ZipFile) -> None:
        for number in range(60):
            archive.writestr(f"f{number}", block)

    path = build(tmp_path, make)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    unpack(path, tmp_path / "stage", limits)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 40_000, "kilobytes"


def test_a_plain_archive_comes_out_private_and_exact(tmp_path: Path) -> None:
    def make(archive: zipfile.ZipFile) -> None:
        archive.writestr("a/b.txt", "hello")
        info = zipfile.ZipInfo("run.sh")
        info.external_attr = 0o100755 << 16
        archive.writestr(info, "#!/bin/sh\n")
        archive.writestr("empty/", "")
        archive.writestr("blank", "")

    os.umask(os.umask(0))
    assert set(unpack(build(tmp_path, make), tmp_path / "stage")) == {"a/b.txt", "run.sh", "blank"}
    assert (tmp_path / "stage/a/b.txt").read_text() == "hello"
    assert (tmp_path / "stage/a/b.txt").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "stage/run.sh").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "stage/a").stat().st_mode & 0o777 == 0o700


def test_a_link_planted_in_the_stage_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "stage").mkdir()
    (tmp_path / "precious").mkdir()
    (tmp_path / "stage/a").symlink_to(tmp_path / "precious")
    with pytest.raises(OSError, match=r"."):
        unpack(build(tmp_path, named("a/x")), tmp_path / "stage")
    assert os.listdir(tmp_path / "precious") == []
