"""The demo's folder, its environment and every process that it started."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import attrs
import psutil

from demo.errors import DemoError
from demo.events import Fact
from nedura.update import known_kinds
from nedura.wire import Event, from_wire

__all__ = ["Finished", "World"]

_DROP: Final = (
    "NEDURA_",
    "HERMES_",
    "NOUS_",
    "GIT_",
    "PYTHON",
    "SSH_",
    "VIRTUAL_ENV",
    "INVOCATION_ID",
    "NOTIFY_",
)
_LINE: Final = 4 * 1024 * 1024


@attrs.frozen(kw_only=True)
class Finished:
    """A command that ended.

    Attributes:
        code: its exit code.
        records: its wire lines.
        stderr: the last lines of its stderr.
    """

    code: int
    records: tuple[Mapping[str, Any], ...]
    stderr: str

    def last(self, kind: str) -> Mapping[str, Any]:
        """The last record of a kind.

        Raises:
            DemoError: there is none.
        """
        found = self.every(kind)
        if found:
            return found[-1]
        raise DemoError(f"There was no {kind!r} line. {self.stderr}".strip())

    def every(self, kind: str) -> list[Mapping[str, Any]]:
        """All records of a kind."""
        return [record for record in self.records if record.get("kind") == kind]


@attrs.define
class World:
    """Everything that one demo owns.

    Attributes:
        checkout: the tree that the demo was started from.
        folder: where everything is made.
        tell: where events go.
    """

    checkout: Path
    folder: Path
    tell: Callable[[Event], None]
    portal_url: str = ""
    processes: list[asyncio.subprocess.Process] = attrs.field(factory=list)

    @property
    def home(self) -> Path:
        """Root home of the demo's install."""
        return self.folder / "home"

    @property
    def launcher(self) -> Path:
        """The installed command."""
        return self.home / "bin" / "nedura"

    def profile_home(self, profile: str) -> Path:
        """Home of one of the three profiles."""
        return self.home if profile == "default" else self.home / "profiles" / profile

    def environ(self) -> dict[str, str]:
        """Environment of every process of the demo: nothing of the caller's own nedura, nothing of its git or Python settings."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(_DROP)}
        portal = {"NEDURA_PORTAL_BASE_URL": self.portal_url} if self.portal_url else {}
        return {**kept, "NEDURA_HOME": str(self.home), "NEDURA_GUEST_ONBOARDING": "1", **portal}

    def fact(self, text: str) -> None:
        """Tell something that was looked at and found true."""
        self.tell(Fact(text=text))

    async def command(
        self,
        *argv: str | Path,
        show: bool = True,
        timeout: float = 300.0,
        on_record: Callable[[Mapping[str, Any]], None] | None = None,
    ) -> Finished:
        """Run a command with `--json` and pass its events on as they come.

        Args:
            *argv: the whole command line.
            show: tell its events.
            timeout: seconds after which it is ended.
            on_record: called with each wire line.

        Raises:
            DemoError: it did not end in time, or printed something that is no wire line.
        """
        process = await asyncio.create_subprocess_exec(
            *map(str, argv),
            env=self.environ(),
            cwd=self.folder,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=_LINE,
        )
        assert process.stdout is not None
        assert process.stderr is not None
        errors = asyncio.ensure_future(process.stderr.read())
        records: list[Mapping[str, Any]] = []
        try:
            async with asyncio.timeout(timeout):
                async for line in process.stdout:
                    record = _record(line)
                    records.append(record)
                    if show:
                        self.tell(from_wire(record, known_kinds()))
                    if on_record is not None:
                        on_record(record)
                code = await process.wait()
        except TimeoutError:
            raise DemoError(
                f"{Path(argv[0]).name} {' '.join(map(str, argv[1:4]))} did not end in {timeout:.0f} s."
            ) from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
            text = (await errors).decode("utf-8", "replace").strip()
        return Finished(code=code, records=tuple(records), stderr=" ".join(text.splitlines()[-3:])[-600:])

    def log(self, name: str) -> Path:
        """A log file in the demo's folder."""
        return self.folder / f"{name}.log"

    def mine(self) -> list[psutil.Process]:
        """Every process whose nedura home, working folder or program lies in the demo's folder."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.pid != os.getpid() and self._is_mine(process):
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def _is_mine(self, process: psutil.Process) -> bool:
        places = [process.environ().get("NEDURA_HOME", ""), process.cwd(), *process.cmdline()[:1]]
        base = str(self.folder)
        return any(place == base or place.startswith(base + os.sep) for place in places)

    async def end(self, *, keep: bool) -> list[str]:
        """End every process of the demo and remove its folder.

        Returns:
            What could not be ended.
        """
        await asyncio.gather(*(_end_child(process) for process in self.processes))
        for _ in range(3):  # a watcher may start one more while we look
            processes = await asyncio.to_thread(self.mine)
            if not processes:
                break
            await asyncio.to_thread(_end_all, processes)
        left = [f"process {process.pid}" for process in await asyncio.to_thread(self.mine)]
        if not keep:
            await asyncio.to_thread(_remove, self.folder)
            left += [str(self.folder)] if self.folder.exists() else []
        return left


def _record(line: bytes) -> Mapping[str, Any]:
    try:
        record = json.loads(line)
    except ValueError:
        record = None
    if not isinstance(record, dict) or "kind" not in record:
        raise DemoError(f"stdout held something that is no wire line: {line[:120]!r}")
    return record


async def _end_child(process: asyncio.subprocess.Process) -> None:
    for act in (process.terminate, process.kill):
        if process.returncode is not None:
            return
        act()
        try:
            await asyncio.wait_for(process.wait(), 5)
        except TimeoutError:
            continue


def _end_all(processes: list[psutil.Process]) -> None:
    for process in processes:
        try:
            process.terminate()
        except psutil.Error:
            continue
    _, alive = psutil.wait_procs(processes, timeout=5)
    for process in alive:
        try:
            process.kill()
        except psutil.Error:
            continue
    psutil.wait_procs(alive, timeout=5)


def _remove(folder: Path) -> None:
    """Generations are read-only folders: give ourselves the right to empty them first."""
    for base, names, _ in os.walk(folder):
        for name in names:
            path = os.path.join(base, name)
            if not os.path.islink(path):
                os.chmod(path, 0o700)
    shutil.rmtree(folder, ignore_errors=True)
    deadline = time.monotonic() + 2
    while folder.exists() and time.monotonic() < deadline:
        shutil.rmtree(folder, ignore_errors=True)
