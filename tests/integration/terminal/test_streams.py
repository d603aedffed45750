"""Outputs that take nothing: a full disk, a closed descriptor, a reader that left. The work is done, and the loss is said."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

COMMANDS = (
    "--version",
    "--help",
    "auth status",
    "auth status --json",
    "auth list",
    "profile list",
    "config show",
    "completion bash",
    "skin list",
)


def run(folder: Path, words: str, where: str) -> subprocess.CompletedProcess[str]:
    command = f"exec {shlex.quote(sys.executable)} -m nedura_cli.main {words} {where}"
    environ = {"PATH": os.environ["PATH"], "HOME": str(folder), "LANG": "C.UTF-8"}
    return subprocess.run(
        ["/bin/sh", "-c", command],
        env=environ,
        cwd="/",
        text=True,
        capture_output=True,
        check=False,
        timeout=60,
        stdin=subprocess.DEVNULL,
    )


@pytest.mark.parametrize("words", COMMANDS)
def test_a_full_disk_is_said_in_a_line_and_fails_the_command(tmp_path: Path, words: str) -> None:
    usual = run(tmp_path, words, "")
    full = run(tmp_path, words, "> /dev/full")
    assert usual.stdout
    assert (full.returncode, full.stdout) == (usual.returncode or 1, "")
    assert full.stderr == usual.stderr + "nedura: the output could not be written: No space left on device.\n"


@pytest.mark.parametrize("words", COMMANDS)
def test_closed_outputs_change_nothing(tmp_path: Path, words: str) -> None:
    usual = run(tmp_path, words, "")
    assert usual.stdout
    for where, out, err in [
        (">&-", "", usual.stderr),
        ("2>&-", usual.stdout, ""),
        ("2> /dev/full", usual.stdout, ""),
        (">&- 2>&- <&-", "", ""),
    ]:
        ran = run(tmp_path, words, where)
        assert (ran.returncode, ran.stdout, ran.stderr) == (usual.returncode, out, err), where


def test_work_is_done_though_nobody_can_hear_of_it(tmp_path: Path) -> None:
    made = run(tmp_path, "profile create worker", "> /dev/full 2> /dev/full")
    assert made.returncode == 1  # its answer was lost
    assert (tmp_path / ".nedura" / "profiles" / "worker").is_dir()


def test_no_file_of_ours_takes_the_place_of_a_closed_stream(tmp_path: Path) -> None:
    """A store that is opened next would else be descriptor 1, and a child process would print into it."""
    look = (
        "import os; from nedura.streams import mend_streams; mend_streams(); print('x', flush=True);"
        "names = [os.readlink(f'/proc/self/fd/{n}') for n in (0, 1, 2)];"
        "new = os.open('/dev/zero', os.O_RDONLY);"
        f"open({str(tmp_path / 'seen')!r}, 'w').write(' '.join([*names, str(new > 2)]))"
    )
    command = f"exec {shlex.quote(sys.executable)} -c {shlex.quote(look)} <&- >&- 2>&-"
    assert subprocess.run(["/bin/sh", "-c", command], check=False, timeout=60).returncode == 0
    assert (tmp_path / "seen").read_text() == "/dev/null /dev/null /dev/null True"


def test_a_reader_that_left_ends_the_command_quietly(tmp_path: Path) -> None:
    ran = run(tmp_path, "completion bash", "| true; exit ${PIPESTATUS:-0}")
    assert ran.stderr == ""
    reader, writer = os.pipe()
    os.close(reader)
    process = subprocess.run(
        [sys.executable, "-m", "nedura_cli.main", "completion", "bash"],
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
        stdout=writer,
        stderr=subprocess.PIPE,
        check=False,
        timeout=60,
    )
    os.close(writer)
    assert (process.returncode, process.stderr) == (141, b"")


def test_an_update_goes_on_when_its_reader_left(tmp_path: Path) -> None:
    """`nedura update | head -1` must not end half-way."""
    usual = run(tmp_path, "update --plan", "")
    assert usual.stdout
    reader, writer = os.pipe()
    os.close(reader)
    process = subprocess.run(
        [sys.executable, "-m", "nedura_cli.main", "update", "--plan"],
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "LANG": "C.UTF-8"},
        stdout=writer,
        stderr=subprocess.PIPE,
        cwd="/",
        text=True,
        check=False,
        timeout=60,
    )
    os.close(writer)
    assert process.returncode == (usual.returncode or 1)
    assert process.stderr == usual.stderr + "nedura: the output could not be written: Broken pipe.\n"


def test_a_pipe_that_was_made_non_blocking_loses_nothing(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    script = (
        "from nedura.streams import mend_streams; import sys; s = mend_streams();"
        "sys.stdout.write('x' * 300_000); sys.exit(bool(s.problem()))"
    )
    process = subprocess.Popen([sys.executable, "-c", script], stdout=writer)
    os.close(writer)
    data = b""
    while chunk := os.read(reader, 65536):
        data += chunk
    os.close(reader)
    assert (process.wait(timeout=60), len(data)) == (0, 300_000)
