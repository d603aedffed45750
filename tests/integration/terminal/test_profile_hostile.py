"""Profile archives in a hostile world: what leaks, what cannot come back, what eats memory or waits for ever."""

from __future__ import annotations

import gzip
import io
import os
import resource
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from nedura.errors import ProfileError, StoreError
from nedura.homes import profiles_root
from nedura.profile_archive import Limits, export_profile, import_profile
from nedura.profiles import create_profile

BODY = {tarfile.XHDTYPE: b"20 comment=abcdefgh\n", tarfile.XGLTYPE: b"20 comment=abcdefgh\n"}


def contents(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as archive:
        return {name: archive.extractfile(name).read() for name in archive.getnames()}  # type: ignore[union-attr]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return create_profile(tmp_path, "a").home


SECRETS = {
    "home/.netrc": b"machine x login y password HIDDEN",
    "workspace/.ssh/config": b"HIDDEN",
    "workspace/id_ed25519": b"HIDDEN",
    "workspace/.env.local": b"X=HIDDEN",
    ".env.bak": b"X=HIDDEN",
    "workspace/.aws/credentials": b"HIDDEN",
    "workspace/server.key": b"HIDDEN",
    "workspace/latin": b"caf\xe9\nAPI_KEY=sk-HIDDEN-123456789012345\n",
    "workspace/wide": "API_KEY=sk-HIDDEN-123456789012345\n".encode("utf-16"),
    "workspace/keys.txt": b"use sk-HIDDEN0123456789012345 or ghp_HIDDEN01234567890123456789\n",
    "workspace/cloud": b"aws_secret_access_key = HIDDEN/1234567890\n",
    "workspace/pem.txt": b"-----BEGIN RSA PRIVATE KEY-----\nHIDDEN\n-----END RSA PRIVATE KEY-----\n",
}


@pytest.mark.parametrize("name", SECRETS)
def test_credentials_of_tools_and_of_any_encoding_stay_at_home(home: Path, tmp_path: Path, name: str) -> None:
    (home / name).parent.mkdir(parents=True, exist_ok=True)
    (home / name).write_bytes(SECRETS[name])
    made = export_profile(tmp_path, "a", tmp_path / "out.tar.gz")
    for member, data in contents(made.path).items():
        assert b"HIDDEN" not in data.replace(b"\0", b""), member
    assert (home / name).read_bytes() == SECRETS[name]


def test_masking_changes_nothing_else_of_a_text_in_an_old_encoding(home: Path, tmp_path: Path) -> None:
    (home / "workspace" / "old").write_bytes(bytes(range(1, 256)))
    made = export_profile(tmp_path, "a", tmp_path / "out.tar.gz")
    assert contents(made.path)["a/workspace/old"] == bytes(range(1, 256))


def test_an_export_can_always_come_back(home: Path, tmp_path: Path) -> None:
    odd = ["dot.", "back\\slash", "new\nline", "readme", "README", os.fsdecode(b"\xff"), "d/" * 40 + "deep"]
    for name in odd:
        (home / "workspace" / name).parent.mkdir(parents=True, exist_ok=True)
        (home / "workspace" / name).write_text(name, errors="surrogateescape")
    os.mkfifo(home / "workspace" / "pipe")
    script = home / "workspace" / "run.sh"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    made = export_profile(tmp_path, "a", tmp_path / "out.tar.gz")
    got = import_profile(tmp_path, made.path, name="b")
    back = {path.name for path in (got.profile.home / "workspace").iterdir()}
    assert back == {"README", "run.sh"}
    assert os.access(got.profile.home / "workspace" / "run.sh", os.X_OK)
    missing = {f"workspace/{name}" for name in (*odd, "pipe")} - {"workspace/README"}
    assert missing <= set(made.left_out)


def test_what_cannot_be_read_is_named(home: Path, tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root reads everything")
    (home / "workspace" / "shut").mkdir(mode=0)
    (home / "workspace" / "file").touch(mode=0)
    made = export_profile(tmp_path, "a", tmp_path / "out.tar.gz")
    assert {"workspace/shut", "workspace/file"} <= set(made.left_out)


def test_an_export_that_no_import_would_take_is_refused(home: Path, tmp_path: Path) -> None:
    for number in range(30):
        (home / "workspace" / f"{number}").touch()
    with pytest.raises(ProfileError, match="more than an archive may"):
        export_profile(tmp_path, "a", tmp_path / "out.tar.gz", limits=Limits(members=20))
    assert not (tmp_path / "out.tar.gz").exists()


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME])
def test_a_chain_of_headers_is_one_clear_error(tmp_path: Path, kind: bytes) -> None:
    raw = io.BytesIO()
    for _ in range(3000):
        info, body = tarfile.TarInfo("p"), BODY.get(kind, b"name\0")
        info.type, info.size = kind, len(body)
        raw.write(info.tobuf(tarfile.USTAR_FORMAT) + body.ljust(512, b"\0"))
    path = tmp_path / "x.tar.gz"
    path.write_bytes(gzip.compress(raw.getvalue()))
    with pytest.raises(StoreError, match="too many headers"):
        import_profile(tmp_path, path, name="new")
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.tar.gz"]


def large(path: Path, kind: bytes) -> Path:
    """An archive of one entry of 192 MiB that packs at less than the ratio that counts as a bomb."""
    block = os.urandom(12_000).ljust(1024 * 1024, b"\0")
    with gzip.open(path, "wb", 1) as file:
        info = tarfile.TarInfo("p/big")
        info.type, info.size = kind, 192 * len(block)
        file.write(info.tobuf(tarfile.USTAR_FORMAT))
        for _ in range(192):
            file.write(block)
    return path


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.REGTYPE], ids=["header", "file"])
def test_no_entry_is_read_into_memory_whole_before_it_is_judged(tmp_path: Path, kind: bytes) -> None:
    path = large(tmp_path / "x.tar.gz", kind)
    code = (
        "import pathlib, sys\nfrom nedura.errors import StoreError\nfrom nedura.profile_archive import import_profile\n"
        "try:\n    import_profile(pathlib.Path(sys.argv[1]).parent, pathlib.Path(sys.argv[1]), name='new')\n"
        "except StoreError as error:\n    print(error)\n"
    )
    roof = 160 * 1024 * 1024
    ran = subprocess.run(
        [sys.executable, "-c", code, str(path)],
        capture_output=True,
        text=True,
        timeout=60,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (roof, roof)),
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "larger than it may" in ran.stdout or "more than 64 MiB" in ran.stdout
    assert not profiles_root(tmp_path).exists()


def test_a_pipe_is_no_archive(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StoreError, match="no file"):
        import_profile(tmp_path, tmp_path / "pipe", name="new")
