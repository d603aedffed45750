"""`python -m tests.crash --seed N --runs M [--json] [--self-check]`: kill updates of a real install and check what must hold."""

from __future__ import annotations

import argparse
import json
import sys
import time
from contextlib import AbstractContextManager
from typing import Any

import attrs

from tests.crash.bugs import BUGS, NEVER
from tests.crash.look import PROFILES, current_of, look, seed_state
from tests.crash.plan import Kill, plan_kill
from tests.crash.rules import after_kill, after_update
from tests.crash.strike import count_calls, has_strace, strike
from tests.kits.checkout import checkout_world
from tests.kits.site import World, quick_tree, world


@attrs.define
class Harness:
    """One world and its kills."""

    here: World
    as_json: bool
    seconds: float = 6.0
    counts: dict[str, int] = attrs.field(factory=dict)
    number: int = 0
    kills: int = 0
    reached: int = 0
    restarts: int = 0
    calls: dict[str, set[int]] = attrs.field(factory=dict)
    stages: dict[str, int] = attrs.field(factory=dict)
    violations: list[dict[str, Any]] = attrs.field(factory=list)

    def tell(self, **record: Any) -> None:
        if self.as_json:
            sys.stdout.write(json.dumps(record) + "\n")
        else:
            sys.stdout.write(" ".join(f"{key}={value}" for key, value in record.items()) + "\n")
        sys.stdout.flush()

    def commit(self) -> str:
        self.number += 1
        return self.here.site.origin.commit(
            {"nedura/_crash.py": f"NUMBER = {self.number}\n"}, f"change {self.number}"
        )

    def measure(self) -> None:
        """One unharmed update: how long it takes and how many calls of each kind it makes."""
        self.commit()
        start = time.monotonic()
        code, _ = strike(self.here, None)
        assert code == 0, (self.here.folder / "update.out").read_text()[-2000:]
        self.seconds = time.monotonic() - start
        if has_strace():
            self.commit()
            trace = self.here.folder / "trace"
            strike(self.here, None, traced=trace)
            self.counts = count_calls(trace)
        self.tell(kind="crash_measured", seconds=round(self.seconds, 2), calls=self.counts)

    def run(self, kill: Kill) -> list[str]:
        """One kill, one launch, one more update; what did not hold."""
        old, commit = current_of(self.here), self.commit()
        known = {receipt["update_id"] for receipt in self.here.receipts()}
        code, reached = strike(self.here, kill)
        self.kills += reached
        self.reached += reached
        if reached and kill.how == "call":
            self.calls.setdefault(kill.call, set()).add(kill.number)
        facts = look(self.here, old=old, commit=commit, mended=False)
        runs = [r for r in facts.receipts if r is not None and r["update_id"] not in known]
        run = runs[-1]["update_id"] if runs else None
        if reached:
            stage = str(runs[-1].get("stage", "")) if runs else "start"
            self.stages[stage] = self.stages.get(stage, 0) + 1
        found = [f"after the kill: {text}" for text in after_kill(facts, run=run)]
        if code not in (None, 0, 1, 130):
            found.append(f"after the kill: exit code {code}")
        launch = self.here.command("fleet", "status")
        if launch.returncode != 0:
            found.append(f"the next launch exits {launch.returncode}: {launch.stderr[-300:]}")
        return found + self.again(old, commit)

    def again(self, old: str, commit: str) -> list[str]:
        """The next update, and a second one that must restart nobody."""
        until = time.monotonic() + 40
        while look_for_update(self.here) and time.monotonic() < until:
            time.sleep(0.1)
        before = self.here.pids(PROFILES)
        code, _ = strike(self.here, None)
        pids = self.here.pids(PROFILES)
        self.restarts += sum(pids[name] != before[name] for name in PROFILES)
        restarted = 0
        if self.number % 4 == 0:
            strike(self.here, None)
            restarted = sum(self.here.pids(PROFILES)[name] != pids[name] for name in PROFILES)
        facts = look(self.here, old=old, commit=commit)
        return [
            f"after the update: {text}"
            for text in after_update(
                facts, code=-1 if code is None else code, kills=self.kills, restarted=restarted
            )
        ]


def look_for_update(here: World) -> bool:
    """Whether an update of this world still runs (a retry that went on in the background)."""
    from tests.crash.look import _updaters

    return bool(_updaters(here))


def prepare(here: World) -> None:
    """Gateways, stores, a local edit."""
    here.start(*PROFILES)
    seed_state(here)


def main(argv: list[str] | None = None) -> int:
    """Run the kills; exit 1 on any violation."""
    parser = argparse.ArgumentParser(prog="crash")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--layout", choices=("sealed", "checkout"), default="sealed")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--self-check", action="store_true", help="plant known bugs; each must be reported")
    args = parser.parse_args(argv)
    if args.self_check:
        return self_check(args)
    make: AbstractContextManager[World] = checkout_world() if args.layout == "checkout" else world()
    with make as here:
        prepare(here)
        harness = Harness(here, args.json)
        harness.measure()
        for seed in range(args.seed, args.seed + args.runs):
            kill = plan_kill(seed, harness.seconds, harness.counts)
            found = harness.run(kill)
            harness.tell(kind="crash_run", seed=seed, kill=kill.name, violations=found)
            if found:
                harness.violations.append({"seed": seed, "kill": kill.name, "found": found})
        harness.tell(
            kind="crash_finished",
            layout=args.layout,
            runs=args.runs,
            seed=args.seed,
            reached=harness.reached,
            violations=len(harness.violations),
            restarts=harness.restarts,
            stages=harness.stages,
            calls={call: len(numbers) for call, numbers in harness.calls.items()},
        )
        return 1 if harness.violations else 0


def self_check(args: argparse.Namespace) -> int:
    """Each planted bug must lead to a violation; exit 1 when one goes unnoticed."""
    unnoticed = []
    for bug in BUGS:
        with world(bug.plant(quick_tree())) as here:
            prepare(here)
            harness = Harness(here, args.json)
            found = harness.run(attrs.evolve(NEVER, seed=args.seed))
            harness.tell(kind="crash_self_check", bug=bug.name, noticed=bool(found), violations=found[:3])
            if not found:
                unnoticed.append(bug.name)
    record = {
        "kind": "crash_finished",
        "self_check": True,
        "bugs": len(BUGS),
        "unnoticed": unnoticed,
        "violations": len(unnoticed),
    }
    sys.stdout.write(json.dumps(record) + "\n")
    return 1 if unnoticed else 0


if __name__ == "__main__":
    raise SystemExit(main())
