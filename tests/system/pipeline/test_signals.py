"""Ctrl-C and SIGTERM: the whole tree ends, the receipt says interrupted, the lock is free, the next update finishes."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.kits.site import World, world


def interrupt(
    here: World, number: signal.Signals, stage: str, times: int = 1
) -> tuple[int, list[dict[str, Any]]]:
    """Send a signal to the update as soon as a stage has begun."""
    out = here.folder / "out"
    with out.open("wb") as log:
        process = subprocess.Popen(
            [str(here.site.launcher), "update", "--json"],
            env=here.environ,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    until = time.monotonic() + 60
    while f'"stage":"{stage}"' not in out.read_text() and process.poll() is None and time.monotonic() < until:
        time.sleep(0.01)
    for _ in range(times):
        process.send_signal(number)
        time.sleep(0.05)
    code = process.wait(60)
    return code, [json.loads(line) for line in out.read_text().splitlines() if line.startswith("{")]


@pytest.mark.timeout(150)
@pytest.mark.parametrize(
    ("number", "stage", "moved", "times"),
    [
        (signal.SIGINT, "prepare", False, 1),
        (signal.SIGINT, "first_member", True, 4),
        (signal.SIGTERM, "validate", False, 3),
    ],
)
def test_a_signal_closes_the_run_truthfully(
    number: signal.Signals, stage: str, moved: bool, times: int, tmp_path: Path
) -> None:
    """However often it is sent: an impatient second one must not cut off the end of the child and of the receipt."""
    with world() as here:
        here.start("default")
        here.site.origin.commit({"nedura/_note.py": "NOTE = 1\n"}, "newer")
        code, events = interrupt(here, number, stage, times)
        assert code == 130, events[-1]
        assert events[-1]["kind"] == "update_finished"
        assert events[-1]["outcome"] == "interrupted"
        receipt = here.latest()
        assert (receipt["outcome"], receipt["exit_code"]) == ("interrupted", 130)
        assert json.loads(Path(events[-1]["receipt"]).read_text()) == receipt
        runs = here.site.origin.head if moved else events[0]["pre_update"]["code_sha"]
        assert events[-1]["now"]["code_sha"] == runs
        assert (here.current == "000002") is moved
        assert (here.site.paths.folder / "source-completion-pending").exists() is moved
        assert not (here.home / ".nedura-update-in-progress").exists()
        assert not [
            one for one in here.members() if any(word.endswith("bootstrap.py") for word in one.cmdline())
        ]
        code, events = here.update()
        assert code == 0, events[-1]
        assert here.current >= "000002"
        assert [row["state"] for row in here.latest()["fleet"] or [{"state": "current"}]] == ["current"]
        assert not (here.site.paths.folder / "source-completion-pending").exists()


LINGERS = """
import sys, time
from nedura_cli.main import program
code = program()
print("ended", flush=True)
time.sleep(0.3)
sys.exit(code)
"""
"""The command, with the moment in which Python ends drawn out."""


@pytest.mark.timeout(100)
def test_a_signal_after_the_last_word_changes_nothing() -> None:
    """The run has said how it ended and closed its receipt: its exit code is that, while it tidies up and while Python ends."""
    with world() as here:
        python = here.site.paths.current.resolve() / "venv/bin/python"
        for number in (signal.SIGINT, signal.SIGTERM):
            with subprocess.Popen(
                [str(python), "-I", "-B", "-c", LINGERS, "update", "--json"],
                env=here.environ,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            ) as process:
                lines = []
                for line in process.stdout or ():
                    lines.append(line)
                    if line == "ended\n":
                        process.send_signal(number)
            assert process.returncode == 0, lines[-1]
            assert here.latest()["outcome"] == "success"
            assert len([line for line in lines if "update_finished" in line]) == 1
