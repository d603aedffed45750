"""A toy install and scripted parts for tests of the pipeline: real files, real processes, stages that do what the test says."""

from __future__ import annotations

import json
import os
import textwrap
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import psutil

from nedura.clock import SystemClock
from nedura.fleet import Fleet, FleetMatrix, MatrixRow, Runtime
from nedura.fleet.restart_events import MemberRestarted
from nedura.installs import CodeIdentity, InstallPaths
from nedura.update import Candidate, Run, UpdateOptions, UpdateParts
from nedura.update.completion.spawn import spawn
from nedura.update.events import Committed, PlanReady, Prepared, SnapshotTaken, UpdateFinished
from nedura.update.parts import Refusal
from nedura.update.pipeline import update
from nedura.update.planning.plan import Plan, PlanRuntime
from nedura.wire import Event

INSTALL_ID = "0123456789ab"
ROOT = Path(__file__).resolve().parents[2]


def code(generation: str, letter: str) -> CodeIdentity:
    return CodeIdentity(
        install_id=INSTALL_ID,
        generation=generation,
        code_sha=letter * 40,
        code_version="9.9",
        tree_hash=letter * 40,
    )


OLD, NEW = code("000001", "a"), code("000002", "b")

GOOD_CHILD = """
import json, os, sys
phase, request_path, result_path = sys.argv[1:]
request = json.load(open(request_path))
fd = request["events_fd"]
def tell(**event):
    os.write(fd, (json.dumps({"at": "2026-01-01T00:00:00Z", "copy": "", "copy_terminal": "", **event}) + "\\n").encode())
def close(outcome="success", code=0, **more):
    receipt = {**request["receipt"], "outcome": outcome, "exit_code": code, "finished_at": "2026-01-01T00:00:01Z",
               "seq": request["receipt"]["seq"] + 100, **more}
    answer = {"schema": 1, "update_id": request["update_id"], "nonce": request["nonce"], "exit_code": code, "receipt": receipt}
    json.dump(answer, open(result_path, "w"))
    return receipt
"""


@attrs.define
class ToyFleet:
    """A fleet of data: `first` and `rest` yield what the test put in."""

    runtimes: tuple[Runtime, ...] = ()
    restarted: list[str] = attrs.field(factory=list)
    failing: frozenset[str] = frozenset()

    async def collect(self) -> Fleet:
        return Fleet(runtimes=self.runtimes)

    async def first(self, runtimes: Sequence[Runtime], expected: CodeIdentity) -> AsyncGenerator[Event, None]:
        for runtime in runtimes[:1]:
            async for event in self.rest([runtime], expected, ()):
                yield event

    async def rest(
        self, runtimes: Sequence[Runtime], expected: CodeIdentity, skip: Collection[int]
    ) -> AsyncGenerator[Event, None]:
        for runtime in runtimes:
            if runtime.pid in skip:
                continue
            self.restarted.append(runtime.profile)
            new = attrs.evolve(runtime, pid=runtime.pid + 1000, code=expected)
            self.runtimes = tuple(new if one.pid == runtime.pid else one for one in self.runtimes)
            yield MemberRestarted(profile=runtime.profile, pid=new.pid, downtime_ms=5)

    async def verify(
        self, before: Fleet, expected: CodeIdentity, restarted: Collection[str]
    ) -> AsyncGenerator[Event, None]:
        rows = tuple(
            MatrixRow(
                profile=one.profile,
                pid=one.pid,
                state="current" if one.code == expected and one.profile not in self.failing else "stale",
                generation=one.code.generation,
            )
            for one in self.runtimes
        )
        yield FleetMatrix(expected=expected, rows=rows, complete=not any(row.failing for row in rows))

    async def account(
        self, before: Fleet, failed: Mapping[int, str], deferred: Mapping[int, str]
    ) -> tuple[Mapping[str, Any], ...]:
        return tuple({"profile": one.profile, "outcome": "restarted"} for one in before.runtimes)

    async def recover(self, runtimes: Sequence[Runtime], expected: CodeIdentity) -> tuple[bool, str]:
        return False, "not tried"

    async def idle(self, profiles: Collection[str]) -> frozenset[str]:
        return frozenset(profiles) - {one.profile for one in self.runtimes}


def plan_of(runtimes: Sequence[Runtime]) -> Plan:
    rows = tuple(
        PlanRuntime(
            kind=one.kind,
            profile=one.profile,
            pid=one.pid,
            supervisor=one.supervisor,
            code_sha=one.code.code_sha,
            code_version=one.code.code_version,
            restart_via=one.restart_via,
        )
        for one in runtimes
    )
    return Plan(runtimes=rows, deadline_s=60.0)


@attrs.define
class Toy:
    """One toy install in a root home.

    Attributes:
        home: root home.
        changed: whether prepare finds something new.
        child: source of the new tree's bootstrap.
        fleet: the fleet.
        calls: stages that ran, in order.
        errors: stage -> what it raises.
        refusal: what admission says.
        hooks: stage -> called with the run when it begins.
    """

    home: Path
    changed: bool = True
    child: str = GOOD_CHILD + "close()\n"
    fleet: ToyFleet = attrs.field(factory=ToyFleet)
    calls: list[str] = attrs.field(factory=list)
    errors: dict[str, Exception] = attrs.field(factory=dict)
    refusal: Refusal | None = None
    hooks: dict[str, Callable[[Run], Any]] = attrs.field(factory=dict)
    layout: str = "sealed"
    failed: list[str] = attrs.field(factory=list)

    def __attrs_post_init__(self) -> None:
        self.home.mkdir(mode=0o700, exist_ok=True)
        self._generation("000001", "raise SystemExit('old')\n")
        if not self.paths.current.is_symlink():
            os.symlink("generations/000001", self.paths.current)

    @property
    def paths(self) -> InstallPaths:
        return InstallPaths(self.home, INSTALL_ID)

    @property
    def current(self) -> str:
        return Path(os.readlink(self.paths.current)).name

    def _generation(self, name: str, bootstrap: str) -> Path:
        tree = self.paths.generations / name / "tree"
        place = tree / "nedura/update/bootstrap.py"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(textwrap.dedent(bootstrap))
        return tree

    async def _begin(self, name: str, run: Run) -> None:
        self.calls.append(name)
        hook = self.hooks.get(name)
        if hook is not None:
            answer = hook(run)
            if hasattr(answer, "__await__"):
                await answer
        if name in self.errors:
            raise self.errors[name]

    async def admit(self, run: Run) -> Refusal | None:
        run.install, run.before = self.paths, code(self.current, "a" if self.current == "000001" else "b")
        run.layout = "sealed"
        return self.refusal

    async def plan(self, run: Run) -> AsyncGenerator[Event, None]:
        await self._begin("plan", run)
        run.plan = plan_of(self.fleet.runtimes)
        yield PlanReady(plan={"runtimes": [{"profile": one.profile} for one in self.fleet.runtimes]})

    async def snapshot(self, run: Run) -> AsyncGenerator[Event, None]:
        await self._begin("snapshot", run)
        yield SnapshotTaken(profile="default", snapshot_id="20260101-000000-pre-update", files=1, size=2)

    async def prepare(self, run: Run) -> AsyncGenerator[Event, None]:
        await self._begin("prepare", run)
        name = "000002" if self.changed else self.current
        if self.changed or not self.paths.generations.joinpath(name).exists():
            tree = self._generation(name, self.child)
        else:
            tree = self._generation(name, self.child)
        identity = NEW if name == "000002" else OLD
        folder = self.paths.generations / name
        candidate = Candidate(
            layout="sealed", identity=identity, folder=folder, tree=tree, python=Path("/none")
        )
        yield Prepared(candidate=candidate, changed=self.changed)

    async def validate(self, run: Run) -> AsyncGenerator[Event, None]:
        await self._begin("validate", run)
        return
        yield

    async def commit(self, run: Run) -> AsyncGenerator[Event, None]:
        await self._begin("commit", run)
        assert run.candidate is not None
        run.previous = self.paths.pointed()
        self._point(run.candidate.folder.name)
        yield Committed(before=run.before, now=run.candidate.identity)

    def _point(self, name: str) -> None:
        temp = self.paths.folder / ".tmp"
        os.symlink(f"generations/{name}", temp)
        os.replace(temp, self.paths.current)

    def take_back(self, run: Run) -> None:
        self.calls.append("take_back")
        assert run.previous is not None
        self._point(run.previous.name)

    def remember(self, run: Run, check: str) -> None:
        self.failed.append(check)

    def parts(self, **more: Any) -> UpdateParts:
        fields: dict[str, Any] = {
            "admit": self.admit,
            "plan": self.plan,
            "snapshot": self.snapshot,
            "prepare": self.prepare,
            "validate": self.validate,
            "commit": self.commit,
            "take_back": self.take_back,
            "fleet": lambda run: self.fleet,
            "remember_failed": self.remember,
            "spawn": spawn,
        }
        return UpdateParts(**{**fields, **more})

    def stream(self, options: UpdateOptions | None = None, **more: Any) -> AsyncGenerator[Event, None]:
        environ = {
            **os.environ,
            "NEDURA_HOME": str(self.home),
            "NEDURA_GATEWAY_LOCK_DIR": str(self.home / "locks"),
        }
        return update(
            home=self.home, options=options, environ=environ, clock=SystemClock(), parts=self.parts(**more)
        )

    async def run(
        self, options: UpdateOptions | None = None, **more: Any
    ) -> tuple[UpdateFinished, list[Event]]:
        events = [event async for event in self.stream(options, **more)]
        last = events[-1]
        assert isinstance(last, UpdateFinished)
        return last, events

    def receipts(self) -> list[dict[str, Any]]:
        folder = self.home / "logs/update_receipts"
        return [json.loads(path.read_text()) for path in sorted(folder.glob("update_*.json"))]

    def latest(self) -> dict[str, Any]:
        value: dict[str, Any] = json.loads((self.home / "logs/update_receipts/latest.json").read_text())
        return value

    @property
    def tail_armed(self) -> bool:
        return (self.paths.folder / "source-completion-pending").exists()

    @property
    def debt_armed(self) -> bool:
        return any((self.home / "locks").glob("host-update-restart-*.json"))


def gateway(profile: str, home: Path, pid: int, runs: CodeIdentity = OLD) -> Runtime:
    return Runtime(
        kind="gateway", profile=profile, pid=pid, start_time=1, home=home, code=runs, state="running"
    )


def gone(pid: int) -> bool:
    """Whether a process ended; a zombie that nobody reaps here counts."""
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True
