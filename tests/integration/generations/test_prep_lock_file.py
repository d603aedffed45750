"""The lock file of a version may name pinned packages and nothing else: whatever an installer would do beyond that never begins."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nedura.errors import UpdateError
from nedura.records import make_folder
from nedura.update.generation.environment import ensure_environment
from nedura.update.generation.interpreter import base_python
from nedura.update.generation.lock_file import Pin, plain_lock, read_lock

HASH = f"--hash=sha256:{'0' * 64}"
GOOD = f"alpha==1.0 {HASH}\n"

REFUSED = [
    "--no-binary beta", "--no-binary=:all:", "--index-url http://127.0.0.1:9/", "-i http://127.0.0.1:9/", "--extra-index-url http://x/",
    "--find-links /tmp", "--trusted-host x", "--pre", "-r /etc/passwd", "-c other.txt", "-e .", "/tmp/package", "./package",
    f"beta @ file:///tmp/beta.tar.gz {HASH}", f"https://h.example/beta.tar.gz {HASH}", "git+https://h.example/beta", "beta", "beta>=1",
    f"beta==1.0 {HASH} --no-binary beta", f"beta==1.0 ; python_version > '3' --no-binary beta {HASH}", "beta==${VERSION}",
    f"beta==1.0 {HASH} \\ # x\n--no-binary beta", "# a comment that goes on \\\n--no-binary beta",
    f"beta==1.0 {HASH} --config-settings=a=b",
    "\ufeff# coding: utf-7", "beta==1.0\u2028--no-binary beta", f"{HASH}", "beta==1.0 \\\n--no-binary \\\nbeta",
]  # fmt: skip


@pytest.mark.parametrize("text", REFUSED)
def test_another_line_is_refused_before_an_installer_starts(tmp_path: Path, text: str) -> None:
    tool = make_folder(tmp_path / "bin") / "uv"
    tool.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\n")
    tool.chmod(0o755)
    (tmp_path / "requirements.lock").write_text(f"{text}\n{GOOD}")
    request = {
        "python": base_python(),
        "lock": str(tmp_path / "requirements.lock"),
        "envs": str(tmp_path / "envs"),
    }
    with pytest.raises(UpdateError, match="only pinned packages with hashes") as caught:
        ensure_environment(request, {**os.environ, "PATH": f"{tool.parent}:{os.environ['PATH']}"})
    assert caught.value.stop_class == "dependencies"
    assert not (tmp_path / "started").exists()
    assert os.listdir(tmp_path / "envs") == []


def test_what_lock_tools_write_is_understood_and_written_anew() -> None:
    text = (
        "# This file was written by a tool\n# coding: utf-7\n\n"
        f"alpha==1.0 \\\n    {HASH} \\\n    {HASH.replace('0', 'a')}\n    # via beta\n"
        f"Beta.x[socks, http2]==2!1.0.post1+local ; sys_platform == 'linux-gnu' and python_version < '4' \\\n    {HASH}\r\n"
        f"gamma==3 {HASH} # why\n"
    )
    pins = read_lock(text.encode())
    assert [pin[:4] for pin in pins] == [
        ("alpha", "", "1.0", ""),
        (
            "Beta.x",
            "[socks, http2]",
            "2!1.0.post1+local",
            "sys_platform == 'linux-gnu' and python_version < '4'",
        ),
        ("gamma", "", "3", ""),
    ]
    assert [len(pin.hashes) for pin in pins] == [2, 1, 1]
    assert read_lock(plain_lock(pins)) == pins
    assert plain_lock([Pin("a", "", "1", "", (HASH,))]).decode() == f"a==1 {HASH}\n"


def test_our_own_lock_file_is_read_whole() -> None:
    for path in Path(__file__).parents[3].glob("requirements*.lock"):
        data = path.read_bytes()
        assert sum(len(pin.hashes) for pin in read_lock(data)) == data.count(b"--hash=")
