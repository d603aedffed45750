"""`nedura --version` through the launcher against `python -c pass` of the same interpreter in an empty environment. Goal: under 4 x."""

from __future__ import annotations

import argparse
import statistics
import sys

from bench._repos import quiet, scratch, tell, timed
from nedura.testing.installs import make_site
from nedura.update.generation.interpreter import base_python


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    args = parser.parse_args()
    with scratch() as folder:
        site = make_site(folder, "own")
        env = {"PATH": "/usr/bin:/bin", "HOME": str(folder)}
        quiet([base_python(), "-m", "venv", "--without-pip", str(folder / "empty")], env)()
        bare, ours = [], []
        for _ in range(args.rounds):
            bare.append(timed(quiet([str(folder / "empty/bin/python"), "-c", "pass"], env)))
            ours.append(timed(quiet([str(site.launcher), "--version"], env)))
    a, b = statistics.median(bare), statistics.median(ours)
    facts: dict[str, float | int | str | bool] = {
        "python_ms": round(a * 1000, 1), "version_ms": round(b * 1000, 1), "ratio": round(b / a, 2), "goal_ratio": 4.0,
    }  # fmt: skip
    return tell("version", facts, b / a < 4)


if __name__ == "__main__":
    sys.exit(main())
