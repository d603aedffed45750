"""One table: install, serve, sign in and update in homes of every kind (issue 7). Short rows always, whole demos as soak."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from tests.kits.machine import PACKAGES

ROOT = Path(__file__).resolve().parents[3]
LONG = "blanks and ümläuts 日本語 and as many characters as it takes to be longer than one hundred and twenty of them, path and all"
NOBODY = 65534


@attrs.frozen(kw_only=True)
class Row:
    """One kind of home.

    Attributes:
        name: folder below the temporary one.
        umask: of every process.
        flags: for `play`.
        environ: what differs from the usual.
    """

    name: str = "h"
    umask: int = 0o022
    flags: tuple[str, ...] = ()
    environ: dict[str, str] = attrs.field(factory=dict)


NO_UV = {"PATH": "/usr/bin:/bin"}
ROWS = {
    "long, with blanks and letters of other scripts": Row(name=LONG),
    "a link": Row(flags=("--link",)),
    "umask 000": Row(umask=0),
    "umask 077": Row(umask=0o077),
    "no uv": Row(environ=NO_UV),
    "a locale of ASCII": Row(environ={"LANG": "C", "LC_ALL": "C"}),
    "everything at once": Row(name=LONG, umask=0, flags=("--link",), environ={**NO_UV, "LC_ALL": "C"}),
}
SHORT = ("everything at once", "umask 077")


def play(
    folder: Path, row: Row, *more: str, timeout: float = 300, python: str = sys.executable
) -> dict[str, Any]:
    """Play a row and read what was found."""
    done = subprocess.run(
        [python, "-m", "tests.system.homes.play", str(folder / row.name), *row.flags, *more],
        cwd=ROOT,
        env={**os.environ, **PACKAGES, "HOME": pwd.getpwuid(os.getuid()).pw_dir, **row.environ},
        preexec_fn=lambda: os.umask(row.umask) and None,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def judge_short(found: dict[str, Any]) -> None:
    """What a short play must have found."""
    assert found["codes"] == [0, 0, 0], found
    assert (found["outcome"], found["current"]) == ("success", "000002"), found
    assert found["snapshots"] == [1, 1], "every profile has its own, whoever asked"
    assert found["runs_newer"], found
    assert found["restarted"], found
    assert found["changed_again"] == [False], found
    assert found["readable"] == [], "nothing of a home may be read by others, whatever the umask"


def judge_whole(found: dict[str, Any]) -> None:
    """What a whole play must have found."""
    assert found["reason"] == "", found
    assert set(found["downtimes"]) == {"default", "alpha", "beta"}
    assert found["readable"] == [], found
    assert found["left"] == []


@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", SHORT)
def test_an_update_of_a_live_gateway_in_an_odd_home(tmp_path: Path, name: str) -> None:
    row = ROWS[name]
    found = play(tmp_path, row)
    judge_short(found)
    if row.name == LONG:
        assert len(found["home"]) > 120


@pytest.mark.soak
@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", [name for name in ROWS if name not in SHORT])
def test_every_other_row_of_the_table(tmp_path: Path, name: str) -> None:
    judge_short(play(tmp_path, ROWS[name]))


def test_a_parent_that_a_group_may_write_to_is_refused(tmp_path: Path) -> None:
    found = play(tmp_path, Row(flags=("--shared",)))
    assert found["code"] == 2, found
    assert "group" in found["refused"] or "others" in found["refused"], found


@pytest.mark.soak
@pytest.mark.timeout(420)
@pytest.mark.parametrize("name", list(ROWS))
def test_the_whole_demo(tmp_path: Path, name: str) -> None:
    judge_whole(play(tmp_path, ROWS[name], "--whole", timeout=400))


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that an ordinary user can reach."""
    folder = Path("/var/tmp") / f"nedura-homes-{os.getpid()}"
    folder.mkdir(mode=0o755)
    try:
        yield folder
    finally:
        subprocess.run(["chmod", "-R", "u+rwX", str(folder)], check=False)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.soak
@pytest.mark.root
@pytest.mark.timeout(900)
@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None,
    reason="needs root and setpriv to become somebody else",
)
def test_the_whole_demo_as_an_ordinary_user_without_uv(public: Path) -> None:
    """As a newcomer: a clone, `./run setup` with the system's Python, the demo."""
    checkout, home = public / "checkout", public / "user"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(checkout)], check=True)
    home.mkdir(mode=0o700)
    subprocess.run(["chown", "-R", f"{NOBODY}:{NOBODY}", str(checkout), str(home)], check=True)
    become = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    env = {**PACKAGES, **NO_UV, "HOME": str(home), "TMPDIR": str(home), "LANG": "C.UTF-8", "USER": "nobody"}
    for argv, limit in ((["./run", "setup"], 400), (["./run", "demo", "--json"], 400)):
        done = subprocess.run(
            [*become, *argv],
            cwd=checkout,
            env=env,
            capture_output=True,
            text=True,
            timeout=limit,
            check=False,
        )
        assert done.returncode == 0, (done.stdout[-1500:], done.stderr[-1500:])
    last = json.loads(done.stdout.splitlines()[-1])
    assert (last["kind"], last["ok"]) == ("demo_finished", True)
