"""`./run demo` as a newcomer meets it: it holds, an outsider can check it, Ctrl-C leaves nothing, bad input is one line."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.kits.machine import PACKAGES

ROOT = Path(__file__).resolve().parents[3]


@contextmanager
def demo(folder: Path, *argv: str, cwd: Path = ROOT, **environ: str) -> Iterator[subprocess.Popen[str]]:
    """The demo with its temporary folder below `folder`; ended and its pipes closed afterwards.

    It gets its user's own HOME and package settings: it builds a real environment; nedura's home is the demo's in any case.
    """
    user = {"HOME": pwd.getpwuid(os.getuid()).pw_dir, "TMPDIR": str(folder)}
    with subprocess.Popen(
        [sys.executable, "-m", "demo", *argv],
        cwd=cwd,
        env={**os.environ, **PACKAGES, **user, **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def left_behind(folder: Path) -> list[str]:
    """Processes whose home, working folder or program is in the demo's folder."""
    found = []
    for process in psutil.process_iter():
        try:
            places = [process.environ().get("NEDURA_HOME", ""), process.cwd(), *process.cmdline()[:1]]
        except psutil.Error:
            continue
        if any(place.startswith(f"{folder}/nedura-demo-") for place in places):
            found.append(f"{process.pid} {process.name()}")
    return found


@pytest.mark.timeout(420)
def test_every_step_holds_and_an_outsider_can_check_it(tmp_path: Path) -> None:
    with demo(tmp_path, "--json", "--keep") as process:
        out, err = process.communicate(timeout=400)
    records: list[dict[str, Any]] = [json.loads(line) for line in out.splitlines()]
    assert process.returncode == 0, f"{records[-1]} {err}"
    last = records[-1]
    assert (last["kind"], last["ok"], last["kept"]) == ("demo_finished", True, True)
    steps = [(record["number"], record["state"]) for record in records if record["kind"] == "demo_step"]
    assert steps == [(number, state) for number in range(1, 8) for state in ("started", "done")]
    _check_folder(Path(last["folder"]), last)
    assert left_behind(tmp_path) == []


def _check_folder(folder: Path, last: dict[str, Any]) -> None:
    """What anybody can look up in the kept folder."""
    home = folder / "home"
    receipt = json.loads(Path(last["receipt"]).read_text())
    assert receipt["outcome"] == "success"
    assert Path(last["receipt"]).parent == home / "logs" / "update_receipts"
    install = next((home / "installs").iterdir())
    assert os.readlink(install / "current") == "generations/000002"
    newer = subprocess.run(
        ["git", "-C", folder / "origin.git", "rev-parse", "main"], capture_output=True, text=True, check=True
    )
    assert {row["profile"]: row["state"] for row in last["matrix"]} == dict.fromkeys(
        ("default", "alpha", "beta"), "current"
    )
    assert {row["code_sha"] for row in last["matrix"]} == {newer.stdout.strip()}
    assert set(last["downtimes"]) == {"default", "alpha", "beta"}
    for profile in (home, home / "profiles" / "alpha", home / "profiles" / "beta"):
        assert json.loads((profile / "gateway_state.json").read_text())["code_sha"] == newer.stdout.strip()
        assert len(list((profile / "state-snapshots").iterdir())) >= 1
    log = [json.loads(line) for line in (folder / "portal-requests.log").read_text().splitlines()]
    asked = {entry["route"] for entry in log}
    assert {"device_code", "token.device", "device_page", "anon.claim"} <= asked


@pytest.mark.timeout(420)
def test_ctrl_c_in_the_middle_of_the_update_leaves_nothing(tmp_path: Path) -> None:
    with demo(tmp_path, "--json") as process:
        assert process.stdout is not None
        for line in process.stdout:
            if json.loads(line)["kind"] == "drain_waiting":
                process.send_signal(signal.SIGINT)
                break
        rest = [json.loads(line) for line in process.stdout.read().splitlines()]
        assert process.wait(60) == 130, rest
    assert rest[-1]["kind"] == "demo_finished"
    assert not rest[-1]["ok"]
    assert list(tmp_path.glob("nedura-demo-*")) == []
    assert left_behind(tmp_path) == []


def test_a_tree_that_is_no_checkout_is_one_clear_line(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    for name in ("demo", "nedura", "renderers"):
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    roots = (tree, tree / "renderers" / "cli", tree / "renderers" / "gateway")
    with demo(tmp_path, "--plain", cwd=tree, PYTHONPATH=os.pathsep.join(map(str, roots))) as process:
        out, err = process.communicate(timeout=50)
    assert process.returncode == 1
    assert "is no git checkout; the demo needs one" in out
    assert "Traceback" not in out + err
    assert list(tmp_path.glob("nedura-demo-*")) == []
