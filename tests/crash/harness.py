"""One world, strike after strike: strike an update, look, launch, look, update again, look."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import attrs

from tests.crash.host import PROFILES, Host
from tests.crash.look import age_launcher, current_of, look, seed_state, updaters_of
from tests.crash.plan import Kill
from tests.crash.rules import EXITS, after_kill, after_launch, after_update
from tests.crash.strike import Blow, count_calls, has_strace, strike

__all__ = ["Harness"]

RERUN_EVERY = 4
"""How often a third update proves that a rerun restarts nobody: it costs seconds."""


@attrs.define
class Harness:
    """The strikes on one world, and what was counted on the way.

    Attributes:
        host: where.
        as_json: whether lines are JSON.
        seconds: how long an unharmed update takes.
        counts: system calls of an unharmed update: the most that one of its processes makes.
        kills: strikes that happened so far.
        reached: the same by kind.
        calls: stage -> call -> numbers of that call that were struck.
        stages: stage -> strikes in it.
        phases: seconds of each phase of the last run.
    """

    host: Host
    as_json: bool = True
    seconds: float = 6.0
    counts: dict[str, int] = attrs.field(factory=dict)
    number: int = 0
    kills: int = 0
    restarts: int = 0
    reached: dict[str, int] = attrs.field(factory=dict)
    calls: dict[str, dict[str, set[int]]] = attrs.field(factory=dict)
    stages: dict[str, int] = attrs.field(factory=dict)
    violations: list[dict[str, Any]] = attrs.field(factory=list)
    phases: dict[str, float] = attrs.field(factory=dict)

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
        """One unharmed update under a tracer: how long it takes and how many calls of each kind it makes."""
        self.commit()
        start = time.monotonic()
        traced = self.host.outside / "trace" if has_strace() else None
        blow = strike(self.host, None, traced=traced)
        assert blow.code == 0, self.said()
        self.seconds = time.monotonic() - start
        if traced is not None:
            self.counts = count_calls(traced)
        self.tell(kind="crash_measured", seconds=round(self.seconds, 2), calls=self.counts)

    def said(self) -> str:
        """The end of what the updates printed."""
        return (self.host.outside / "update.out").read_text(errors="replace")[-2000:]

    def run(self, kill: Kill) -> list[str]:
        """One strike, one launch, one more update; what did not hold."""
        world = self.host.world
        self.phases.clear()
        self.host.calm()
        with self.timed("commit"):
            old, commit = current_of(world), self.commit()
        known = {receipt["update_id"] for receipt in world.receipts()}
        with self.timed("strike"):
            blow = strike(self.host, kill)
        self._count(kill, blow)
        power = kill.what == "power" and blow.reached
        with self.timed("look"):
            facts = look(world, old=old, commit=commit, mended=False)
        runs = [r for r in facts.receipts if r is not None and r["update_id"] not in known]
        run = runs[-1]["update_id"] if runs else None
        found = [f"after the strike: {text}" for text in after_kill(facts, run=run, cut=power)]
        if blow.code not in (EXITS[kill.what] if blow.reached else {0}):
            found.append(f"after the strike: exit code {blow.code}: {self.said()[-300:]}")
        if power:
            try:
                with self.timed("boot"):
                    self.host.boot()
            except AssertionError as error:  # nothing that runs can be asked any further
                return [*found, f"after the strike: the gateways do not start again: {str(error)[:300]}"]
        with self.timed("launch"):
            launch = world.command("fleet", "status")
        if launch.returncode != 0:
            found.append(f"the next launch exits {launch.returncode}: {launch.stderr[-300:]}")
        found += [f"after the launch: {text}" for text in after_launch(look(world, old=old, commit=commit))]
        return found + self._again(old, commit)

    def _count(self, kill: Kill, blow: Blow) -> None:
        if not blow.reached:
            return
        self.kills += 1
        self.reached[kill.what] = self.reached.get(kill.what, 0) + 1
        self.stages[blow.stage] = self.stages.get(blow.stage, 0) + 1
        if kill.how == "call":
            self.calls.setdefault(blow.stage, {}).setdefault(kill.call, set()).add(kill.number)

    def _again(self, old: str, commit: str) -> list[str]:
        """The next update, and now and then a third one that must restart nobody."""
        world = self.host.world
        until = time.monotonic() + 40
        with self.timed("retry"):
            while updaters_of(world) and time.monotonic() < until:  # a retry that went on in the background
                time.sleep(0.1)
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
            "reached": sum(self.reached.values()),
            "by_kind": self.reached,
            "violations": len(self.violations),
            "restarts": self.restarts,
            "stages": self.stages,
            "calls": {
                stage: {call: len(numbers) for call, numbers in calls.items()}
                for stage, calls in self.calls.items()
            },
            **more,
        }
