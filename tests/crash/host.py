"""Where a world lives: on this machine as it is, or on a file system of its own beside a real systemd manager."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal

import attrs
import psutil

from nedura.fleet.looking import look
from nedura.fleet.storm import STARTS_NAME
from nedura.testing.installs import Content
from tests.kits.checkout import checkout_world
from tests.kits.site import World, world

__all__ = ["PROFILES", "SERVICE", "Host", "Layout", "full_host_lacks", "make_host"]

PROFILES: Final = ("default", "alpha", "beta")
SERVICE: Final = "alpha"
"""The profile whose gateway runs under systemd, when there is one."""
MOUNT: Final = Path("/mnt")
"""Where the file system goes: the harness runs in a mount namespace of its own, and no part of it counts as temporary."""
SIZE: Final = "900M"
Layout = Literal["sealed", "checkout"]


def full_host_lacks() -> str:
    """What this machine lacks for a file system and a systemd of its own, empty for nothing."""
    if os.geteuid() != 0:
        return "uid 0 (namespaces, loop devices)"
    for program in ("unshare", "mount", "umount", "mkfs.xfs", "xfs_io", "fuser", "systemctl"):
        if shutil.which(program) is None:
            return program
    if not Path("/dev/loop-control").exists():
        return "loop devices"
    return "" if Path("/lib/systemd/systemd").exists() else "systemd"


def _run(*words: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [str(word) for word in words], capture_output=True, text=True, timeout=60, check=False
    )
    assert not check or done.returncode == 0, f"{' '.join(map(str, words))}: {done.stderr or done.stdout}"
    return done


def _gateway_of(process: psutil.Process) -> str | None:
    """The profile that a gateway is of; empty for a watcher that will become one; None for every other process."""
    try:
        words = process.cmdline()
    except psutil.Error:
        return None
    if any("relaunch" in word for word in words):
        return ""
    if "gateway" not in words:
        return None
    return words[words.index("-p") + 1] if "-p" in words else "default"


@attrs.define
class Host:
    """A world and the machine below it.

    Attributes:
        world: the world.
        outside: a folder that survives everything: output, traces.
        image: the file of the world's own file system, None without one.
        unit: the service's name.
    """

    world: World
    outside: Path
    image: Path | None = None
    unit: str = ""

    @property
    def has_disk(self) -> bool:
        """Whether the disk can be cut off, filled, made read-only."""
        return self.image is not None

    def start(self) -> None:
        """Start every gateway, one as a service where there is a manager, and wait until they serve."""
        self._start(PROFILES)

    def start_missing(self) -> None:
        """Start what does not come back by itself, as whoever watches would."""
        begin = time.monotonic()
        while missing := [name for name in PROFILES if not asyncio.run(self._serves(name))]:
            waited = time.monotonic() - begin
            assert waited < 60, f"{missing} do not come back"
            coming = {_gateway_of(one) for one in self.world.members()}
            gone = [name for name in missing if name not in coming]
            if gone and ("" not in coming or waited > 5):  # a watcher may wait for another one's end for long
                self.calm()
                self._start(gone)
            time.sleep(0.2)

    async def _serves(self, profile: str) -> bool:
        found = await look(self.world.home_of(profile), environ=self.world.environ)
        return found is not None and found.state == "running"

    def _start(self, profiles: Sequence[str]) -> None:
        if not self.has_disk:
            self.world.start(*profiles)
            return
        made = self.world.home_of(SERVICE)
        if not made.is_dir():
            done = self.world.command("profile", "create", SERVICE)
            assert done.returncode == 0, done.stderr
            self._install_service()
        _run("systemctl", "--user", "start", "--no-block", self.unit)
        self.world.start(*(name for name in profiles if name != SERVICE))
        asyncio.run(self._all_serve())

    async def _all_serve(self) -> None:
        """Wait until every gateway answers; what their files claim may be of an earlier boot."""
        until = time.monotonic() + 60
        for profile in PROFILES:
            while True:
                if await self._serves(profile):
                    break
                if time.monotonic() > until:
                    raise AssertionError(
                        f"{profile}: {_run('systemctl', '--user', 'status', check=False).stdout}"
                    )
                await asyncio.sleep(0.05)

    def _install_service(self) -> None:
        """The program's own unit; a drop-in gives it the variables that tell this world's processes from others."""
        done = self.world.command("-p", SERVICE, "gateway", "install", "--no-start-now")
        assert done.returncode == 0, done.stderr + done.stdout
        units = Path(os.environ["XDG_CONFIG_HOME"]) / "systemd/user"
        (unit,) = units.glob("nedura-gateway-*.service")  # a home of its own: its name ends in a hash
        self.unit = unit.name
        folder = units / f"{self.unit}.d"
        folder.mkdir()
        names = ("HOME", "TMPDIR", "NEDURA_GATEWAY_LOCK_DIR", "LANG")
        lines = [f"Environment={name}={self.world.environ[name]}\n" for name in names]
        (folder / "world.conf").write_text("[Service]\n" + "".join(lines))
        _run("systemctl", "--user", "daemon-reload")

    def calm(self) -> None:
        """Forget how often the gateways were started: nobody else updates every few seconds, and their storm brake would only cost time."""
        for profile in PROFILES:
            (self.world.home_of(profile) / STARTS_NAME).unlink(missing_ok=True)

    def settle(self) -> None:
        """What was written so far survives a power cut."""
        if self.has_disk:
            _run("sync", "-f", self.world.folder)

    def cut_power(self) -> None:
        """Shut the file system down as it is on the disk now, end every process of the world, mount it again and let it recover."""
        assert self.image is not None
        _run("xfs_io", "-x", "-c", "shutdown", MOUNT)
        self._end_everybody()
        for _ in range(50):
            if _run("umount", MOUNT, check=False).returncode == 0:
                break
            self._end_everybody()
            time.sleep(0.05)
        else:
            raise AssertionError(f"still in use: {_run('fuser', '-vM', '-m', MOUNT, check=False).stderr}")
        _run("mount", "-o", "loop", self.image, MOUNT)

    def boot(self) -> None:
        """After a power cut: what starts by itself starts, and people start the rest."""
        for started in self.world.started:
            started.wait(5)
        self.world.started.clear()
        self.start()

    def _end_everybody(self) -> None:
        _run("systemctl", "--user", "kill", "-s", "KILL", self.unit, check=False)
        _run("systemctl", "--user", "stop", "--no-block", self.unit, check=False)
        members = self.world.members()
        for pid in _run("fuser", "-M", "-m", MOUNT, check=False).stdout.split():
            try:
                members.append(psutil.Process(int(pid)))
            except psutil.NoSuchProcess:
                continue
        for process in members:
            if process.pid in (os.getpid(), 1):
                continue
            try:
                process.send_signal(signal.SIGKILL)
            except psutil.Error:
                continue
        psutil.wait_procs([one for one in members if one.pid not in (os.getpid(), 1)], timeout=5)

    @contextmanager
    def full(self) -> Iterator[None]:
        """The disk is full to the last block."""
        assert self.image is not None
        ballast, free = MOUNT / "ballast", os.statvfs(MOUNT)
        size = free.f_bavail * free.f_frsize
        with ballast.open("wb") as file:
            while size >= 4096:
                try:
                    os.posix_fallocate(file.fileno(), os.fstat(file.fileno()).st_size, size)
                except OSError:
                    size //= 2
        try:
            yield
        finally:
            ballast.unlink()

    @contextmanager
    def readonly(self) -> Iterator[None]:
        """The home can only be read: a read-only mount lies over it, for every name that is looked up from now on."""
        home = self.world.home
        _run("mount", "--bind", home, home)
        try:
            for _ in range(200):  # busy while somebody writes a file that was opened through the new mount
                if _run("mount", "-o", "remount,bind,ro", home, check=False).returncode == 0:
                    break
                time.sleep(0.01)
            else:
                raise AssertionError("the home cannot be made read-only")
            yield
        finally:
            _run("umount", "-l", home)

    def close(self) -> None:
        """End what the world's own end does not know of."""
        if self.unit:
            _run("systemctl", "--user", "disable", "--now", self.unit, check=False)
            units = Path(os.environ["XDG_CONFIG_HOME"]) / "systemd/user"
            shutil.rmtree(units / f"{self.unit}.d", ignore_errors=True)
            (units / self.unit).unlink(missing_ok=True)  # the next world finds its own
            _run("systemctl", "--user", "daemon-reload")


@contextmanager
def make_host(layout: Layout, *, disk: bool, tree: Mapping[str, Content] | None = None) -> Iterator[Host]:
    """A world on a host of its own, ended and removed afterwards.

    Args:
        layout: of the install.
        disk: a file system of its own and a systemd; needs `full_host_lacks() == ""` and to run beside a manager.
        tree: what is installed; default this code, made quick.
    """
    make = checkout_world if layout == "checkout" else world
    outside = Path(tempfile.mkdtemp(prefix="nc-"))
    try:
        if not disk:
            with make(tree) as here:
                yield Host(here, outside)
            return
        assert "real-systemd." in os.environ.get("XDG_RUNTIME_DIR", ""), "not beside a manager of its own"
        image = outside / "disk"
        with image.open("wb") as file:
            file.truncate(0)
        _run("truncate", "-s", SIZE, image)
        _run("mkfs.xfs", "-q", "-m", "reflink=1", image)
        _run("mount", "-o", "loop", image, MOUNT)
        try:
            with make(tree, MOUNT) as here:
                here.extra = {name: os.environ[name] for name in ("XDG_RUNTIME_DIR", "XDG_CONFIG_HOME")}
                host = Host(here, outside, image)
                try:
                    yield host
                finally:
                    host.close()
        finally:
            _run("umount", "-l", MOUNT)
    finally:
        shutil.rmtree(outside, ignore_errors=True)
