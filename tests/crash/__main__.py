"""`python -m tests.crash --seed N --runs M [--json] [--self-check]`: strike updates of a real install and check what must hold."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from tests.crash.bugs import BUGS
from tests.crash.harness import Harness
from tests.crash.host import full_host_lacks, make_host
from tests.crash.plan import WHATS, Round, plan_round
from tests.kits.site import quick_tree

ROOT = Path(__file__).resolve().parents[2]
MANAGER = ROOT / "tests/system/real-systemd.sh"


def parse(argv: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="crash")
    parser.add_argument("--seed", type=int, default=1, help="first seed; run K uses seed + K")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument(
        "--minutes", type=float, default=0.0, help="begin no further run after so long (default: no limit)"
    )
    parser.add_argument("--layout", choices=("sealed", "checkout"), default="sealed")
    parser.add_argument(
        "--host",
        choices=("auto", "plain", "full"),
        default="auto",
        help="full: a file system of its own and a real systemd (needs root); plain: this machine as it is",
    )
    parser.add_argument("--only", action="append", choices=WHATS, default=[], help="this kind of strike")
    parser.add_argument("--keep", type=Path, help="copy logs and traces of each violation below this folder")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--self-check", action="store_true", help="plant known bugs; each must be reported")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Run the strikes; exit 1 on any violation."""
    args = parse(argv)
    lacks = full_host_lacks()
    if args.host == "full" and lacks:
        sys.stderr.write(f"crash: a host of its own needs {lacks}\n")
        return 2
    if args.host == "auto" and lacks:
        sys.stderr.write(f"crash: no power cuts, no systemd: this machine lacks {lacks}\n")
    if args.host != "plain" and not lacks and not args.inside:
        return beside_a_manager(sys.argv[1:] if argv is None else argv)
    if args.inside:
        os.environ["XDG_CONFIG_HOME"] = f"{os.environ['HOME']}/.config"
    return self_check(args) if args.self_check else strikes(args)


def beside_a_manager(argv: list[str]) -> int:
    """The same command beside a systemd user manager, in namespaces of its own that end with it."""
    command = [str(MANAGER), "user", "-n", "--", sys.executable, "-m", "tests.crash", "--inside", *argv]
    with subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}) as harness:
        try:
            return harness.wait()
        except BaseException:
            harness.terminate()  # it takes its namespaces along
            raise


def strikes(args: argparse.Namespace) -> int:
    """Strike after strike on one world."""
    begin = time.monotonic()
    with make_host(args.layout, disk=args.inside) as host:
        harness = Harness(host, args.json)
        harness.prepare()
        harness.measure()
        runs = 0
        for seed in range(args.seed, args.seed + args.runs):
            if args.minutes and time.monotonic() - begin > args.minutes * 60:
                break
            plan = plan_round(seed, harness.measured, layout=args.layout, disk=host.has_disk, only=args.only)
            start = time.monotonic()
            found = harness.run(plan)
            runs += 1
            harness.tell(
                kind="crash_run",
                seed=seed,
                plan=plan.name,
                strikes=harness.strikes,
                seconds=round(time.monotonic() - start, 1),
                phases=harness.phases,
                violations=found,
            )
            if found:
                harness.violations.append({"seed": seed, "plan": plan.name, "found": found})
                if args.keep:
                    harness.keep(args.keep / str(seed))
                if not harness.mend():
                    harness.tell(kind="crash_given_up", seed=seed, said=harness.said(0)[-500:])
                    break
        harness.tell(
            kind="crash_finished",
            runs=runs,
            seed=args.seed,
            layout=args.layout,
            **harness.finished(service=host.has_disk, minutes=round((time.monotonic() - begin) / 60, 1)),
        )
        return 1 if harness.violations else 0


def self_check(args: argparse.Namespace) -> int:
    """Each planted bug must lead to a violation; exit 1 when one goes unnoticed."""
    unnoticed, skipped = [], []
    for bug in BUGS:
        if bug.needs_disk and not args.inside:
            skipped.append(bug.name)
            continue
        with make_host("sealed", disk=args.inside, tree=bug.plant(quick_tree())) as host:
            harness = Harness(host, args.json)
            harness.prepare()
            found = harness.run(Round(kills=(bug.kill,), launches=(None,)))
            noticed = any(bug.shows in text for text in found)
            harness.tell(kind="crash_self_check", bug=bug.name, noticed=noticed, violations=found[:3])
            if not noticed:
                unnoticed.append(bug.name)
    record = {
        "kind": "crash_finished",
        "self_check": True,
        "bugs": len(BUGS) - len(skipped),
        "skipped": skipped,
        "unnoticed": unnoticed,
        "violations": len(unnoticed),
    }
    sys.stdout.write(json.dumps(record) + "\n")
    return 1 if unnoticed else 0


if __name__ == "__main__":
    raise SystemExit(main())
