"""A real sealed install of this very code with live gateways: real git, real processes, the real command."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import attrs
import psutil

from nedura.testing.installs import Content, Site, make_site, own_files

QUICK = {"settle_seconds: float = 12.0": "settle_seconds: float = 0.3"}


def quick_tree(extra: Mapping[str, Content] | None = None) -> dict[str, Content]:
    """This code, with a first member that proves itself quickly."""
    files = dict(own_files())
    text = files["nedura/product.py"]
    assert isinstance(text, bytes)
    for old, new in QUICK.items():
        assert old.encode() in text, old
        text = text.replace(old.encode(), new.encode())
    return {**files, "nedura/product.py": text, **(extra or {})}


@attrs.define
class World:
    """One site, its gateways and its own environment; `extra` holds further variables of it."""

    folder: Path
    site: Site
    started: list[subprocess.Popen[bytes]] = attrs.field(factory=list)
    extra: dict[str, str] = attrs.field(factory=dict)

    @property
    def home(self) -> Path:
        return self.site.home

    def home_of(self, profile: str) -> Path:
        return self.home if profile == "default" else self.home / "profiles" / profile

    @property
    def environ(self) -> dict[str, str]:
        return {
            "HOME": str(self.folder),
            "NEDURA_HOME": str(self.home),
            "NEDURA_GATEWAY_LOCK_DIR": str(self.folder / "locks"),
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            "TMPDIR": str(self.folder / "tmp"),
            **self.extra,
        }

    def command(self, *args: str, timeout: float = 60, **extra: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.site.launcher), *args],
            env={**self.environ, **extra},
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def update(self, *args: str, timeout: float = 100, **extra: str) -> tuple[int, list[dict[str, Any]]]:
        """Run `nedura update --json`; exit code and events."""
        done = self.command("update", "--json", *args, timeout=timeout, **extra)
        return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]

    def start(self, *profiles: str) -> None:
        """Start gateways and wait until they serve."""
        for profile in profiles:
            if profile != "default" and not self.home_of(profile).is_dir():
                made = self.command("profile", "create", profile)
                assert made.returncode == 0, made.stderr
        for profile in profiles:
            flag = [] if profile == "default" else ["-p", profile]
            log = (self.folder / f"gateway-{profile}.log").open("ab")
            with log:
                self.started.append(
                    subprocess.Popen(
                        [
                            str(self.site.launcher),
                            *flag,
                            "gateway",
                            "run",
                            "--handler",
                            "nedura.testing.handlers:slow_words",
                        ],
                        env=self.environ,
                        cwd=self.folder,
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=log,
                        start_new_session=True,
                    )
                )
        until = time.monotonic() + 30
        for profile in profiles:
            while self.state(profile).get("gateway_state") != "running":
                assert time.monotonic() < until, (self.folder / f"gateway-{profile}.log").read_text()
                time.sleep(0.05)

    def state(self, profile: str) -> dict[str, Any]:
        try:
            value: dict[str, Any] = json.loads((self.home_of(profile) / "gateway_state.json").read_text())
        except (OSError, ValueError):
            return {}
        return value

    def pids(self, profiles: Sequence[str]) -> dict[str, int]:
        return {profile: int(self.state(profile).get("pid", 0)) for profile in profiles}

    @property
    def current(self) -> str:
        return Path(os.readlink(self.site.paths.current)).name

    def receipts(self) -> list[dict[str, Any]]:
        folder = self.home / "logs/update_receipts"
        return [json.loads(path.read_text()) for path in sorted(folder.glob("update_*.json"))]

    def latest(self) -> dict[str, Any]:
        value: dict[str, Any] = json.loads((self.home / "logs/update_receipts/latest.json").read_text())
        return value

    def members(self) -> list[psutil.Process]:
        """Every process that runs on this world's home, ours by its environment, never by its name."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get("NEDURA_GATEWAY_LOCK_DIR") == str(self.folder / "locks"):
                    found.append(process)
            except (psutil.Error, OSError):
                continue
        return [process for process in found if process.pid != os.getpid()]

    def close(self) -> None:
        """End everything of this world and remove it."""
        until = time.monotonic() + 15
        while (members := self.members()) and time.monotonic() < until:
            for process in members:
                with suppress(psutil.Error):
                    process.kill()
            time.sleep(0.02)
        for started in self.started:
            started.wait(5)
        subprocess.run(["chmod", "-R", "u+w", str(self.folder)], check=False, stderr=subprocess.DEVNULL)
        shutil.rmtree(self.folder, ignore_errors=True)


def build(folder: Path, tree: Mapping[str, Content] | None = None) -> World:
    """A new world in a folder of its own."""
    folder.mkdir(mode=0o700, exist_ok=True)
    (folder / "tmp").mkdir(mode=0o700)
    return World(
        folder, make_site(folder, "own" if tree is None else tree, product=None if tree is None else _own())
    )


def _own() -> Any:
    from nedura.product import NEDURA

    return NEDURA


@contextmanager
def world(tree: Mapping[str, Content] | None = None, parent: Path | None = None) -> Iterator[World]:
    """A world that is ended and removed afterwards. Its path is short: control sockets have a limit."""
    folder = Path(tempfile.mkdtemp(prefix="nw-", dir=parent))
    made = build(folder, quick_tree() if tree is None else tree)
    try:
        yield made
    finally:
        made.close()
