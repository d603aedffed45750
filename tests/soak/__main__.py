"""Command line of the soak."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nedura.testing.portal import serve_portal
from tests.soak.bugs import BUGS
from tests.soak.kills import tracer_works
from tests.soak.run import Soak

ENOUGH = 100
"""From so many steps on a run must have killed something."""


class Report:
    """Lines for people, or JSON lines; the last one is `soak_finished`."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json

    def record(self, kind: str, text: str, **fields: Any) -> None:
        line = json.dumps({"kind": kind, **fields}) if self.as_json else text
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


async def soak(seed: int, count: int, report: Report, *, bug: str = "", stop_at: int = 0) -> Soak:
    """One run in a fresh root."""

    def violated(number: int, what: str, told: str) -> None:
        if not bug:
            report.record(
                "soak_violation",
                f"step {number}: {what}\n    {told}",
                step=number,
                violation=what,
                operations=told,
            )

    tracer = await tracer_works()
    with tempfile.TemporaryDirectory(prefix="nedura-soak-") as folder:
        run = Soak(root=Path(folder) / ".nedura", seed=seed, tracer=tracer, report=violated, bug=bug)
        async with serve_portal(run.portal) as server:
            await run.run(server, count, stop_at=stop_at)
    return run


def _finished(report: Report, run: Soak, args: argparse.Namespace, start: float) -> int:
    fields = {
        "steps": run.done,
        "violations": run.count,
        "seed": args.seed,
        "kills": run.kills,
        "power_cuts": run.cuts,
        "requests": len(run.portal.log),
        "tracer": run.tracer,
        "seconds": round(time.monotonic() - start, 1),
    }
    reason = _too_weak(run)
    if reason:
        fields["weak"] = reason
    text = ", ".join(f"{name} {value}" for name, value in fields.items())
    report.record("soak_finished", text, **fields)
    return 1 if run.count or (reason and os.environ.get("CI") == "true") else 0


def _too_weak(run: Soak) -> str:
    """What this run could not show, in words; in CI that fails it (decision 57)."""
    if not run.tracer:
        return "strace is missing or may not trace: kills came by time, no power was cut"
    if run.done >= ENOUGH and not run.kills:
        return "no kill hit"
    return ""


def _self_check(report: Report, args: argparse.Namespace, start: float) -> int:
    missed = []
    done = 0
    bugs = args.self_check or BUGS
    for bug in bugs:
        run = asyncio.run(soak(args.seed, args.steps, report, bug=bug, stop_at=1))
        done += run.done
        needs_tracer = bug == "skip_fsync" and not run.tracer
        seen = run.count > 0
        if not seen:
            missed.append(bug)
        text = f"planted {bug}: {'seen' if seen else 'NOT SEEN'} at step {run.done}"
        text += " (strace is missing)" if needs_tracer else ""
        report.record(
            "soak_bug", text, bug=bug, seen=seen, steps=run.done, violations=run.count, tracer=run.tracer
        )
    fields = {
        "steps": done,
        "violations": len(missed),
        "self_check": True,
        "missed": missed,
        "seed": args.seed,
    }
    fields["seconds"] = round(time.monotonic() - start, 1)
    report.record(
        "soak_finished", f"self-check: {len(bugs) - len(missed)} of {len(bugs)} bugs seen", **fields
    )
    return 1 if missed else 0


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="./run soak", description="Random life of one root, with invariants after every step."
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--json", action="store_true", help="JSON lines; the last one is soak_finished")
    parser.add_argument(
        "--self-check", nargs="*", choices=BUGS, metavar="BUG",
        help=f"plant known bugs, each must be seen within --steps; all of them, or the named: {', '.join(BUGS)}",
    )  # fmt: skip
    args = parser.parse_args(argv)
    report, start = Report(args.json), time.monotonic()
    if args.self_check is not None:
        return _self_check(report, args, start)
    return _finished(report, asyncio.run(soak(args.seed, args.steps, report)), args, start)


if __name__ == "__main__":
    raise SystemExit(main())
