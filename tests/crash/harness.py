"""One world, strike after strike: strike an update, look, launch, look, and so on, then update, look."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs

from tests.crash.host import PROFILES, Host
from tests.crash.look import age_launcher, current_of, ids_of, look, seed_state, updaters_of
from tests.crash.plan import Kill, Measured, Round
from tests.crash.rules import after_kill, after_launch, after_update, ended_right
from tests.crash.strike import Blow, has_strace, heed_ctrl_c, strike
from tests.crash.trace import START, Reach, reach_of

__all__ = ["Harness"]

LAUNCH = ("fleet", "status")
QUICK_STAGES = frozenset({START, "plan", "snapshot", "prepare"})
"""Stages of an update that is at its target already."""
RERUN_EVERY = 4
"""How often a third update proves that a rerun restarts nobody: it costs seconds."""


@attrs.define
class Harness:
    """The strikes on one world, and what was counted on the way.

    Attributes:
        host: where.
        as_json: whether lines are JSON.
        measured: an unharmed update.
        kills: strikes that happened so far.
        pairs: kind -> stage that was hit -> strikes that happened.
        missed: kind -> stage that was aimed at -> strikes that came too late, or found nobody.
        calls: stage -> call -> numbers of that call that were struck.
        strikes: those of the last run, for its line.
        phases: seconds of each phase of the last run.
    """

    host: Host
    as_json: bool = True
    measured: Measured = attrs.field(factory=Measured)
    number: int = 0
    kills: int = 0
    restarts: int = 0
    pairs: dict[str, dict[str, int]] = attrs.field(factory=dict)
    missed: dict[str, dict[str, int]] = attrs.field(factory=dict)
    calls: dict[str, dict[str, set[int]]] = attrs.field(factory=dict)
    violations: list[dict[str, Any]] = attrs.field(factory=list)
    strikes: list[dict[str, Any]] = attrs.field(factory=list)
    phases: dict[str, float] = attrs.field(factory=dict)

    @property
    def by_kind(self) -> dict[str, int]:
        """Kind -> strikes that happened."""
        return {kind: sum(stages.values()) for kind, stages in self.pairs.items()}

    @contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        """Note how long a phase of the run took."""
        begin = time.monotonic()
        yield
        self.phases[phase] = round(self.phases.get(phase, 0.0) + time.monotonic() - begin, 1)

    def tell(self, **record: Any) -> None:
        """One line."""
        if self.as_json:
            sys.stdout.write(json.dumps(record) + "\n")
        else:
            sys.stdout.write(" ".join(f"{key}={value}" for key, value in record.items()) + "\n")
        sys.stdout.flush()

    def prepare(self) -> None:
        """Gateways, stores, a local edit."""
        heed_ctrl_c()
        self.host.start()
        seed_state(self.host.world)

    def commit(self) -> str:
        """Publish one more version."""
        self.number += 1
        age_launcher(self.host.world)
        sha = self.host.world.site.origin.commit(
            {"nedura/_crash.py": f"NUMBER = {self.number}\n"}, f"change {self.number}"
        )
        self.host.settle()
        return sha

    def measure(self) -> None:
        """Unharmed updates: a first one, one that is timed, and one under a tracer that says which calls come in which stage."""
        blows = []
        for _ in range(2):
            self.commit()
            self.host.calm()
            blows.append(strike(self.host, None))
            assert blows[-1].code == 0, self.said(0)[-2000:]
        blow = min(blows, key=lambda one: one.seconds)  # what else the machine does only makes it longer
        begin = time.monotonic()
        assert self.host.world.command(*LAUNCH).returncode == 0
        launch = time.monotonic() - begin
        reach: Reach = {}
        if has_strace():
            self.commit()
            self.host.calm()
            trace = self.host.outside / "measured"
            assert strike(self.host, None, traced=trace).code == 0, self.said(0)[-2000:]
            reach = reach_of(trace.read_text(errors="replace"))
        self.measured = Measured(seconds=blow.seconds, lengths=blow.lengths, reach=reach, launch=launch)
        self.tell(
            kind="crash_measured",
            seconds=round(blow.seconds, 2),
            launch=round(launch, 2),
            stages={stage: round(length, 2) for stage, length in blow.lengths.items()},
            calls={stage: len(self.measured.calls(stage)) for stage in reach},
        )

    def said(self, offset: int) -> str:
        """What the updates printed from some place on."""
        with (self.host.outside / "update.out").open("rb") as file:
            file.seek(offset)
            return file.read().decode(errors="replace")

    def run(self, plan: Round) -> list[str]:
        """Its strikes, each with its launch, and one more update; what did not hold. What does not end does not hold either."""
        try:
            return self._run(plan)
        except (AssertionError, subprocess.TimeoutExpired) as error:
            return [f"it came to no end: {error}"[:1000]]

    def _run(self, plan: Round) -> list[str]:
        self.phases.clear()
        self.strikes.clear()
        with self.timed("commit"):
            old, commit = current_of(self.host.world), self.commit()
        found: list[str] = []
        for kill, launch in zip(plan.kills, plan.launches, strict=True):
            if current_of(self.host.world) != old and kill.stage not in QUICK_STAGES:
                old, commit = current_of(self.host.world), self.commit()  # else this stage would never come
            found += [f"after {kill.name}: {text}" for text in self._strike(kill, old, commit)]
            if found:  # the next strike would only blur it
                return found
            found += [
                f"after the launch after {kill.name}: {text}" for text in self._launch(launch, old, commit)
            ]
        return found + self._again(old, commit)

    def mend(self) -> bool:
        """After a violation: whether plain updates bring the world back to where the next run may begin."""
        for _ in range(3):
            self.host.calm()
            try:
                if strike(self.host, None).code == 0:
                    self.host.start_missing()
                    return True
            except (AssertionError, subprocess.TimeoutExpired):
                continue
        return False

    def keep(self, folder: Path) -> None:
        """Copy what tells how a violation came about: logs, receipts, what was printed, the trace."""
        folder.mkdir(parents=True, exist_ok=True)
        world = self.host.world
        found = [
            *self.host.outside.glob("update.out"),
            *self.host.outside.glob("trace"),
            *world.folder.glob("*.log"),
        ]
        for path in found:
            shutil.copy2(path, folder / path.name)
        for name in ("logs", "profiles/alpha/logs", "profiles/beta/logs"):
            shutil.copytree(world.home / name, folder / name.replace("/", "-"), dirs_exist_ok=True)

    def _strike(self, kill: Kill, old: str, commit: str) -> list[str]:
        """One update that is struck, and how things are then, with no repair."""
        world = self.host.world
        self.host.calm()
        before = look(world, old=old, commit=commit, mended=False)
        known, place = ids_of(before), self._end_of_output()
        with self.timed("strike"):
            blow = strike(self.host, kill)
        self._count(kill, blow, kill.kind)
        power = kill.what == "power" and blow.reached
        with self.timed("look"):
            facts = look(world, old=old, commit=commit, mended=False)
        runs = [r for r in facts.receipts if r is not None and r.get("update_id") not in known]
        run = str(runs[-1]["update_id"]) if runs else None
        found = after_kill(facts, before=before, run=run, cut=power, ended=blow.code == 0)
        said = self.said(place)
        found += ended_right(
            kill.kind if blow.reached else "",
            blow.code,
            moved=facts.current != before.current,
            there=before.current == facts.new != "",
            receipt=runs[-1] if runs else None,
            at=blow.at,
            said=said,
        )
        if kill.what in ("sigint", "full", "readonly", "eio") and facts.processes:
            found.append(f"left running: {facts.processes[0]}")
        if power:
            try:
                with self.timed("boot"):
                    self.host.boot()
            except AssertionError as error:  # nothing that runs can be asked any further
                found.append(f"the gateways do not start again: {str(error)[:300]}")
        told = kill.what in ("full", "readonly", "eio") and '"step":"gateway_restart"' in said
        if blow.bystander or told:  # a gateway was hit, or could not start again: whoever watches starts it
            self.host.start_missing()
        return found

    def _end_of_output(self) -> int:
        out = self.host.outside / "update.out"
        return out.stat().st_size if out.exists() else 0

    def _launch(self, kill: Kill | None, old: str, commit: str) -> list[str]:
        """One plain launch, struck or not. What it finishes may take seconds, and then that is what is struck."""
        world, whole = self.host.world, True
        self.host.calm()
        with self.timed("launch"):
            if kill is None:
                done = world.command(*LAUNCH, timeout=120)
                code: int | None = done.returncode
                said = done.stderr
            else:
                place = self._end_of_output()
                blow = strike(self.host, self._of_launch(kill), LAUNCH)
                self._count(kill, blow, "launch kill")
                code, whole, said = blow.code, not blow.reached, self.said(place)
                if blow.bystander:
                    self.host.start_missing()
        found = after_launch(look(world, old=old, commit=commit, mended=whole))
        if whole and code != 0:
            found.append(f"it exits {code}: {said[-300:]}")
        return found

    def _of_launch(self, kill: Kill) -> Kill:
        """The strike of a launch as this launch allows it: one that has nothing to mend is short and changes no file."""
        paths = self.host.world.site.paths
        owed = (paths.folder / "source-completion-pending").exists()
        torn = (self.host.world.site.checkout / ".git/nedura-update-pull").exists()
        length = self.measured.launch + (0.8 * self.measured.seconds if owed else 0.3 if torn else 0.0)
        if not (owed or torn) and kill.how == "call" and kill.call != "execve":
            return attrs.evolve(kill, how="instant", after=kill.number / 13 * length)
        return attrs.evolve(kill, after=kill.after * length)

    def _count(self, kill: Kill, blow: Blow, kind: str) -> None:
        launch = kind == "launch kill"
        stage = "launch" if launch else blow.stage if blow.reached else kill.stage
        self.strikes.append(
            {
                "kind": kind,
                "stage": stage,
                "reached": blow.reached,
                "code": blow.code,
                "seconds": round(blow.seconds, 1),
            }
            | ({"call": kill.call, "number": kill.number, "since": kill.since} if blow.by_call else {})
            | ({"bystander": True} if blow.bystander else {})
        )
        counted = self.pairs if blow.reached else self.missed
        stages = counted.setdefault(kind, {})
        stages[stage] = stages.get(stage, 0) + 1
        if not blow.reached:
            return
        self.kills += 1
        if blow.by_call and not blow.bystander:
            self.calls.setdefault(stage, {}).setdefault(kill.call, set()).add(kill.number)

    def _again(self, old: str, commit: str) -> list[str]:
        """The next update, and now and then a third one that must restart nobody."""
        world = self.host.world
        until = time.monotonic() + 40
        with self.timed("retry"):
            while updaters_of(world) and time.monotonic() < until:  # a retry that went on in the background
                time.sleep(0.1)
        self.host.calm()
        before = world.pids(PROFILES)
        with self.timed("update"):
            blow = strike(self.host, None)
        pids = world.pids(PROFILES)
        self.restarts += sum(pids[name] != before[name] for name in PROFILES)
        restarted = 0
        if self.number % RERUN_EVERY == 0:
            with self.timed("rerun"):
                strike(self.host, None)
            again = world.pids(PROFILES)
            restarted = sum(again[name] != pids[name] for name in PROFILES)
        facts = look(world, old=old, commit=commit)
        code = -1 if blow.code is None else blow.code
        found = after_update(facts, code=code, kills=self.kills, restarted=restarted)
        return [f"after the update: {text}" for text in found]

    def finished(self, **more: Any) -> dict[str, Any]:
        """The last line's facts."""
        return {
            "reached": self.kills,
            "missed": sum(sum(stages.values()) for stages in self.missed.values()),
            "by_kind": self.by_kind,
            "violations": len(self.violations),
            "restarts": self.restarts,
            "pairs": self.pairs,
            "missed_pairs": self.missed,
            "calls": {
                stage: {call: len(numbers) for call, numbers in calls.items()}
                for stage, calls in self.calls.items()
            },
            **more,
        }
