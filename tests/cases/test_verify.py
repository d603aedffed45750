"""Field reports of area `update.verify` by their ids: the fleet's half of each."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import attrs
import pytest

from nedura.fleet import (
    Fleet,
    collect_now,
    complete,
    find_socket,
    judge,
    reconcile,
    verify_fleet,
)
from nedura.fleet.events import FleetMatrix
from nedura.fleet.model import Runtime
from nedura.installs import CodeIdentity, install_id_for, running_code
from tests.kits.fleet import ROOT, child_environ, gateway, wait_for

INSTALL = "a" * 12
NEW = CodeIdentity(install_id=INSTALL, code_sha="2" * 40)
OLD = CodeIdentity(install_id=INSTALL, code_sha="1" * 40)


def runtime(profile: str, pid: int, code: CodeIdentity, **more: object) -> Runtime:
    base = Runtime(
        kind="gateway",
        profile=profile,
        pid=pid,
        start_time=pid,
        home=Path("/h") / profile,
        code=code,
        state="running",
    )
    return attrs.evolve(base, **more)  # type: ignore[arg-type]


def clone(folder: Path) -> Path:
    """A second checkout of the code that runs, with a HEAD of its own."""
    folder.mkdir()
    for name in ("nedura", "renderers"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.test", "-C", str(folder)]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "other"], check=True)
    return folder


def run_from(checkout: Path, home: Path) -> subprocess.Popen[bytes]:
    paths = [str(checkout), str(checkout / "renderers" / "cli"), str(checkout / "renderers" / "gateway")]
    environ = child_environ(home, PYTHONPATH=":".join(paths))
    return subprocess.Popen(
        [sys.executable, "-m", "nedura_gateway", "--handler", "nedura.testing.handlers:slow_words"],
        env=environ, cwd=checkout, stderr=subprocess.DEVNULL,
    )  # fmt: skip


def _when_foreign(root: Path, pid: int) -> Fleet | None:
    fleet = collect_now(root)
    return fleet if any(item.pid == pid for item in fleet.foreign) else None


def test_c095_a_gateway_of_another_checkout_is_external_and_owes_nothing(tmp_path: Path) -> None:
    """Two clones, two gateways on profiles of one root: the other clone's is named, never stale."""
    root = tmp_path / "root"
    home = root / "profiles" / "other"
    home.mkdir(parents=True)
    other = clone(tmp_path / "clone")
    process = run_from(other, home)
    try:
        with gateway(root) as mine:
            # not by its name in the home: below a worker's longer folder the socket lies in the private one
            wait_for(lambda: find_socket(home, "chat", os.environ), 45)
            fleet = wait_for(lambda: _when_foreign(root, process.pid))
            assert [row.pid for row in fleet.runtimes] == [mine.pid]
            (item,) = [item for item in fleet.foreign if item.pid == process.pid]
            assert (item.reason, item.detail) == ("another install", install_id_for(other))
            rows = judge(mine.code(), fleet)
            assert [row.state for row in rows] == ["current"]
            assert complete(rows, expected_rows=True)
    finally:
        process.kill()
        process.wait()


def test_c095_the_verdict_itself() -> None:
    foreign = attrs.evolve(OLD, install_id="b" * 12)
    rows = judge(NEW, Fleet(runtimes=(runtime("a", 1, foreign),)))
    assert [row.state for row in rows] == ["external"]
    assert complete(rows, expected_rows=False)


async def test_c096_a_process_that_stamps_late_is_unknown_until_then(tmp_path: Path) -> None:
    """It was restarted a second ago and says nothing for a while: waited for, never called stale."""
    before = runtime("default", 1, OLD)
    asked = time.monotonic()

    async def look() -> Fleet:
        silent = time.monotonic() - asked < 1.0
        return Fleet(runtimes=(runtime("default", 2, CodeIdentity() if silent else NEW),))

    (row,) = judge(NEW, await look(), before=[before])
    assert (row.state, row.identity_pending, row.failing) == ("unknown", True, False)
    assert "not published" in row.copy_terminal
    events = [
        event
        async for event in verify_fleet(NEW, look, before=[before], restarted=["default"], deadline_s=20)
    ]
    last = events[-1]
    assert isinstance(last, FleetMatrix)
    assert (last.complete, last.settled, last.rows[0].state) == (True, True, "current")
    assert 0.5 < last.waited < 5


def test_c096_a_state_file_older_than_the_process_is_not_its_word(tmp_path: Path) -> None:
    with gateway(tmp_path / "home") as daemon:
        home = tmp_path / "home"
        wait_for(lambda: (home / "gateway_state.json").exists())
        socket = find_socket(home, "gateway", os.environ)
        assert socket is not None
        socket.unlink()
        record = json.loads((home / "gateway_state.json").read_text())
        old = {**record, "pid": daemon.pid, "start_time": record["start_time"] - 100, "code_sha": "1" * 40}
        daemon.process.send_signal(19)
        (home / "gateway_state.json").write_text(json.dumps(old))
        (row,) = judge(running_code(), collect_now(home, scan=False))
        daemon.process.send_signal(18)
        assert (row.state, row.code_sha) == ("unknown", "")


def test_c096_a_restart_deferred_inside_the_gateway_is_pending() -> None:
    inside = runtime("default", 1, OLD, ancestor=True)
    rows = judge(NEW, Fleet(runtimes=(inside,)), before=[inside], pending={1})
    assert [row.state for row in rows] == ["restart_pending"]
    assert complete(rows, expected_rows=True)
    (outcome,) = reconcile([inside], Fleet(runtimes=(inside,)), deferred={1: "in_gateway"})
    assert (outcome.outcome, outcome.owed, outcome.reason) == ("deferred", False, "in_gateway")


def test_c097_a_gateway_notices_by_itself_that_its_code_moved(tmp_path: Path) -> None:
    """The run was cut between the move and the restart: the member says so on its own, and every look shows it."""
    home = tmp_path / "home"
    home.mkdir()
    checkout = clone(tmp_path / "clone")
    process = run_from(checkout, home)
    try:
        wait_for(lambda: find_socket(home, "chat", os.environ), 45)
        ours = install_id_for(checkout)
        (row,) = collect_now(home, install_id=ours).runtimes
        assert not row.reported_stale
        git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.test", "-C", str(checkout)]
        subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "moved"], check=True)
        (row,) = wait_for(
            lambda: [one for one in collect_now(home, install_id=ours).runtimes if one.reported_stale], 10
        )
        head = subprocess.run(
            [*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True
        ).stdout.strip()
        (verdict,) = judge(CodeIdentity(install_id=ours, code_sha=head), collect_now(home, install_id=ours))
        assert verdict.state == "stale"
    finally:
        process.kill()
        process.wait()


def test_c100_an_empty_plan_is_done() -> None:
    assert reconcile([], Fleet(runtimes=(runtime("a", 1, NEW),))) == ()
    assert complete((), expected_rows=False)


@pytest.mark.parametrize("unit", ["nedura-gateway-1a2b3c4d.service", "nedura-gateway.service", ""])
def test_c100_a_unit_is_accounted_for_by_home_not_by_name(unit: str) -> None:
    planned = runtime("custom", 1, OLD, unit=unit, supervisor="systemd", restart_via="systemd")
    now = runtime("custom", 2, NEW, unit="nedura-gateway-custom.service", supervisor="systemd")
    (outcome,) = reconcile([planned], Fleet(runtimes=(now,)))
    assert (outcome.outcome, outcome.owed) == ("restarted", False)


def test_c100_a_backend_of_the_desktop_app_is_deferred_with_a_reason() -> None:
    serve = runtime("a", 1, OLD, kind="serve", supervisor="desktop", restart_via="desktop")
    (outcome,) = reconcile([serve], Fleet(runtimes=(serve,)))
    assert (outcome.outcome, outcome.owed) == ("deferred", False)
    assert "desktop" in outcome.reason
