"""`nedura update --plan` with many profiles, through the launcher. Goal: under 0.35 s with 20; no worse than linear up to 100."""

from __future__ import annotations

import argparse
import statistics
import sys

from bench._repos import quiet, scratch, tell, timed
from nedura.testing.installs import make_site, write_files


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--profiles", type=int, nargs="*", default=[1, 10, 20, 100])
    args = parser.parse_args()
    medians: dict[int, float] = {}
    with scratch() as folder:
        site = make_site(folder, "own")
        env = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "LANG": "C.UTF-8"}
        for count in args.profiles:
            write_files(
                site.home,
                {f"profiles/p{i:03}/config.yaml": "model:\n  default: x\n" for i in range(count - 1)},
            )
            command = [str(site.launcher), "update", "--plan", "--json"]
            quiet(command, env)()
            times = [timed(quiet(command, env)) for _ in range(args.rounds)]
            medians[count] = statistics.median(times)
    facts: dict[str, float | int | str | bool] = {
        f"profiles_{count}_s": round(value, 3) for count, value in medians.items()
    }
    growth = medians[100] / medians[10] if {10, 100} <= set(medians) else 0.0
    goal = medians.get(20, 0.0) < 0.35 and growth <= 10 * 1.25
    return tell("plan", {**facts, "growth_10_to_100": round(growth, 2), "goal_s": 0.35}, goal)


if __name__ == "__main__":
    sys.exit(main())
