"""Left-overs of killed processes go; whatever might be somebody's, or still be in use, stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import attrs
import pytest

from nedura.installs import InstallPaths
from nedura.records import make_folder
from nedura.testing.clock import FakeClock
from nedura.update import real
from nedura.update.launch import Launch
from nedura.update.ledger.leftovers import (
    Swept,
    scratch_owner,
    scratch_prefix,
    sweep,
    sweep_folder,
    temp_owner,
)
from nedura.update.ledger.owner import is_gone, myself
from nedura.update.options import UpdateOptions
from nedura.update.run import Run
from tests.kits.pipeline import INSTALL_ID

HEX = "0123456789ab"
DEAD = 2**22 - 7
SOON, LATER, TOMORROW = 60.0, 4 * 3600.0, 2 * 86_400.0

KILLED_WRITER = """
import os, sys
from pathlib import Path
from nedura.records import write_json
real = os.fsync
def stop(handle):
    print(flush=True); sys.stdin.read()
os.fsync = stop
write_json(Path(sys.argv[1]), {"token": "secret"})
"""


@attrs.frozen
class Desk:
    root: Path
    scratch: Path
    locks: Path

    def sweep(self, after: float) -> Swept:
        environ = {**os.environ, "NEDURA_GATEWAY_LOCK_DIR": str(self.locks)}
        return sweep(self.root, environ, time.time() + after, scratch=self.scratch)

    def temp(self, inside: str = "", pid: int = DEAD, name: str = "auth.json") -> Path:
        path = make_folder(self.root / inside) / f".{name}.tmp.{pid}.{HEX}"
        path.write_text("secret")
        return path

    def folder(self, name: str) -> Path:
        path = make_folder(self.scratch / name)
        (path / "request.json").write_text("secret")
        return path


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(*(make_folder(tmp_path / name) for name in ("root", "scratch", "locks")))


def test_the_temp_file_of_a_killed_writer_goes(desk: Desk) -> None:
    """A real writer, killed with SIGKILL between its bytes and its rename."""
    target = desk.root / "auth.json"
    writer = subprocess.Popen(
        [sys.executable, "-c", KILLED_WRITER, str(target)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert writer.stdout is not None
    assert writer.stdin is not None
    writer.stdout.readline()
    (left,) = desk.root.iterdir()
    assert "secret" in left.read_text()
    assert desk.sweep(LATER) == Swept()  # it still lives
    writer.send_signal(signal.SIGKILL)
    writer.wait(10)
    writer.stdin.close()
    writer.stdout.close()
    assert desk.sweep(SOON) == Swept()  # too young: its writer may live in another pid namespace
    assert left.exists()
    assert desk.sweep(LATER) == Swept(files=1)
    assert list(desk.root.iterdir()) == []


def test_every_profile_and_the_host_wide_records_are_looked_at(desk: Desk) -> None:
    places = [desk.temp(), desk.temp("profiles/ops"), desk.temp("profiles/ops/a/b"), desk.temp("shared")]
    hostwide = desk.locks / f".restart.json.tmp.{DEAD}.{HEX}"
    hostwide.write_text("x")
    assert desk.sweep(LATER) == Swept(files=5)
    assert not any(path.exists() for path in [*places, hostwide])


def test_what_may_be_somebodys_stays(desk: Desk, tmp_path: Path) -> None:
    elsewhere = tmp_path / f".target.tmp.{DEAD}.{HEX}"
    elsewhere.write_text("x")
    make_folder(desk.root / "checkout/.git")
    outside = make_folder(tmp_path / "outside")
    (outside / elsewhere.name).write_text("x")
    (desk.root / "link").symlink_to(outside)
    mine = [
        desk.temp(pid=os.getpid(), name="alive"),
        desk.temp("checkout/src"),
        desk.temp(f"installs/{INSTALL_ID}/generations/000001/tree"),
        make_folder(desk.root / f".folder.tmp.{DEAD}.{HEX}"),
        outside / elsewhere.name,
    ]
    (desk.root / f".link.tmp.{DEAD}.{HEX}").symlink_to(elsewhere)
    os.link(elsewhere, desk.root / f".hard.tmp.{DEAD}.{HEX}")
    for name in ("notes.tmp.1.txt", f"auth.tmp.{DEAD}.{HEX}", ".a.tmp.x.y", f".a.tmp.{DEAD}.nothex"):
        (desk.root / name).write_text("x")
        mine.append(desk.root / name)
    assert desk.sweep(TOMORROW) == Swept()
    assert all(path.exists() for path in mine)
    assert elsewhere.exists()
    assert len(os.listdir(desk.root)) == 11


def test_the_folder_of_a_dead_updater_goes(desk: Desk) -> None:
    dead = desk.folder(f"nedura-completion-{DEAD}-abcd_123")
    takeover = desk.folder(f"nedura-takeover-{DEAD}-abcd_123")
    unsigned = desk.folder("nedura-completion-abcd_123")
    stay = [
        desk.folder(f"{scratch_prefix('nedura')}abcd_123"),
        desk.folder(f"other-completion-{DEAD}-abcd_123"),
        desk.folder("nedura-completion-notes"),
    ]
    open_to_all = desk.folder(f"nedura-completion-{DEAD}-zzzz_123")
    open_to_all.chmod(0o755)
    link = desk.scratch / f"nedura-completion-{DEAD}-link_123"
    link.symlink_to(stay[1])
    assert desk.sweep(SOON) == Swept()
    assert desk.sweep(LATER) == Swept(folders=2)
    assert (dead.exists(), takeover.exists(), unsigned.exists()) == (False, False, True)
    assert desk.sweep(TOMORROW) == Swept(folders=1)
    assert all(path.exists() for path in [*stay, open_to_all, link])


def test_the_folder_of_a_completion_that_outlives_its_updater_stays(desk: Desk) -> None:
    folder = desk.folder(f"nedura-completion-{DEAD}-abcd_123")
    child = subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()", str(folder / "request.json")],
        stdin=subprocess.PIPE,
    )
    assert child.stdin is not None
    try:
        assert desk.sweep(TOMORROW) == Swept()
    finally:
        child.stdin.close()
        child.wait(10)
    assert desk.sweep(TOMORROW) == Swept(folders=1)
    assert not folder.exists()


def test_a_reused_pid_is_no_owner() -> None:
    me = myself()
    assert not is_gone(me.pid, time.time())
    assert is_gone(me.pid, me.create_time - 60)
    assert is_gone(DEAD, time.time())


def test_names() -> None:
    assert temp_owner(f".auth.json.tmp.77.{HEX}") == 77
    assert temp_owner(".result.json.tmp.77.123456789") == 77  # the bootstrap's own
    assert temp_owner(".x.tmp.077.0123456789ab") is None
    assert scratch_owner(f"{scratch_prefix('nedura')}abcdefgh", "nedura") == os.getpid()
    assert scratch_owner("nedura-completion-abcdefgh", "nedura") == 0
    assert scratch_owner("nedura-check-abcdefgh", "nedura") is None
    assert scratch_owner("nedura-check-77-abcdefgh", "nedura") == 77
    assert scratch_owner(f"{scratch_prefix('nedura', 'check')}abcdefgh", "nedura") == os.getpid()


def test_a_missing_folder_is_no_error(tmp_path: Path) -> None:
    assert sweep_folder(tmp_path / "nowhere", time.time()) == 0
    assert sweep(tmp_path / "nowhere", {}, time.time(), scratch=tmp_path / "no") == Swept()


async def test_the_next_update_sweeps_and_says_so(desk: Desk) -> None:
    """Before the snapshots, so that no copy of a secret is copied once more."""
    left = desk.temp("profiles/ops")
    run = Run(
        run_id="test",
        root_home=desk.root,
        home=desk.root,
        clock=FakeClock(time.time() + LATER),
        started_at=time.time(),
        environ={"HOME": str(desk.root), "NEDURA_GATEWAY_LOCK_DIR": str(desk.locks)},
        options=UpdateOptions(no_backup=True),
    )
    events = [event async for event in real.snapshot(run)]
    assert [event.kind for event in events] == ["step", "skipped"]
    assert "1 temp file and 0 folders" in events[0].copy_terminal
    assert not left.exists()


def test_a_launch_looks_at_its_home(desk: Desk) -> None:
    left = desk.temp()
    said: list[str] = []
    Launch(
        root_home=desk.root,
        install=InstallPaths(desk.root, INSTALL_ID),
        shared=desk.root / "installs" / INSTALL_ID,
        environ={
            "HOME": str(desk.root),
            "NEDURA_HOME": str(desk.root),
            "NEDURA_GATEWAY_LOCK_DIR": str(desk.locks),
        },
        say=said.append,
        now=lambda: time.time() + LATER,
    ).settle()
    assert said == []
    assert not left.exists()


async def test_a_snapshot_that_the_configuration_turns_off_is_kept_silent(desk: Desk) -> None:
    """The receipt keeps the reason; a line for it every night would be noise (facts/update.md 4.1)."""
    (desk.root / "config.yaml").write_text("updates:\n  pre_update_backup: 'off'\n")
    run = Run(
        run_id="test",
        root_home=desk.root,
        home=desk.root,
        clock=FakeClock(time.time()),
        started_at=time.time(),
        environ={"HOME": str(desk.root), "NEDURA_GATEWAY_LOCK_DIR": str(desk.locks)},
        options=UpdateOptions(),
    )
    (event,) = [event async for event in real.snapshot(run)]
    assert event.kind == "skipped"
    assert "pre_update_backup" in getattr(event, "reason", "")
    assert event.copy_terminal == ""
    asked = attrs.evolve(run, options=UpdateOptions(no_backup=True))
    (event,) = [event async for event in real.snapshot(asked)]
    assert event.copy_terminal
